# SPDX-License-Identifier: BSL-1.0
"""`./neap bench stream`: memcached on four busy cores, its log collected after the run and during the run.

The question is whether a log entry can get lost without being counted. The machine reports how many entries its cores wrote, the collector
how many it received, and the stream how many were lost. If received and lost entries do not add up to the written entries, the command
fails. The rates of requests and entries depend on this machine, so they have no targets.
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools import build, control_client, progress
from tools.bench.rows import Row
from tools.errors import Failure
from tools.log import layout
from tools.log.collect import Collector, Tally
from tools.log.folder import Folder, describe_run, log_files
from tools.machine import LOOPBACK, Machine
from tools.process import spawn, stop

CORES = 4
GUEST_PORT = 11211
CONTROL_PORT = 5002
START_SECONDS = 60
LOAD_SECONDS = 10.0
WARM_SECONDS = 2.0
CONNECTIONS = 64
DEPTH = 4
COLLECT_SECONDS = 120.0
# Log entries per core. For collection after the run, the whole run fits into the log. For collection during the run, a quarter of the run
# fits, so the collector has to keep up.
LINES_AFTER = "1M"
LINES_LIVE = "16K"


@dataclasses.dataclass
class Collected:
    lines: int
    named_lost: int
    seconds: float


class Load:
    """The process that sends requests (load.py), as a context manager."""

    def __init__(self, port: int) -> None:
        argv = [sys.executable, "-m", "tools.bench.load", LOOPBACK, str(port), str(CONNECTIONS), str(DEPTH)]
        self._process = spawn(argv, cwd=build.REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Load:
        self.answered()  # all connections are open
        return self

    def __exit__(self, *_exception: object) -> None:
        stop(self._process)

    def answered(self) -> int:
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())
        except (OSError, ValueError):
            raise Failure("the load on memcached broke off") from None

    def rate(self, seconds: float) -> float:
        first, began = self.answered(), time.monotonic()
        time.sleep(seconds)
        return (self.answered() - first) / (time.monotonic() - began)


@contextlib.contextmanager
def server(lines: str) -> Iterator[Machine]:
    """Runs memcached with a log of `lines` entries per core. When the log is full, the oldest entries are overwritten and counted."""
    words = [f"log={lines}", "log_full=overwrite"]
    forward = [(0, GUEST_PORT), (0, CONTROL_PORT)]
    with Machine(build.image("memcached"), cores=CORES, memory="1G", forward=forward, arguments=words) as machine:
        machine.wait_for_line(r"memcached: listening on", START_SECONDS)
        yield machine


def ok_answer(machine: Machine, line: str) -> str:
    """Returns the answer of the machine's control server to `line`. Raises Failure if the answer is an error."""
    with control_client.Control(LOOPBACK, machine.port(CONTROL_PORT)) as connection:
        answer = connection.ask(line)
    if not answer.startswith("ok"):
        raise Failure(f"{line}: the machine answered '{answer}'")
    return answer


def of_cores(machine: Machine) -> list[dict[str, int]]:
    """Returns the numbers in the answer to `cores`, for each core."""
    cores = []
    for part in ok_answer(machine, "cores").removeprefix("ok ").split("; "):
        words = (word.partition("=") for word in part.split(" ")[1:])
        cores.append({name: int(value) for name, _, value in words if value.isdecimal()})
    return cores


def collect(machine: Machine, folder: Path, live: bool) -> Collected:
    """Collects all cores' entries into `folder`, until the machine ends the stream."""
    address = (LOOPBACK, machine.port(CONTROL_PORT))
    with Folder(folder) as place:
        collector = Collector(address, place, live=live, token=None, patience_seconds=COLLECT_SECONDS)
        began = time.monotonic()
        collector.run()
        seconds = time.monotonic() - began
        tally: Tally = collector.tally
        place.finish(describe_run(log_files(folder), mode="live" if live else "after", breaks=tally.breaks))
    return Collected(tally.entries, tally.lost, seconds)


def busy_share(before: list[dict[str, int]], after: list[dict[str, int]]) -> float:
    """Returns the percentage of time during which the core that slept most was awake."""
    shares = []
    for one, two in zip(before, after, strict=True):
        shares.append(1 - (two["asleep_ns"] - one["asleep_ns"]) / max(1, two["now_ns"] - one["now_ns"]))
    return 100 * min(shares)


def rows_of(name: str, machine: Machine, collected: Collected, per_second: float, busy: float) -> list[Row]:
    """Returns the rows of one run, with its log entries: written, collected, reported as lost, and uncounted."""
    written = sum(core["records"] + core["unwritten"] for core in of_cores(machine))
    uncounted = abs(written - collected.lines - collected.named_lost)
    return [
        Row(f"{name}.requests", "requests/s", per_second),
        Row(f"{name}.busy", "% awake, of the core that slept most", busy),
        Row(f"{name}.written", "log entries that the cores wrote", written),
        Row(f"{name}.collected", "log entries", collected.lines),
        Row(f"{name}.lost", "log entries, as the stream counted them", collected.named_lost),
        Row(f"{name}.uncounted", "log entries neither collected nor counted as lost", uncounted, 1),
        Row(f"{name}.rate", "MB/s", collected.lines * layout.ENTRY_BYTES / 1e6 / max(collected.seconds, 1e-3)),
    ]


def run_with_log(machine: Machine, load: Load) -> tuple[float, float]:
    """Performs one run under load. Returns requests a second and the cores' `busy_share`."""
    before = of_cores(machine)
    return load.rate(LOAD_SECONDS), busy_share(before, of_cores(machine))


def after(folder: Path) -> list[Row]:
    """Measures without a log, then with a log that is collected after the run."""
    with server(LINES_AFTER) as machine:
        with Load(machine.port(GUEST_PORT)) as load:
            load.rate(WARM_SECONDS)
            plain, _ = run_with_log(machine, load)
            ok_answer(machine, "start")
            per_second, busy = run_with_log(machine, load)
            ok_answer(machine, "stop")
        collected = collect(machine, folder, live=False)
        return [Row("stream.none.requests", "requests/s, no log", plain), *rows_of("stream.after", machine, collected, per_second, busy)]


def live(folder: Path) -> list[Row]:
    """Measures with a log that is collected while it is written."""
    with server(LINES_LIVE) as machine:
        with ThreadPoolExecutor(1) as together:
            with Load(machine.port(GUEST_PORT)) as load:
                load.rate(WARM_SECONDS)
                ok_answer(machine, "start")
                collecting = together.submit(collect, machine, folder, live=True)
                per_second, busy = run_with_log(machine, load)
                ok_answer(machine, "stop")
            try:
                collected = collecting.result(COLLECT_SECONDS)
            except TimeoutError:
                raise Failure(f"the collector does not end within {COLLECT_SECONDS:.0f} s of the run's end") from None
        return rows_of("stream.live", machine, collected, per_second, busy)


def stream() -> list[Row]:
    build.build_soft_card()
    build.build("image", ["memcached.elf"])
    with tempfile.TemporaryDirectory(prefix="neap-bench-") as directory, progress.step("collecting under full load"):
        return after(Path(directory) / "after") + live(Path(directory) / "live")
