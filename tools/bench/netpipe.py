# SPDX-License-Identifier: BSL-1.0
"""`./neap bench netpipe`: Debian's NPtcp against Neap in both roles, with NPtcp's default sweep to 1 MB and its integrity check.

NPtcp prints figures only as the transmitter; Neap prints figures in both roles. So a sweep that NPtcp transmits has two figures, one from
each program's clock. They must be about equal; docs/netpipe.md explains the difference.
"""

import contextlib
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools import build, control_client, packages, progress
from tools.bench.rows import Row, aligned
from tools.errors import Failure
from tools.machine import LOOPBACK, SUCCESS, Machine, free_port
from tools.process import finished, spawn, stop, tail, wait_until

GUEST_PORT = 5003
CONTROL_PORT = 5002
HOST_SEEN_FROM_INSIDE = "10.0.2.2"
LARGEST_BYTES = 1 << 20
START_SECONDS = 60
RUN_SECONDS = 600
CORES = 4
RESULT = re.compile(
    r"^ *(?P<index>\d+): +(?P<bytes>\d+) bytes +(?P<repeats>\d+) times --> +"
    r"(?:(?P<rate>[0-9.]+) Mbps in +(?P<us>[0-9.]+) usec|(?P<checked>Integrity check passed))$"
)
# NetPIPE calls this unit Mbps.
RATE_UNIT = "Mb/s (2^20 bit/s)"
TIME_UNIT = "us one way"


def results(lines: Sequence[str]) -> list[re.Match[str]]:
    return [match for line in lines if (match := RESULT.match(line))]


def netpipe() -> list[Row]:
    packages.require("netpipe")
    build.build_soft_card()
    build.build("image", ["netpipe.elf"])
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="neap-bench-") as directory:
        for checked in (False, True):
            what = "integrity" if checked else "default sweep to 1 MB"
            with progress.step(f"NPtcp transmits, Neap receives: {what}"):
                theirs, ours = nptcp_transmits(checked, Path(directory))
            rows += rows_of("receiver", checked, theirs, ours)
            with progress.step(f"Neap transmits, NPtcp receives: {what}"):
                ours = neap_transmits(checked, Path(directory))
            rows += rows_of("transmitter", checked, [], ours)
    return rows


