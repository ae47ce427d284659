"""All benchmarks, one after the other: ``make bench``. Arguments go to the spine's."""

from bench import acp_ws, spine, store_bench, trickle

spine.main()
acp_ws.main()
trickle.main()
store_bench.run_in(".")
