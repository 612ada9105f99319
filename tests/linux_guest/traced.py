# SPDX-License-Identifier: BSL-1.0
"""A guest with neap-trace: its runs, and the comparison of a log with the driver's and the kernel's counts of the same time."""

from __future__ import annotations

import base64
import contextlib
import io
import re
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools import control_client
from tools.errors import Failure
from tools.log import decode, fetch
from tools.machine import LOOPBACK

from .driver import SERVE, TRAFFIC_PORT
from .guest import LinuxGuest
from .guest_image import GuestImage

CONTROL_PORT = 5002
COUNTED = ("rx_frames", "rx_bytes", "tx_frames", "tx_bytes")
# The driver raises an interrupt of each queue every two seconds (ixgbe_service_task). A comparison in which one came between a count and
# the run's begin or end is done again.
TRIES = 12
# neap-trace decides about the hook for polls each 100 ms, and reads the settings once a second.
HOOK_SECONDS = 30
SNAPSHOT = "ethtool -S eth0 | grep queue_; grep eth0-TxRx /proc/interrupts"


@dataclass(frozen=True)
class Counts:
    """Counts of the driver and the kernel: frames and bytes of all queues, and interrupts of each queue."""

    frames: dict[str, int]
    interrupts: dict[int, int]

    def since(self, before: Counts) -> Counts:
        return Counts(
            {name: value - before.frames[name] for name, value in self.frames.items()},
            {queue: value - before.interrupts[queue] for queue, value in self.interrupts.items()},
        )


@dataclass(frozen=True)
class Comparison:
    log_counts: dict[str, int]
    driver_counts: dict[str, int]
    log_interrupts: dict[int, int]
    kernel_interrupts: dict[int, int]
    unwritten: int

    @property
    def frames(self) -> int:
        return self.log_counts["rx_frames"] + self.log_counts["tx_frames"]


