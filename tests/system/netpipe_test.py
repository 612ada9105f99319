# SPDX-License-Identifier: BSL-1.0
"""NetPIPE's own program, Debian's NPtcp, against Neap as server and as client, in every mode; and Neap against Neap over two joined soft
cards.

Over control, the tests configure how Neap serves, and fetch the results.

Sizes, repeats and results are compared line by line: both programs must print the same points. Speeds are printed, never asserted.
"""

import contextlib
import random
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from servers import CONNECT_PAUSE_SECONDS

from tools import build, control_client
from tools.bench import netpipe
from tools.bench.netpipe import CONTROL_PORT, GUEST_PORT, HOST_SEEN_FROM_INSIDE, START_SECONDS
from tools.machine import FAILURE, LOOPBACK, SUCCESS, Machine, free_port
from tools.process import finished, wait_until

pytestmark = pytest.mark.image_only

RUN_SECONDS = 300

# Each mode has words for NPtcp and the same words for Neap. `-n` limits the repeats. In the first mode, without `-n`, both programs choose
# the repeats.
MODES = {
    "default": (["-u", "8"], ["to=8"]),
    "to_1_MB": (["-u", "1048576", "-n", "3"], ["to=1M", "repeats=3"]),
    "bounds": (["-l", "1000", "-u", "20000", "-p", "5", "-n", "5"], ["from=1000", "to=20000", "perturbation=5", "repeats=5"]),
    "streaming": (["-s", "-u", "100000", "-p", "0", "-n", "20"], ["stream=on", "to=100000", "perturbation=0", "repeats=20"]),
    "bidirectional": (["-2", "-u", "131072", "-n", "3"], ["bidirectional=on", "to=131072", "repeats=3"]),
    "integrity_to_1_MB": (["-i", "-u", "1048576", "-n", "5"], ["integrity=on", "to=1M", "repeats=5"]),
    "reset": (["-r", "-u", "24", "-n", "5"], ["reset=on", "to=24", "repeats=5"]),
    # NPtcp takes another buffer for each message, and marks no message.
    "uncached": (["-I", "-u", "3000", "-n", "5"], ["to=3000", "repeats=5"]),
}


