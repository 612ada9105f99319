# SPDX-License-Identifier: BSL-1.0
"""The log of a real run on four cores: each way of fetching returns the same log, and every lost entry is counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import LOOPBACK, DebianProgram, NeapServer

from tools import build, top
from tools.control_client import fields_of
from tools.log import decode, layout, summary
from tools.process import finished, spawn, stop, wait_until

pytestmark = pytest.mark.image_only

CORES = 4
LINES = 1 << 18
CONNECTIONS = 16
COMMAND_SECONDS = 180
WAIT_SECONDS = 60.0
NEAP = [sys.executable, str(build.REPOSITORY / "neap")]


@pytest.fixture(scope="module")
def server() -> Iterator[NeapServer]:
    with NeapServer(cores=CORES, memory="1G", arguments=[f"log={LINES}", "memory=128M"]) as machine:
        yield machine


@pytest.fixture
def address(server: NeapServer) -> str:
    """Returns the address of the control server. No run is in progress."""
    with server.control() as control:
        if fields_of(control.ask("status"))["logging"] == "on":
            assert control.ask("stop").startswith("ok")
    return server.control_target


def neap(*words: str) -> subprocess.CompletedProcess:
    done = finished([*NEAP, *words], COMMAND_SECONDS)
    assert done.returncode == 0, done.stderr + done.stdout
    return done


def ctl(address: str, *lines: str) -> list[str]:
    return neap("ctl", address, *lines).stdout.splitlines()


def core_counters(server: NeapServer, name: str) -> list[int]:
    with server.control() as control:
        return [row[name] for row in top.parse(control.ask("cores"), "the machine")]


def wait_for(condition: Callable[[], bool]) -> None:
    assert wait_until(condition, WAIT_SECONDS, 0.1) is not None


class Load:
    """Keeps the machine busy with many connections of libmemcached's load generator, until the `with` block ends."""

    def __init__(self, server: NeapServer, connections: int = CONNECTIONS) -> None:
        self._server = server
        program = DebianProgram("libmemcached-tools", "memcaslap")
        self._argv = [*program.argv, "-s", f"{LOOPBACK}:{server.address[1]}", "-T", "1", "-c", str(connections), "-t", "600s"]

    def __enter__(self) -> Load:
        before = core_counters(self._server, "rx_frames")
        self._process = spawn(self._argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # RSS selects a core for each connection, and the connections are opened one after the other. So this waits until two cores have
        # traffic.
        wait_for(lambda: sum(now > old + 500 for now, old in zip(core_counters(self._server, "rx_frames"), before)) >= 2)
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._process.poll() is None, "the load generator ended by itself"
        stop(self._process)


def socat(server: NeapServer, core: int) -> bytes:
    """Fetches a log by the command of docs/control.md, which the published studies used too."""
    command = f'echo "get,{core}" | socat -t 10 - TCP4:{server.control_target}'
    done = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def logs(folder: Path) -> list[bytes]:
    return [(folder / f"core{core}.log").read_bytes() for core in range(CORES)]


def size_of_logs(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("core*"))


def start_collector(address: str, out: Path) -> subprocess.Popen:
    """Starts a process that collects the log of the run in progress. The process prints run.json at the end."""
    argv = [*NEAP, "log", "collect", address, "--live", "--out", str(out), "--json"]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_under_load(server: NeapServer, address: str, seconds: float) -> None:
    with Load(server):
        ctl(address, "start")
        time.sleep(seconds)
        ctl(address, "stop")


def test_socat_fetch_and_collect_give_the_same_bytes(server: NeapServer, address: str, tmp_path: Path) -> None:
    run_under_load(server, address, 2)
    neap("log", "collect", address, "--out", str(tmp_path / "collected"))
    neap("log", "fetch", address, "--out", str(tmp_path / "fetched"))
    assert logs(tmp_path / "collected") == logs(tmp_path / "fetched") == [socat(server, core) for core in range(CORES)]
    found = summary.summarise(decode.load([str(tmp_path / "collected")]))
    assert found["remarks"] == []
    assert sum(row["interrupts"] > 100 and row["application_rx_frames"] > 100 for row in found["cores_detail"]) >= 2
    assert found["total"]["requests"] > 100
    # The emulated CPU has no performance counters, so the log has no energy and no instructions per cycle.
    assert found["total"]["joules"] is None and found["total"]["ipc"] is None


def test_live_streaming_under_load_from_four_cores_loses_nothing(server: NeapServer, address: str, tmp_path: Path) -> None:
    with Load(server):
        ctl(address, "start")
        collector = start_collector(address, tmp_path / "live")
        wait_for(lambda: size_of_logs(tmp_path / "live") > 200_000)
        ctl(address, "poll_budget,8us", "idle,halt")
        time.sleep(3)
        ctl(address, "poll_budget,100us", "stop")
    printed, complaints = collector.communicate(timeout=COMMAND_SECONDS)
    assert collector.returncode == 0, complaints
    run = json.loads(printed)
    neap("log", "fetch", address, "--out", str(tmp_path / "fetched"))
    assert logs(tmp_path / "live") == logs(tmp_path / "fetched")
    assert run["gaps"] == [] and [row["unwritten"] for row in run["files"]] == [0] * CORES and run["breaks"] == 0
    changes = {(row["core"], row["changed"], row["poll_budget_us"]) for row in run["settings"]}
    assert {(core, "poll_budget", budget) for core in range(CORES) for budget in (8, 100)} <= changes
    found = summary.summarise(decode.load([str(tmp_path / "live")]))
    assert found["total"]["control_tx_bytes"] > layout.ENTRY_BYTES * 1000, "the stream is counted, and apart"


def test_a_second_collector_resumes_after_one_that_was_killed(server: NeapServer, address: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Load(server):
        ctl(address, "start")
        for _ in range(3):
            before = size_of_logs(out)
            collector = start_collector(address, out)
            wait_for(lambda: size_of_logs(out) > before + 50_000)  # noqa: B023 - called here and now
            collector.kill()
            collector.communicate()
        ctl(address, "stop")
    assert "lost 0" in neap("log", "collect", address, "--out", str(out)).stdout
    neap("log", "fetch", address, "--out", str(tmp_path / "fetched"))
    assert logs(out) == logs(tmp_path / "fetched")


def test_top_and_status_show_four_cores_at_work(server: NeapServer, address: str) -> None:
    with Load(server):
        rows = json.loads(neap("top", address, "--once", "--seconds", "2", "--json").stdout)["cores"]
    assert [row["core"] for row in rows] == list(range(CORES))
    at_work = [row for row in rows if row["interrupts_per_second"] > 0 and row["rx_frames_per_second"] > 0]
    assert len(at_work) >= 2
    assert all(0 <= row["asleep_share"] <= 1 for row in at_work)
    (status,) = ctl(address, "status")
    assert fields_of(status)["application"] == "memcached" and fields_of(status)["cores"] == str(CORES)


def test_a_wrong_line_is_an_error_and_the_status(address: str) -> None:
    done = finished([*NEAP, "ctl", address, "itr,banana"])
    assert done.returncode == 1 and done.stdout.startswith("error: ")


def test_a_full_disk_at_the_collector_loses_nothing(server: NeapServer, address: str, tmp_path: Path) -> None:
    run_under_load(server, address, 3)
    namespaces = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    small = tmp_path / "small"
    small.mkdir()
    script = (
        'mount -t tmpfs -o size=32m tmpfs "$1" && head -c 33400000 /dev/zero > "$1/filler"; shift; '
        '"$@"; echo "first: $?"; rm "$SMALL/filler"; "$@"; echo "second: $?"; cp "$SMALL"/out/core*.log "$SMALL/.."'
    )
    argv = [*namespaces, "sh", "-c", script, "sh", str(small), *NEAP, "log", "collect", address, "--out", str(small / "out")]
    done = finished(argv, COMMAND_SECONDS, env={**os.environ, "SMALL": str(small)})
    assert "first: 1" in done.stdout and "second: 0" in done.stdout, done.stdout + done.stderr
    assert sum(line.startswith("neap: error: no space left on the disk") for line in done.stderr.splitlines()) == 1
    assert logs(tmp_path) == [socat(server, core) for core in range(CORES)]


def test_two_collectors_and_control_go_on_side_by_side(server: NeapServer, address: str, tmp_path: Path) -> None:
    with Load(server):
        ctl(address, "start")
        folders = [tmp_path / name for name in ("a", "b")]
        collectors = [start_collector(address, folder) for folder in folders]
        time.sleep(2)
        ctl(address, "status", "stats", "cores", "stop")
        for collector in collectors:
            complaints = collector.communicate(timeout=COMMAND_SECONDS)[1]
            assert collector.returncode == 0, complaints
    assert logs(folders[0]) == logs(folders[1]) == [socat(server, core) for core in range(CORES)]


def test_overwritten_entries_of_a_small_log_are_counted_exactly(tmp_path: Path) -> None:
    # The test needs connections on both cores. The probability that all sixteen connections are on one core is 1 in 30,000.
    with NeapServer(cores=2, arguments=["log=256", "log_full=overwrite", "log_idle=on", "memory=64M"]) as server:
        address = server.control_target
        with Load(server):
            ctl(address, "start")
            collector = start_collector(address, tmp_path / "live")
            wait_for(lambda: all(lines > 1000 for lines in core_counters(server, "records")))
            ctl(address, "stop")
        run = json.loads(collector.communicate(timeout=COMMAND_SECONDS)[0])
        neap("log", "fetch", address, "--out", str(tmp_path / "fetched"))
    for row in run["files"]:
        header = layout.read_header(tmp_path / "fetched" / f"core{row['core']}.log")
        lost = sum(gap["lines"] for gap in run["gaps"] if gap["core"] == row["core"])
        assert row["lines"] + lost == header.first + header.entries, "what came and what is missing is all that there was"
        assert header.first > 0, "the log was overwritten"
        name = f"core{row['core']}.log"
        assert (tmp_path / "live" / name).read_bytes() == (tmp_path / "fetched" / name).read_bytes()
    # On a busy host a core sleeps less often between two interrupts, so fewer of the last entries are sleeps.
    assert decode.load([str(tmp_path / "live")]).cores[0].idle.size > 20
