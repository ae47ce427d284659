"""How fast the store is: one small commit alone, one session, fifty sessions, and beside a busy event loop.

Run: ``python bench/store_bench.py [directory]`` (default: the current one, since /tmp may be in memory).
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from gateway.core.content import Text
from gateway.core.events import MessageAdmitted, Record
from gateway.core.ids import MessageId, PartId, SessionId
from gateway.core.model import Pending, SessionInfo
from gateway.store import Store
from gateway.store_writer import Commit


def admission(session: SessionId, seq: int) -> Commit:
    """What a submit stores: one event, one claim, the session's row."""
    at = time.time_ns() // 1000
    id = MessageId(f"msg_{at:012x}{session[-14:]:_>14}")  # ascending, as real ones are
    message = Pending(
        id=id,
        content=(Text("please look into the failing test and tell me why"),),
        part_ids=(PartId(f"prt{id[3:]}"),),
        ascending_id=id,
        lane="queue",
        place=seq,
        created=at,
        group=id,
    )
    record = Record(session_id=session, seq=seq, at=at, clock=at << 12, event=MessageAdmitted(message, "0" * 32))
    info = SessionInfo(id=session, root_id=session, cwd="/work", created=1, updated=at)
    return Commit(root_id=session, records=(record,), infos=(info,), claims=((id, session),), busy=True)


async def session_of(store: Store, name: str, count: int, latencies: list[float]) -> None:
    session = SessionId(f"ses_{name:_>26}")
    for seq in range(1, count + 1):
        commit = admission(session, seq)
        began = time.perf_counter()
        await store.commit(commit)
        latencies.append(time.perf_counter() - began)


async def run(store: Store, name: str, sessions: int, count: int, *, burn: bool = False) -> None:
    latencies: list[float] = []
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        burner = group.create_task(busy_loop()) if burn else None
        tasks = [group.create_task(session_of(store, f"{name}{i}", count, latencies)) for i in range(sessions)]
        await asyncio.wait(tasks)
        if burner is not None:
            burner.cancel()
    took = time.perf_counter() - began
    latencies.sort()
    p50, p99 = (latencies[int(len(latencies) * q)] * 1e3 for q in (0.5, 0.99))
    rate = sessions * count / took
    print(f"{name:12} {sessions:3} sessions  {rate:9,.0f} commits/s  p50 {p50:.3f} ms  p99 {p99:.3f} ms")


async def busy_loop() -> None:
    """Another task that works 1 ms at a time, half of the time."""
    while True:
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass
        await asyncio.sleep(0.001)


def fsync_floor(directory: Path) -> None:
    with open(directory / "floor", "wb", buffering=0) as file:
        times = []
        for _ in range(300):
            began = time.perf_counter()
            file.write(b"x" * 8192)
            file.flush()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    times.sort()
    print(f"{'fdatasync':12} of 8 KiB appended: p50 {times[150] * 1e3:.3f} ms  p99 {times[297] * 1e3:.3f} ms")


async def main(directory: Path) -> None:
    fsync_floor(directory)
    began = time.perf_counter()
    await Store.open(f"sqlite:///{directory}/bench.db").close()
    first = time.perf_counter() - began
    began = time.perf_counter()
    store = Store.open(f"sqlite:///{directory}/bench.db")
    again = time.perf_counter() - began
    print(f"{'open':12} first {first * 1e3:.0f} ms (with migrations), again {again * 1e3:.1f} ms")
    await run(store, "warm", 1, 200)
    await run(store, "one", 1, 3000)
    await run(store, "fifty", 50, 600)
    await run(store, "one+work", 1, 1000, burn=True)
    await run(store, "fifty+work", 50, 200, burn=True)
    await store.close()


def run_in(folder: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        asyncio.run(main(Path(name).resolve()))


if __name__ == "__main__":
    run_in(sys.argv[1] if len(sys.argv) > 1 else ".")
