# SPDX-License-Identifier: BSL-1.0
"""`./neap soak kernel`: the kernel's stress images for minutes each, at 1, 2, 4 and 16 cores. An image that loses or leaks fails."""

from __future__ import annotations

import time

from tools import build, progress, qemu, run
from tools.errors import EXIT_FAILURE, UsageError
from tools.machine import SUCCESS, Machine

CORES = (1, 2, 4, 16)
# Each takes the word seconds=N and ends with SUCCESS (tests/target).
IMAGES = (
    "spawns_all_arrive",
    "memory_keeps_its_patterns",
    "timers_by_the_million",
    "table_holds_under_writers",
    "no_wakeup_is_lost",
)
# To boot, and to settle the account afterwards.
SPARE_SECONDS = 900


def soak(minutes: float) -> int:
    """Shares `minutes` out among all images on all numbers of cores: 100 give each five. Goes on after a failure, which makes status 1."""
    if minutes <= 0:
        raise UsageError(f"--minutes takes more than 0, not {minutes:g}")
    run.require_build_packages()
    qemu.command()
    images = [name for name in IMAGES if (build.REPOSITORY / f"tests/target/{name}.cpp").is_file()]
    build.build("image-debug", [f"{name}.elf" for name in images])
    seconds = max(1, round(60 * minutes / (len(images) * len(CORES))))
    failed = 0
    for name in images:
        for cores in CORES:
            failed += not stress(name, cores, seconds)
    print(f"{len(images) * len(CORES) - failed} passed, {failed} failed", flush=True)
    return EXIT_FAILURE if failed else 0


def stress(name: str, cores: int, seconds: int) -> bool:
    """One image on so many cores; says what it came to."""
    image = build.BUILD / "image-debug/tests/target" / f"{name}.elf"
    start = time.monotonic()
    with Machine(image, cores=cores, memory="1G", card=False, arguments=[f"seconds={seconds}"]) as machine:
        status = machine.wait_exit(seconds + SPARE_SECONDS)
    took = progress.duration(time.monotonic() - start)
    said = next((line for line in reversed(machine.lines) if line), "")
    outcome = "passed" if status == SUCCESS else "FAILED"
    progress.say(f"neap: soak: {name} on {cores} {'core' if cores == 1 else 'cores'}: {outcome}, {took}: {said}")
    if status != SUCCESS:
        for line in machine.lines[-30:]:
            print(f"    {line}", flush=True)
    return status == SUCCESS
