"""All benchmarks, one after the other: ``make bench``. Arguments go to the spine's."""

from bench import spine, store_bench

spine.main()
store_bench.run_in(".")
