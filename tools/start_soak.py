# SPDX-License-Identifier: BSL-1.0
"""`./neap soak starts`: starts a machine of many cores again and again while the host is busy. A machine that runs fewer cores than it was
given, and does not say so, fails.

Each start boots `hello`, in which every core prints a line. A start ends in one of three ways. Full: every core has printed its line.
Refused: the machine ended with FAILURE and named the number of cores that started. Failed: anything else, such as a machine that ran with
fewer cores, or did not end.
"""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from tools import build, progress, qemu, run
from tools.errors import EXIT_FAILURE, Failure, UsageError
from tools.machine import FAILURE, SUCCESS, Machine

APPLICATION = "hello"
STARTS, CORES, BUSY = 50, 16, 8
STARTS_MAX, BUSY_MAX = 100_000, 256
# A core has 30 s to start, and as long again for each later step. Then the machine itself ends.
SECONDS_MAX = 300
HELLO = re.compile(r"hello from core ([0-9]+)")
REFUSED = re.compile(r"neap: ([0-9]+) of ([0-9]+) cores started, so the machine ends")
# Computes until its standard input ends, so it ends with this process, however that ends.
BUSY_PROGRAM = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()
while True: pass
"""
FULL, STATED, FAILED = "full", "refused", "FAILED"


def soak(starts: int = STARTS, cores: int = CORES, busy: int = BUSY) -> int:
    """Starts `starts` machines of `cores` cores, one after the other, while `busy` processes compute. Returns 1 if a start failed."""
    for name, value, least, most in (
        ("--starts", starts, 1, STARTS_MAX),
        ("--cores", cores, 1, run.CORES_MAX),
        ("--busy", busy, 0, BUSY_MAX),
    ):
        if not least <= value <= most:
            raise UsageError(f"{name} takes {least} to {most}, not {value}")
    run.require_build_packages()
    qemu.command()
    build.build("image", [f"{APPLICATION}.elf"])
    outcomes: list[str] = []
    slowest = 0.0
    with busy_loops(busy):
        for number in range(1, starts + 1):
            begin = time.monotonic()
            outcome = start(number, cores)
            slowest = max(slowest, time.monotonic() - begin)
            outcomes.append(outcome)
            progress.say(f"neap: soak: start {number} of {starts}: {outcome}, {time.monotonic() - begin:.1f} s")
    print(
        f"{starts} starts of {cores} cores with {busy} busy processes: {outcomes.count(FULL)} full, {outcomes.count(STATED)} refused, "
        f"{outcomes.count(FAILED)} failed; the slowest took {slowest:.1f} s",
        flush=True,
    )
    return EXIT_FAILURE if FAILED in outcomes else 0


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keeps `count` processes computing inside the `with` block."""
    loops = []
    try:
        for _ in range(count):
            loops.append(subprocess.Popen([sys.executable, "-c", BUSY_PROGRAM], stdin=subprocess.PIPE))
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()
            if loop.stdin:
                loop.stdin.close()


def start(number: int, cores: int) -> str:
    """Boots one machine until it ends. Returns FULL, STATED or FAILED, and prints the console of a start that failed."""
    machine = Machine(build.image(APPLICATION), cores=cores, card=False)
    trouble = ""
    status = None
    try:
        with machine:
            status = machine.wait_exit(SECONDS_MAX)
    except Failure as failure:
        trouble = str(failure)
    outcome = FAILED if trouble else judge(status, machine.lines, cores)
    if outcome == FAILED:
        details = [f"    {line}" for line in machine.lines[-30:]]
        print("\n".join([f"neap: soak: start {number} failed: {trouble or f'status {status}'}", *details]), flush=True)
    elif outcome == STATED:
        progress.say(next(line for line in machine.lines if REFUSED.match(line)))
    return outcome


def judge(status: int | None, lines: Sequence[str], cores: int) -> str:
    """Returns what a machine of `cores` cores that ended with `status` shows by its console."""
    greeted = sorted(int(match.group(1)) for line in lines if (match := HELLO.fullmatch(line)))
    refusals = [match for line in lines if (match := REFUSED.match(line))]
    if status == SUCCESS and greeted == list(range(cores)) and not refusals:
        return FULL
    if status == FAILURE and not greeted and len(refusals) == 1 and int(refusals[0].group(1)) < int(refusals[0].group(2)) == cores:
        return STATED
    return FAILED
