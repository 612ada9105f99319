# SPDX-License-Identifier: BSL-1.0
"""A core that starts too late never joins, and a machine with fewer cores than it was given says so.

A thread of QEMU's runs each emulated CPU. A debugger may stop one thread of a process: here this test stops a CPU's thread before the
kernel starts the CPU, and lets it go after the kernel has given it up. Firmware starts all CPUs too, and waits for them without a limit. So
the thread is stopped at the image's first instruction, where QEMU's own debugger interface stops the machine.
"""

import ctypes
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.target.images import image_path
from tools.machine import FAILURE, SUCCESS, Machine

# The kernel's limit under a hypervisor (core_start.cpp), and time for a busy host.
LIMIT_SECONDS = 30
PATIENCE_SECONDS = 240
PTRACE_CONT, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 7, 17, 0x4206, 0x4207
YIELDING_NICE = 10
WALL = 0x40000000  # waitpid(2): threads, too
LIBC = ctypes.CDLL(None, use_errno=True)


def ptrace(request: int, thread: int) -> None:
    LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    LIBC.ptrace.restype = ctypes.c_long
    if LIBC.ptrace(request, thread, None, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace request {request:#x}: {os.strerror(number)}")


@contextmanager
def stopped(thread: int) -> Iterator[None]:
    """Stops one thread inside the `with` block. Linux lets only the thread that stopped it let it go, which is this one."""
    ptrace(PTRACE_SEIZE, thread)
    try:
        ptrace(PTRACE_INTERRUPT, thread)
        deadline = time.monotonic() + 20
        while os.waitpid(thread, WALL | os.WNOHANG)[0] == 0:
            assert time.monotonic() < deadline, "the CPU's thread did not stop"
            time.sleep(0.01)
        yield
    finally:
        ptrace(PTRACE_DETACH, thread)


@contextmanager
def yielding(threads: Iterable[int]) -> Iterator[None]:
    """Gives other work on the host priority over these threads inside the `with` block: core 0 polls for the whole limit. Only root can
    give the threads their priority back, so for others nothing changes."""
    before = {thread: os.getpriority(os.PRIO_PROCESS, thread) for thread in threads} if os.geteuid() == 0 else {}
    for thread in before:
        os.setpriority(os.PRIO_PROCESS, thread, YIELDING_NICE)
    try:
        yield
    finally:
        for thread, priority in before.items():
            with suppress(ProcessLookupError):  # the machine may have ended
                os.setpriority(os.PRIO_PROCESS, thread, priority)


def entry_address(image: Path) -> int:
    """The physical address of an ELF64 image's first instruction: its entry, moved as the segment around it (ELF-64 1.5, 3 and 6)."""
    with open(image, "rb") as file:
        header = struct.unpack("<16xHHIQQQIHHHHHH", file.read(64))
        entry, table, size, count = header[3], header[4], header[8], header[9]
        file.seek(table)
        for at in struct.iter_unpack("<IIQQQQQQ", file.read(size * count)):
            if at[0] == 1 and at[3] <= entry < at[3] + at[5]:  # PT_LOAD: p_vaddr, p_paddr, p_filesz
                return entry - at[3] + at[4]
    raise AssertionError(f"{image}: no segment holds the entry")


class Debugger:
    """A client of QEMU's debugger interface (the remote serial protocol of gdb)."""

    def __init__(self, path: Path) -> None:
        self.wire = socket.socket(socket.AF_UNIX)
        self.wire.settimeout(PATIENCE_SECONDS)
        self.wire.connect(str(path))
        self.file = self.wire.makefile("rb")

    def command(self, text: str) -> str:
        """Sends a packet, and returns the answer's text."""
        self.wire.sendall(f"${text}#{sum(text.encode()) % 256:02x}".encode())
        while (byte := self.file.read(1)) != b"$":
            assert byte == b"+", f"{text}: {byte!r} instead of an answer"
        answer = b""
        while (byte := self.file.read(1)) != b"#":
            assert byte, f"{text}: the connection ended in an answer"
            answer += byte
        self.file.read(2)
        self.wire.sendall(b"+")
        return answer.decode()

    def close(self) -> None:
        self.file.close()
        self.wire.close()


@contextmanager
def machine_with_a_held_cpu(image: str, held: int, words: str = "") -> Iterator[Machine]:
    """A machine of four CPUs. The thread of CPU `held` is stopped from the image's first instruction until core 0 has given the CPU up."""
    path = image_path(image)
    with Machine(path, cores=4, memory="256M", card=False, arguments=words.split(), debugger=True) as machine:
        threads = {cpu["cpu-index"]: cpu["thread-id"] for cpu in machine.qmp("query-cpus-fast")}
        debugger = Debugger(machine.debugger_socket)
        breakpoint_there = f"1,{entry_address(path):x},1"
        assert debugger.command(f"Z{breakpoint_there}") == "OK"
        assert debugger.command("c").startswith("T05"), "the machine did not stop at the image's first instruction"
        assert debugger.command(f"z{breakpoint_there}") == "OK"
        with stopped(threads[held]), yielding(threads.values()):
            assert debugger.command("D") == "OK"  # the machine continues
            debugger.close()
            machine.wait_for_line(rf"neap: core {held} of firmware's list \(APIC id {held}\) did not start within 30 s", PATIENCE_SECONDS)
        yield machine


def registers(machine: Machine, cpu: int) -> str:
    """The registers of one CPU, as QEMU's monitor prints them."""
    text = machine.qmp("human-monitor-command", **{"command-line": "info registers -a"})
    return text.split("CPU#")[cpu + 1]


def test_a_machine_that_lacks_a_core_refuses_and_names_it() -> None:
    begin = time.monotonic()
    with machine_with_a_held_cpu("boots", held=2, words="expected_cores=4") as machine:
        assert machine.wait_exit(PATIENCE_SECONDS) == FAILURE
    assert time.monotonic() - begin >= LIMIT_SECONDS, "the core had less than its time"
    console = "\n".join(machine.lines)
    assert "neap: 3 of 4 cores started, so the machine ends" in console
    assert "APIC id 1" not in console and "APIC id 3" not in console, "a late core made others late"
    assert "usable" not in console, "the application ran"


def test_a_core_that_was_given_up_never_joins() -> None:
    """The held core is to be parked, so the machine runs without it. When it starts at last, it finds that it is out, and halts."""
    with machine_with_a_held_cpu("spawns_all_arrive", held=2, words="cores=0,1,3 seconds=8") as machine:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            late = registers(machine, 2)
            if "HLT=1" in late and "RIP=ffffffff8" in late:  # it ran the start-up code, and halted in the image's code
                break
            assert time.monotonic() < deadline, f"the late core did not halt:\n{late}"
            time.sleep(0.2)
        assert machine.wait_exit(PATIENCE_SECONDS) == SUCCESS
    console = "\n".join(machine.lines)
    assert "on 3 cores" in console and "to be parked: it halts if it starts later" in console
    assert "neap: 3 of" not in console, "no core that should run was missing"