def points(lines: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns index, bytes, repeats, and whether contents were checked, for each line with a result."""
    return [(match["index"], match["bytes"], match["repeats"], match["checked"] or "measured") for match in netpipe.results(lines)]


@pytest.fixture(scope="module")
def server() -> Iterator[Machine]:
    with Machine(build.image("netpipe"), cores=4, forward=[(0, GUEST_PORT), (0, CONTROL_PORT)], outside=True) as machine:
        machine.wait_for_line(rf"^netpipe: listening on .*:{GUEST_PORT}$", START_SECONDS)
        yield machine


@pytest.fixture
def control(server: Machine) -> Iterator[control_client.Control]:
    time.sleep(CONNECT_PAUSE_SECONDS)
    with control_client.Control(LOOPBACK, server.port(CONTROL_PORT)) as connection:
        yield connection


def serve_as(control: control_client.Control, words: Sequence[str]) -> None:
    """Configures how Neap serves NPtcp. Settings that `words` omits return to their defaults. NPtcp transmits and chooses the repeats."""
    given = dict(word.split("=", 1) for word in words)
    checked = given.get("integrity") == "on"
    usual = {"from": "5" if checked else "1", "to": "10000000", "perturbation": "0" if checked else "3"}
    usual |= {name: "off" for name in ("stream", "bidirectional", "integrity", "reset")}
    wanted = [f"{name}={value}" for name, value in (usual | given).items() if name != "repeats"]
    assert control.ask(",".join(["netpipe", "serve", *wanted])).startswith("ok from=")


def nptcp(machine: Machine, options: Sequence[str], output: Path) -> subprocess.CompletedProcess[str]:
    """Runs NPtcp against the machine, until its measurement has ended."""
    return finished(["NPtcp", "-h", LOOPBACK, "-P", str(machine.port(GUEST_PORT)), "-o", str(output), *options], RUN_SECONDS)


def show_side_by_side(theirs: Sequence[str], ours: Sequence[str]) -> None:
    print("what NPtcp (left) and Neap (right) measured")
    for left, right in zip(netpipe.results(theirs), netpipe.results(ours), strict=False):
        print(f"{left[0]}  | {right[0].split('-->')[1]}")


@pytest.mark.parametrize("mode", MODES)
def test_nptcp_measures_with_neap(mode: str, server: Machine, control: control_client.Control, tmp_path: Path) -> None:
    options, words = MODES[mode]
    serve_as(control, words)
    before = len(server.lines)
    done = nptcp(server, options, tmp_path / "np.out")
    assert done.returncode == 0, done.stdout + done.stderr
    server.wait_for_line(r"^netpipe: run \d+ finished$", 10, before)
    ours = server.lines[before:]
    theirs = done.stderr.splitlines()
    show_side_by_side(theirs, ours)
    assert points(ours) == points(theirs) and len(points(theirs)) > 5
    if mode.startswith("integrity"):
        assert all(point[3] == "Integrity check passed" for point in points(ours))
    # Control returns the results in the format of NPtcp's own file. Control and this file must have the same sizes, line by line.
    kept = control.ask("netpipe,results").split("; ")
    assert kept[1] == "role=receiver" and kept[3] == "state=finished"
    written = (tmp_path / "np.out").read_text().splitlines()
    assert [line.split()[0] for line in kept[4:]] == [line.split()[0] for line in written]
    assert [len(line.split()) for line in kept[4:]] == [len(line.split()) for line in written]


# The options for NPtcp, and the words for Neap where the mode requires them. All sizes differ from those that Neap has.
OTHER_SIZES = {
    "bounds": (["-l", "100", "-u", "30000", "-p", "7"], []),
    "no_perturbation": (["-u", "3000", "-p", "0"], []),
    "streaming": (["-s", "-l", "10", "-u", "3000", "-p", "5"], ["stream=on"]),
    "bidirectional": (["-2", "-l", "10", "-u", "30000", "-p", "5"], ["bidirectional=on"]),
    "integrity": (["-i", "-l", "77", "-u", "30000"], ["integrity=on"]),
}


@pytest.mark.parametrize("mode", OTHER_SIZES)
def test_nptcp_chooses_the_sizes(mode: str, server: Machine, control: control_client.Control, tmp_path: Path) -> None:
    options, words = OTHER_SIZES[mode]
    serve_as(control, words)
    before = len(server.lines)
    done = nptcp(server, [*options, "-n", "5"], tmp_path / "np.out")
    assert done.returncode == 0, done.stdout + done.stderr
    server.wait_for_line(r"^netpipe: run \d+ finished$", 10, before)
    assert points(server.lines[before:]) == points(done.stderr.splitlines()) and len(points(server.lines[before:])) > 10


def test_a_size_above_the_bound_is_refused_by_name(server: Machine, control: control_client.Control, tmp_path: Path) -> None:
    serve_as(control, ["to=1000"])
    before = len(server.lines)
    done = nptcp(server, ["-u", "5000", "-n", "5"], tmp_path / "np.out")
    assert done.returncode != 0 and "|QUIT" in done.stderr, done.stdout + done.stderr
    server.wait_for_line(r"^netpipe: run \d+ failed: refused a size of 1024 bytes, more than to=1000; to=1024 admits it$", 10, before)
    # NPtcp prints a size before it measures it.
    assert [point[1] for point in points(server.lines[before:])][-1] == "771"
    nptcp(server, ["-l", "2000", "-u", "5000", "-n", "5"], tmp_path / "np.out")
    server.wait_for_line(r"^netpipe: no measurement by .*: refused a size of 2000 bytes, more than to=1000; to=2000 admits it$", 10, before)


@pytest.mark.parametrize("mode", MODES)
def test_neap_measures_with_nptcp(mode: str, tmp_path: Path) -> None:
    options, words = MODES[mode]
    with netpipe.nptcp_receives(options, tmp_path) as port:
        # The user network must be able to reach the host, because the peer listens there.
        words = ["mode=client", f"peer={HOST_SEEN_FROM_INSIDE}:{port}", "core=1", *words]
        with Machine(build.image("netpipe"), cores=2, arguments=words, outside=True) as machine:
            assert machine.wait_exit(RUN_SECONDS) == SUCCESS, "\n".join(machine.lines)
            ours = machine.lines
    for line in ours:
        print(line)
    assert [(int(point[0]), int(point[1])) for point in points(ours)] == list(enumerate(sizes(words)))
    if mode.startswith("integrity"):
        assert all(point[3] == "Integrity check passed" for point in points(ours))
    assert "netpipe: run 1 finished" in ours


def sizes(words: Sequence[str]) -> list[int]:
    """Returns NetPIPE's series of sizes for these words, computed independently."""
    given = dict(word.split("=", 1) for word in words)
    checked = given.get("integrity") == "on"
    start = int(given.get("from", 5 if checked else 1))
    end = int(given["to"].replace("M", "")) * (1 << 20 if given["to"].endswith("M") else 1)
    reach = int(given.get("perturbation", 0 if checked else 3))
    length, step, number = start, max(start // 2, 1), 1 if start > 1 else 0
    series = []
    while length <= end:
        if number > 2 and number % 2:
            step *= 2
        series += [length - reach, length, length + reach] if reach and step > reach + 1 else [length]
        length, number = length + step, number + 1
    return series


IPV4 = (["ip=10.0.0.1/24"], ["ip=10.0.0.2/24"], "10.0.0.1")
IPV6 = (["ip=off", "ip6=fd00:5::1/64"], ["ip=off", "ip6=fd00:5::2/64"], "[fd00:5::1]")


@pytest.mark.parametrize(
    ("mode", "addresses"),
    [("to_1_MB", IPV4), ("streaming", IPV4), ("integrity_to_1_MB", IPV4), ("integrity_to_1_MB", IPV6)],
    ids=["to_1_MB", "streaming", "integrity_to_1_MB", "integrity_to_1_MB_over_ipv6"],
)
def test_neap_measures_with_neap(mode: str, addresses: tuple[Sequence[str], Sequence[str], str]) -> None:
    """Two machines on this host, their cards joined by a socket. There is no other network and no other program."""
    _, words = MODES[mode]
    of_server, of_client, peer = addresses
    with tempfile.TemporaryDirectory(prefix="neap-") as directory:
        wire = f"{directory}/wire"
        image = build.image("netpipe")
        with Machine(image, cores=2, net=f"listen:{wire}", mac="02:82:59:90:00:0a", arguments=[*of_server, *words]) as server:
            # The link is up once both machines run, so the server starts to listen only then.
            client_words = [*of_client, "mode=client", f"peer={peer}:5003", "wait=30s", *words]
            with Machine(image, cores=2, net=f"connect:{wire}", mac="02:82:59:90:00:0b", arguments=client_words) as client:
                assert client.wait_exit(RUN_SECONDS) == SUCCESS, "\n".join(client.lines + server.lines)
                server.wait_for_line(r"^netpipe: run 1 finished$", 10)
            theirs, ours = client.lines, server.lines
    show_side_by_side(theirs, ours)
    assert points(ours) == points(theirs) and len(points(ours)) > 20


def test_a_missing_peer_is_reported() -> None:
    with Machine(build.image("netpipe"), arguments=["mode=client", f"peer={HOST_SEEN_FROM_INSIDE}:{free_port()}"], outside=True) as machine:
        assert machine.wait_exit(RUN_SECONDS) == FAILURE
        assert any(line.startswith("netpipe: run 1 failed: the peer ") for line in machine.lines), machine.lines


def test_a_run_begun_over_control(control: control_client.Control, tmp_path: Path) -> None:
    """Neap is the client. A line on control starts the run on a chosen core."""
    with netpipe.nptcp_receives(["-u", "64", "-n", "5"], tmp_path) as port:
        run = control.ask(f"netpipe,run,peer={HOST_SEEN_FROM_INSIDE}:{port},core=3,to=64,repeats=5")
        assert run.startswith("ok run="), run
        answer = results_at_the_end(control, run.removeprefix("ok run="))
    assert f"role=transmitter; peer={HOST_SEEN_FROM_INSIDE}:{port}; state=finished; 1 " in answer
    assert [int(line.split()[0]) for line in answer.split("; ")[4:]] == sizes(["to=64"])
    # NPtcp has ended, so no program listens on that port now.
    run = control.ask(f"netpipe,run,peer={HOST_SEEN_FROM_INSIDE}:{port}")
    assert "state=failed; reason=the peer " in results_at_the_end(control, run.removeprefix("ok run="))
    for bad in ("netpipe", "netpipe,fly", "netpipe,run,peer=10.0.2.2", "netpipe,run,peer=10.0.2.2:9,core=4", "netpipe,serve,to=0"):
        assert control.ask(bad).startswith("error: "), bad


def results_at_the_end(control: control_client.Control, number: str) -> str:
    answer = wait_until(lambda: kept if "state=running" not in (kept := control.ask(f"netpipe,results,{number}")) else None, 60, 0.1)
    assert answer, f"run {number} does not end"
    return answer


def test_bad_peers_do_not_affect_others(server: Machine, control: control_client.Control, tmp_path: Path) -> None:
    """After wrong words, absurd numbers, half messages and connections closed midway, NPtcp measures as before."""
    rng = random.Random(4)
    introduction = b"SyncMe" + b"b" * 100 + b"SyncMe" + b"SyncMe"
    serve_as(control, ["to=100"])
    failures = control_client.fields_of(control.ask("stats"))
    address = (LOOPBACK, server.port(GUEST_PORT))
    for number in range(60):
        time.sleep(CONNECT_PAUSE_SECONDS)
        with contextlib.suppress(OSError), socket.create_connection(address, 10) as stranger:
            stranger.settimeout(0.05)
            garbage = rng.choice(
                [
                    b"GET / HTTP/1.1\r\n\r\n",
                    rng.randbytes(rng.randrange(1, 5000)),
                    b"Sync",
                    b"SyncMe" + rng.randbytes(50),
                    introduction[: rng.randrange(len(introduction))],
                    introduction + struct.pack(">I", rng.choice([0, 1 << 31, 0xFFFFFFFF])),
                    introduction + struct.pack(">I", 0x7FFFFFFF) + b"SyncMe" + b"b" * rng.randrange(20_000),
                ]
            )
            stranger.sendall(garbage)
            if number % 3 == 0:
                stranger.recv(100)
            if number % 5 == 0:  # closed at once by a reset
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    before = len(server.lines)
    done = nptcp(server, ["-u", "100", "-n", "5"], tmp_path / "np.out")
    assert done.returncode == 0, done.stdout + done.stderr
    server.wait_for_line(r"^netpipe: run \d+ finished$", 10, before)
    after = control_client.fields_of(control.ask("stats"))
    grown = {name: int(after[f"netpipe.{name}"]) - int(failures[f"netpipe.{name}"]) for name in ("strangers", "failed", "finished")}
    assert grown["strangers"] >= 5 and grown["failed"] >= 5 and grown["finished"] == 1, grown
