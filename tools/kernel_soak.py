# SPDX-License-Identifier: BSL-1.0
"""`./neap soak kernel`: runs each of the kernel's stress images for minutes, on 1, 2, 4 and 16 cores. An image that loses or leaks anything
fails.

As many machines run at the same time as the host has cores (at most LANES_MAX). Most machines have several vCPUs, so the host must preempt
vCPUs, which exposes races.
"""

import os
import time

from tools import build, progress, qemu, run
from tools.errors import EXIT_FAILURE, Failure
from tools.machine import SUCCESS, Machine

CORES = (1, 2, 4, 16)
# Images of tests/target. Each accepts the word seconds=N and ends with SUCCESS.
IMAGES = ("spawns_all_arrive", "memory_keeps_its_patterns", "timers_by_the_million", "table_holds_under_writers", "no_wakeup_is_lost")
# Time to boot, and to check the totals afterwards.
SPARE_SECONDS = 900
LANES_MAX = 8


def soak(minutes: float) -> int:
    """Runs each image on each number of cores, for about `minutes` in total. After a failure, continues and returns 1 at the end."""
    run.require_build_packages()
    qemu.command()
    build.build("image-debug", [f"{name}.elf" for name in IMAGES])
    cases = [(name, cores) for cores in CORES for name in IMAGES]
    lanes = min(os.cpu_count() or 1, LANES_MAX)
    seconds = max(1, round(60 * minutes * lanes / len(cases)))
    progress.say(
        f"neap: soak: {len(IMAGES)} images on {', '.join(map(str, CORES))} cores, {progress.duration(seconds)} each, {lanes} at a time:"
        f" about {progress.duration(len(cases) / lanes * seconds)}"
    )
    outcomes = run.in_lanes(lambda case: stress(*case, seconds), cases, lanes)
    failed = outcomes.count(False)
    print(f"{len(outcomes) - failed} passed, {failed} failed", flush=True)
    return EXIT_FAILURE if failed else 0


def stress(name: str, cores: int, seconds: int) -> bool:
    """Runs one image on this many cores. Prints the result in one line, and for a failure the end of the console."""
    image = build.BUILD / "image-debug/tests/target" / f"{name}.elf"
    start = time.monotonic()
    machine = Machine(image, cores=cores, memory="1G", card=False, arguments=[f"seconds={seconds}"])
    trouble = ""
    try:
        with machine:
            status = machine.wait_exit(seconds + SPARE_SECONDS)
        if status != SUCCESS:
            trouble = f"ended with status {status}"
    except Failure as failure:
        trouble = str(failure)
    last = next((line for line in reversed(machine.lines) if line), "")
    outcome = f"FAILED ({trouble})" if trouble else "passed"
    took = progress.duration(time.monotonic() - start)
    details = [f"    {line}" for line in machine.lines[-30:]] if trouble else []
    print(
        "\n".join([f"neap: soak: {name} on {cores} {'core' if cores == 1 else 'cores'}: {outcome}, {took}: {last}", *details]), flush=True
    )
    return not trouble
