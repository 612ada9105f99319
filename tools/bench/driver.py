# SPDX-License-Identifier: BSL-1.0
"""`./neap bench driver`: the cost of a frame in the 82599 driver, in instructions of a release image (bench/driver.cpp).

Each event of the driver handles exactly 1, 8 or 32 frames, and the event's instructions are divided by that number. The cost is measured
without a log, and with a log in which each event writes a record.
"""

from tools.bench import instructions
from tools.bench.instructions import Counts
from tools.bench.rows import Row

# Numbers of the regions in bench/driver.cpp.
RECEIVE, TRANSMIT, TAKE_BACK, FORWARD, KINDS = range(5)
BATCHES = (1, 8, 32)
WAYS = {"receive": ((RECEIVE,), 70), "transmit": ((TRANSMIT, TAKE_BACK), 60), "forward": ((FORWARD,), 120)}


def rows() -> list[Row]:
    """Returns a row for each direction, batch and state of the log. The targets are for the largest batch."""
    return read(instructions.run_image("bench_driver", net="loopback"))


def read(counts: Counts) -> list[Row]:
    table = []
    for name, (kinds, target) in WAYS.items():
        for log, words in enumerate(("log_off", "log_on")):
            for place, batch in enumerate(BATCHES):
                group = KINDS * (place + len(BATCHES) * log)
                cost = sum(counts.regions[group + kind].mean for kind in kinds) / batch
                table.append(
                    Row(f"driver.{name}.batch_{batch}.{words}", "instructions a frame", cost, target if batch == BATCHES[-1] else None)
                )
    return table
