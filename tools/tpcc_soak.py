# SPDX-License-Identifier: BSL-1.0
"""`./neap soak tpcc`: transactions of TPC-C on 1, 2 and 4 cores of the host, each round with another seed.

The program (apps/tpcc/soak.cpp) runs the specified mix on several cores, with remote warehouses. Then it repeats all committed transactions
on one thread in the order of their commits, compares all tables, and checks the consistency conditions. Rounds with the sanitizers of
addresses and undefined behaviour alternate with rounds with the thread sanitizer. A failed round prints its words, which repeat it.
"""

import time

from tools import build, progress
from tools.errors import EXIT_FAILURE, Failure
from tools.process import run_logged, tail

PROGRAM = "tpcc_soak"
PRESETS = ("host", "host-thread")
LOG = build.BUILD / "test-results/soak-tpcc.log"
TRANSACTIONS = 100_000
CORES = (1, 2, 4)
ROUNDS = [(preset, cores) for cores in CORES for preset in PRESETS]
ROUND_SECONDS = 3600.0
# For the rounds with the thread sanitizer, which need several gigabytes for each warehouse.
FEW_WAREHOUSES = 2


def soak(minutes: float) -> int:
    """Runs rounds for about `minutes`, at least one for each build and number of cores. Stops at the first failure and returns 1."""
    for preset in PRESETS:
        build.build(preset, [PROGRAM])
    LOG.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * minutes
    seed = first = time.time_ns() % 1_000_000_000
    while seed < first + len(ROUNDS) or time.monotonic() < deadline:
        preset, cores = ROUNDS[(seed - first) % len(ROUNDS)]
        words = [str(build.BUILD / preset / "apps/tpcc" / PROGRAM), str(TRANSACTIONS), str(cores), str(seed)]
        if preset == "host-thread":
            words.append(str(FEW_WAREHOUSES))
        try:
            run_logged(words, LOG, "a round of tpcc_soak", timeout_seconds=ROUND_SECONDS)
        except Failure as failure:
            print("\n".join([f"FAILED tpcc: {' '.join(words)}: {failure}", *tail(LOG, 20)]), flush=True)
            return EXIT_FAILURE
        seed += 1
        progress.say(f"neap: soak: tpcc: {seed - first} rounds of {TRANSACTIONS:,} transactions passed")
    print(f"{seed - first} rounds of {TRANSACTIONS:,} transactions passed", flush=True)
    return 0