def nptcp_transmits(checked: bool, directory: Path) -> tuple[list[re.Match[str]], list[re.Match[str]]]:
    """Runs NPtcp as the transmitter. Returns the results of NPtcp and of Neap. Raises Failure if NPtcp does not end with status 0."""
    with Machine(build.image("netpipe"), cores=CORES, forward=[(0, GUEST_PORT), (0, CONTROL_PORT)]) as machine:
        machine.wait_for_line(rf"^netpipe: listening on .*:{GUEST_PORT}$", START_SECONDS)
        if checked:
            with control_client.Control(LOOPBACK, machine.port(CONTROL_PORT)) as connection:
                answer = connection.ask("netpipe,serve,integrity=on,perturbation=0")
            if not answer.startswith("ok"):
                raise Failure(f"Neap does not serve with integrity: {answer}")
        argv = ["NPtcp", "-h", LOOPBACK, "-P", str(machine.port(GUEST_PORT)), "-o", str(directory / "np.out"), "-u", str(LARGEST_BYTES)]
        try:
            done = finished([*argv, *(["-i"] if checked else [])], RUN_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failure(f"NPtcp does not end within {RUN_SECONDS} s", details=machine.lines[-20:]) from None
        if done.returncode != 0:
            raise Failure(f"NPtcp ended with status {done.returncode}", details=[*done.stderr.splitlines()[-10:], *machine.lines[-10:]])
        machine.wait_for_line(r"^netpipe: run \d+ finished$", START_SECONDS)
        return results(done.stderr.splitlines()), results(machine.lines)


def neap_transmits(checked: bool, directory: Path) -> list[re.Match[str]]:
    with nptcp_receives(["-u", str(LARGEST_BYTES), *(["-i"] if checked else [])], directory) as port:
        words = ["mode=client", f"peer={HOST_SEEN_FROM_INSIDE}:{port}", f"to={LARGEST_BYTES}", *(["integrity=on"] if checked else [])]
        # The user network must be able to reach the host, because the peer listens there.
        with Machine(build.image("netpipe"), cores=CORES, arguments=words, outside=True) as machine:
            if machine.wait_exit(RUN_SECONDS) != SUCCESS:
                raise Failure("Neap did not finish its run", details=machine.lines[-20:])
            return results(machine.lines)


@contextlib.contextmanager
def nptcp_receives(options: Sequence[str], directory: Path) -> Iterator[int]:
    """Runs NPtcp as a receiver and yields its port. Raises Failure if NPtcp does not end with success after the measurement."""
    port = free_port()
    path = directory / "nptcp.log"
    with open(path, "wb") as log:
        peer = spawn(["NPtcp", "-P", str(port), *options], stdout=log, stderr=log, cwd=directory)
    try:
        if not wait_until(lambda: listens(port), START_SECONDS):
            raise Failure(f"NPtcp does not listen on {port}", details=tail(path))
        yield port
        if (status := peer.wait(10)) != 0:
            raise Failure(f"NPtcp ended with status {status}", details=tail(path))
    finally:
        stop(peer)


def listens(port: int) -> bool:
    """True if the kernel lists a listener on `port`. NPtcp accepts only one connection, so this check does not connect."""
    local = f"{int.from_bytes(socket.inet_aton('0.0.0.0'), 'little'):08X}:{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1] == local and row[3] == "0A" for row in rows)


def rows_of(role: str, checked: bool, theirs: Sequence[re.Match[str]], ours: Sequence[re.Match[str]]) -> list[Row]:
    """Returns a sweep's rows. `role`: Neap's role. Raises Failure if Neap printed nothing, or the programs printed different sizes."""
    if not ours or (theirs and [match["bytes"] for match in theirs] != [match["bytes"] for match in ours]):
        raise Failure(f"Neap, {role}: {len(theirs)} sizes of NPtcp's and {len(ours)} of Neap's are not the same")
    if checked:
        passed = [("nptcp", theirs)] if theirs else []
        rows = []
        for side, matches in [*passed, ("neap", ours)]:
            count = sum(match["checked"] is not None for match in matches)
            rows.append(Row(f"netpipe.{role}.integrity.{side}.passed", "sizes", count))
            rows.append(Row(f"netpipe.{role}.integrity.{side}.failed", "sizes", len(matches) - count, 1))
        return rows
    return [
        Row(f"netpipe.{role}.{match['bytes']}.{side}.{what}", unit, float(match[field]))
        for side, matches in (("nptcp", theirs), ("neap", ours))
        for match in matches
        for what, unit, field in (("time", TIME_UNIT, "us"), ("rate", RATE_UNIT, "rate"))
    ]


def side_by_side(rows: Sequence[Row]) -> str:
    """Returns the tables of time and of rate, with NPtcp's and Neap's figure for each size, and then the integrity checks."""
    values = {row.name: row.value for row in rows}
    pieces = []
    for role, title in (
        ("receiver", "NPtcp transmits, Neap receives"),
        ("transmitter", "Neap transmits, NPtcp receives (and prints nothing)"),
    ):
        cells = [("bytes", "NPtcp us", "Neap us", "NPtcp Mb/s", "Neap Mb/s", "")]
        for size in sorted({int(name.split(".")[2]) for name in values if name.startswith(f"netpipe.{role}.") and "integrity" not in name}):
            front = f"netpipe.{role}.{size}"
            wanted = [f"{front}.{side}.{what}" for what in ("time", "rate") for side in ("nptcp", "neap")]
            cells.append((str(size), *(f"{values[name]:.2f}" if name in values else "-" for name in wanted), ""))
        pieces.append(f"{title}\n{aligned(cells)}")
    for name, value in values.items():
        if name.endswith("passed"):
            role, side = name.split(".")[1], name.split(".")[3]
            failed = values[name.removesuffix("passed") + "failed"]
            pieces.append(f"integrity, Neap as {role}, checked by {side}: {value:.0f} sizes passed, {failed:.0f} failed")
    return "\n".join(pieces)
