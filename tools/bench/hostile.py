# SPDX-License-Identifier: BSL-1.0
"""`./neap bench hostile`: how much each attack of tests/hostile slows the requests of a bystander (another client), on 1, 2 and 4 cores.

The bystander's p99 during the attack is compared with its p99 before and after the attack, in the same run. The host emulates the machine
and runs the attacker as well, so use an otherwise idle host. The bench also counts the bystander's failed or refused requests, new clients
that were not served, and bytes of the heap that are still allocated after the attack.
"""

import json
import os
import sys

from tools import build, progress
from tools.bench.rows import Row
from tools.errors import Failure
from tools.process import finished

CORES = (1, 2, 4)
SECONDS = 5
RATE = 200
RATIO_MAX = 3
RUN_SECONDS = 600


def rows() -> list[Row]:
    build.build_soft_card()
    build.build_load()
    build.build("image", ["memcached.elf"])
    sys.path.insert(0, str(build.REPOSITORY / "tests"))
    from hostile.attacks import ATTACKS  # noqa: PLC0415

    found = []
    for name in ATTACKS:
        for cores in CORES:
            with progress.step(f"{name} on {cores} cores"):
                words = ["--cores", str(cores), "--seconds", str(SECONDS), "--rate", str(RATE), "--calm"]
                found += rows_of(f"{name}.{cores}", attack(name, *words))
    return found


def attack(name: str, *words: str) -> dict:
    """Runs one attack in its own network namespace. Returns its result (tests/hostile/scene.py). Raises Failure."""
    from linux_guest.namespace import Namespace  # noqa: PLC0415

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(build.REPOSITORY), str(build.REPOSITORY / "tests")])}
    with Namespace() as namespace:
        done = finished(namespace.inside([sys.executable, "-m", "hostile", name, *words]), RUN_SECONDS, env=environment)
    if done.returncode:
        raise Failure(f"the attack {name} did not run", details=done.stderr.splitlines()[-10:])
    return json.loads(done.stdout)


def rows_of(name: str, result: dict) -> list[Row]:
    if "broken" in result:
        return [Row(f"{name}.p99_ratio", f"the service broke off: {result['broken']}", None, RATIO_MAX)]
    calm_us = max(result["before"]["p99_us"], result["after"]["p99_us"])
    turned_away = result["during"]["errors"] + len(result["newcomers_failed"])
    return [
        Row(f"{name}.p99_ratio", f"p99 {result['during']['p99_us']:.0f} us / undisturbed", result["during"]["p99_us"] / calm_us, RATIO_MAX),
        Row(f"{name}.turned_away", "requests and newcomers that were not served", turned_away, 1),
        Row(f"{name}.findings", "counts that only this attack takes", sum(result["findings"].values()), 1),
        Row(f"{name}.memory_left", "bytes above the level before", result["memory"]["left"] + sum(result["memory"]["kept"].values()), 1),
    ]