@dataclass
class Traced:
    guest: LinuxGuest
    image: GuestImage

    def start_tracer(self, options: str = "") -> None:
        """Starts neap-trace with control, and waits until it listens."""
        self.end_tracer()
        self.guest.output_of(
            f"setsid neap-trace --listen 0.0.0.0:{CONTROL_PORT} {options} >/tmp/neap-trace.log 2>&1 & pid=$!; "
            "for i in $(seq 600); do grep -q 'control at' /tmp/neap-trace.log && exit 0; "
            "kill -0 $pid 2>/dev/null || break; sleep 0.1; done; cat /tmp/neap-trace.log; exit 1",
            seconds=90,
        )

    def end_tracer(self) -> None:
        ended = "for i in $(seq 200); do kill -0 $pid 2>/dev/null || exit 0; sleep 0.1; done; exit 1"
        self.guest.output_of(f"pid=$(pidof neap-trace) || exit 0; kill $pid; {ended}")

    def ask(self, line: str) -> str:
        with control_client.Control(*address_of(self.guest), answer_seconds=60) as connection:
            answer = connection.ask(line)
        if not answer.startswith("ok"):
            raise Failure(f"neap-trace answered {line} with '{answer}'")
        return answer

    def hooks(self) -> list[str]:
        """Returns the tracepoints to which programs are attached."""
        # The kernel still lists a link that is being removed, and refuses to open it (EAGAIN). Then the list is read again.
        deadline = time.monotonic() + HOOK_SECONDS
        while True:
            listed = self.guest.run("bpftool link", seconds=60)
            if listed.ok:
                return sorted(re.findall(r"tp '(\w+)'", listed.output))
            assert "Resource temporarily unavailable" in listed.output and time.monotonic() < deadline, listed.output

    def await_hooks(self, are_right: Callable[[list[str]], bool]) -> None:
        deadline = time.monotonic() + HOOK_SECONDS
        while not are_right(hooks := self.hooks()):
            assert time.monotonic() < deadline, hooks

    def counts(self) -> Counts:
        return _counts_of(self.guest.output_of(SNAPSHOT))

    def _counts_around(self, line: str) -> tuple[Counts, Counts]:
        """Sends a line to neap-trace by the guest's loopback. Returns the counts before it and after its answer."""
        text = self.guest.output_of(f"{SNAPSHOT}; echo {line} | nc 127.0.0.1 {CONTROL_PORT}; {SNAPSHOT}", seconds=90)
        before, answer, after = re.split(r"^((?:ok|error).*)$", text, maxsplit=1, flags=re.MULTILINE)
        assert answer.startswith("ok"), answer
        return _counts_of(before), _counts_of(after)

    def compare(self, act: Callable[[], object]) -> Comparison:
        """Records a run of `act`, and compares it with the counts around it. No frame or interrupt may fall between the counts and the
        run's begin and end. Otherwise the whole is done again."""
        for _ in range(TRIES):
            before = self._counts_around("start")
            act()
            self.settle()
            after = self._counts_around("stop")
            if before[0] == before[1] and after[0] == after[1]:
                return self._compare(after[0].since(before[0]))
        raise AssertionError(f"in each of {TRIES} runs, interrupts came between the counts")

    def settle(self) -> None:
        """Waits until the counts of frames stand still."""
        before = None
        deadline = time.monotonic() + 60
        while (now := self.counts().frames) != before and time.monotonic() < deadline:
            before = now

    def _compare(self, grown: Counts) -> Comparison:
        with tempfile.TemporaryDirectory() as folder:
            with contextlib.redirect_stdout(io.StringIO()):  # a benchmark's output is its own
                fetch.fetch(address_of(self.guest), Path(folder), token=None, as_json=True)
            run = decode.load([folder])
        logged = dict.fromkeys(COUNTED, 0)
        interrupts = dict.fromkeys(grown.interrupts, 0)
        for core in run.cores:
            records = core.records
            for name in COUNTED:
                logged[name] += int(records[name][records["kind"] != decode.START].sum())
            for queue in interrupts:
                interrupts[queue] += int(((records["kind"] == decode.INTERRUPT) & (records["queue"] == queue)).sum())
        return Comparison(logged, grown.frames, interrupts, grown.interrupts, sum(core.header.unwritten for core in run.cores))

    def copy(self, folder: str, out: Path) -> None:
        """Copies the log files of a folder in the guest."""
        text = self.guest.output_of(f"cd {folder} && tar c core*.log | gzip | base64", seconds=60)
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(text)), mode="r:gz") as archive:
            archive.extractall(out, filter="data")


def _counts_of(text: str) -> Counts:
    frames = dict.fromkeys(COUNTED, 0)
    for direction, unit, value in re.findall(r"(rx|tx)_queue_\d+_(packets|bytes): (\d+)", text):
        frames[f"{direction}_{'frames' if unit == 'packets' else 'bytes'}"] += int(value)
    interrupts = {}
    for numbers, queue in re.findall(r"^ *\d+:((?: +\d+)+) .*eth0-TxRx-(\d+)$", text, re.MULTILINE):
        interrupts[int(queue)] = sum(map(int, numbers.split()))
    return Counts(frames, interrupts)


def address_of(guest: LinuxGuest) -> tuple[str, int]:
    return LOOPBACK, guest.port(CONTROL_PORT)


def fetched(address: tuple[str, int], core: int) -> bytes:
    """Returns what `echo get,CORE | socat -t 10 - TCP4:...` writes: the client ends its side behind the line."""
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(f"get,{core}\n".encode())
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def traffic(traced: Traced, *, seconds: int, flows: int, way: str = "up") -> None:
    """Sends TCP streams into the guest, or out of it with `way` "down"."""
    # QEMU accepts a connection before the guest does, and resets it if nothing listens there yet.
    listens = f"netstat -ltn | grep -q ':{TRAFFIC_PORT} '"
    traced.guest.output_of(f"{SERVE}; for i in $(seq 100); do {listens} && exit 0; sleep 0.1; done; exit 1")
    port = str(traced.guest.port(TRAFFIC_PORT))
    words = [str(traced.image.traffic), way, LOOPBACK, port, str(seconds), str(flows), "unchecked"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=seconds + 120)
