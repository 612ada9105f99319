# SPDX-License-Identifier: BSL-1.0
"""Programs for benchmarks of the load generator: a stock memcached, and runs with measured CPU time."""

import contextlib
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence

from tools.debian import DebianProgram
from tools.errors import Failure
from tools.machine import LOOPBACK, free_port
from tools.process import kill_session, spawn, stop, wait_unreaped, wait_until

LAST_CORE = -1
START_SECONDS = 20.0
PATIENCE_SECONDS = 60.0


def on_core(which: int) -> list[str]:
    """Returns the words in front of a command that bind it to core number `which`; none if the machine has only one core."""
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "--cpu-list", str(cores[which])] if len(cores) > 1 else []


@contextlib.contextmanager
def memcached(mebibytes: int = 256) -> Iterator[str]:
    """Runs stock memcached with one thread, and yields its HOST:PORT."""
    port = free_port()
    argv = [*on_core(0), *DebianProgram("memcached", "memcached").argv, "-l", LOOPBACK, "-p", str(port), "-U", "0", "-t", "1"]
    child = spawn([*argv, "-m", str(mebibytes), "-u", "root"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), 1):
            return True
        return child.poll() is not None

    try:
        if not wait_until(listens, START_SECONDS) or child.poll() is not None:
            raise Failure("stock memcached does not start")
        yield f"{LOOPBACK}:{port}"
    finally:
        stop(child)


def measured(name: str, argv: Sequence[str], before: Sequence[str]) -> tuple[str, float, float]:
    """Runs a program to its end. Returns its output, wall-clock seconds and CPU seconds. Raises Failure."""
    with tempfile.TemporaryFile("w+") as output:
        began = _now()
        child = spawn([*before, *argv], stdout=output, stderr=subprocess.STDOUT)
        try:
            in_time = wait_unreaped(child, PATIENCE_SECONDS)
            seconds = _now() - began
            if in_time:
                _, status, usage = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
        finally:
            kill_session(child)
        output.seek(0)
        text = output.read()
    if not in_time:
        raise Failure(f"{name} does not end within {PATIENCE_SECONDS:.0f} s")
    if child.returncode != 0:
        last = (text.strip().splitlines() or ["no output"])[-1]
        raise Failure(f"{name} ended with status {child.returncode}: {last}", details=text.splitlines()[-10:])
    return text, seconds, usage.ru_utime + usage.ru_stime


def _now() -> float:
    return os.times().elapsed
