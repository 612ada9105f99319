# SPDX-License-Identifier: BSL-1.0
"""The studies' scripts for EbbRT steer a whole machine: their control lines, byte by byte, by `socat` (docs/control.md, "The dialect of
EbbRT").

The lines are those that mutilate_bench.py and run_mcd.sh (github.com/SESA/intlog) send, in their order. Python sends them without a line
feed, the shell's `echo` with one. The settings' effect is read from the card and from control.
"""

import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

import pytest
from observed import TRACE_ENTRIES, ObservedServer
from servers import CONNECT_PAUSE_SECONDS, CONTROL_PORT, GUEST_PORT

from tools import ctl
from tools.machine import LOOPBACK

pytestmark = [pytest.mark.image_only, pytest.mark.names_the_82599]  # its moderation of interrupts

CORES = 2
CONNECTIONS = 8
REQUESTS = 30
SOCAT_SECONDS = 60
# One record of parse_ebbrt_mcd.c, which reads the files of `get`.
RECORD = struct.Struct("<9q4i")
# mutilate_bench.py adds up so many numbers of each line of getcounters.
COUNTERS = 72


@pytest.fixture(scope="module")
def server() -> Iterator[ObservedServer]:
    # With mwait=assumed the emulator has the state c1, so that `sleep_state` can be set.
    with ObservedServer(cores=CORES, arguments=["dialect=ebbrt", "log=64K", "mwait=assumed", "idle=halt"]) as machine:
        yield machine


def socat(server: ObservedServer, text: bytes) -> bytes:
    """Returns what the script's `socat - TCP4:...` prints for this input. The time-out is longer than the scripts' half a second, because
    the emulator is slow; the machine closes the connection before."""
    program = shutil.which("socat")
    assert program, "no socat: ./neap test system installs it"
    time.sleep(CONNECT_PAUSE_SECONDS)
    argv = [program, "-t", "30", "-", f"TCP4:{LOOPBACK}:{server.machine.port(CONTROL_PORT)}"]
    return subprocess.run(argv, input=text, stdout=subprocess.PIPE, timeout=SOCAT_SECONDS, check=True).stdout


def load(server: ObservedServer) -> None:
    """Causes traffic on all cores: RSS spreads the connections."""
    for number in range(CONNECTIONS):
        time.sleep(CONNECT_PAUSE_SECONDS)
        with socket.create_connection((LOOPBACK, server.machine.port(GUEST_PORT)), 20) as wire:
            for _ in range(REQUESTS):
                wire.sendall(b"get nothing-%d\r\n" % number)
                assert wire.recv(100) == b"END\r\n"


def settings(server: ObservedServer) -> list[dict[str, str]]:
    """Returns one dictionary of settings per core."""
    with server.control() as control:
        parts = control.ok_answer("policy").split("; ")[1:]
    return [dict(word.split("=") for word in part.split()[1:]) for part in parts if part[0].isdigit()]


def intervals_ns(server: ObservedServer) -> dict[int, int]:
    """Returns the moderation that is in force on the card, by vector (EITR)."""
    server.machine.card_command(f"trace start {TRACE_ENTRIES}")
    server.machine.card_command("trace stop")
    entries: list[dict[str, int]] = []
    while (piece := server.machine.card_command("trace read"))["entries"]:
        entries += piece["entries"]
    return {entry["vector"]: entry["interval"] for entry in entries if "interval" in entry}


def test_a_benchmarks_lines_are_answered_as_by_ebbrt_and_take_effect(server: ObservedServer) -> None:
    # mutilate_bench.py: the settings of a run.
    assert socat(server, b"rx_usecs,50") == b""
    assert {core["itr_us"] for core in settings(server)} == {"100"}
    in_force = intervals_ns(server)
    assert [in_force[core] for core in range(CORES)] == [100_000] * CORES, "a unit of rx_usecs is 2 us"
    assert socat(server, b"sleep_state,0") == b""
    assert {core["idle"] for core in settings(server)} == {"c1"}

    # mutilate_bench.py: the run.
    assert socat(server, b"start,0") == b""
    load(server)
    assert socat(server, b"stop,0") == b""
    lines = [[float(word) for word in line.split(" ")] for line in socat(server, b"getcounters,0").decode().strip().split("\n")]
    assert [len(line) for line in lines] == [COUNTERS] * CORES
    assert [int(line[0]) for line in lines] == list(range(CORES))

    # run_mcd.sh: the results.
    start, stop = map(int, socat(server, b"rdtsc,0\n").decode().strip().split(" "))
    assert 0 < start < stop
    for core in range(CORES):
        data = socat(server, b"get,%d\n" % core)
        assert data and len(data) % RECORD.size == 0, data[:100]
        records = list(RECORD.iter_unpack(data))
        times = [record[0] for record in records]
        assert times == sorted(times) and times[0] <= start and times[-1] >= stop
        # The records add up to the counters, which the driver counts on its own. The first record is of the run's start.
        assert records[0][9:] == (0, 0, 0, 0)
        assert sum(record[10] for record in records) == lines[core][3] > 0
        assert sum(record[12] for record in records) == lines[core][5] > 0
    assert socat(server, b"clear,0") == b""
    assert socat(server, b"rdtsc,0") == b"0 0"


def test_what_the_machine_cannot_do_is_refused_and_printed(server: ObservedServer) -> None:
    before = settings(server)
    for line in (b"rapl,135", b"dvfs,7424", b"sleep_state,48", b"rx_usecs,512", b"rx_usecs,8us", b"reta,32"):
        assert socat(server, line).startswith(b"error: "), line
    assert settings(server) == before
    assert any("'rapl' was refused" in line for line in server.machine.lines), server.last_words()


def test_ctl_shows_the_answers_of_the_dialect(server: ObservedServer, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["start,0", "status", "stop,0", "rdtsc,0"]
    assert ctl.ctl(server.control_target, lines, pid=None, token_file=None, as_json=False) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] == printed[5] == ctl.EBBRT_SILENCE
    assert "; logging=on; " in printed[3] and "; dialect=ebbrt; " in printed[3]
    assert len(printed[7].split(" ")) == 2
