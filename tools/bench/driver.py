# SPDX-License-Identifier: BSL-1.0
"""`./neap bench driver`: the cost of a frame in the drivers of 82599 and virtio-net, in instructions of a release image (bench/driver.cpp).

Each event of the driver handles exactly 1, 8 or 32 frames, and the event's instructions are divided by that number. The cost is measured
without a log, and with a log in which each event writes a record.
"""

from collections.abc import Mapping

from tools.bench import instructions
from tools.bench.instructions import Counts
from tools.bench.rows import Row

# Numbers of the regions in bench/driver.cpp.
RECEIVE, TRANSMIT, TAKE_BACK, FORWARD, KINDS = range(5)
BATCHES = (1, 8, 32)
WAYS = {"receive": (RECEIVE,), "transmit": (TRANSMIT, TAKE_BACK), "forward": (FORWARD,)}
TARGETS = {"receive": 70, "transmit": 60, "forward": 120}
# The virtio driver checks and writes the checksum of the IPv4 header, which the 82599 does itself.
VIRTIO_TARGETS = {"receive": None, "transmit": None, "forward": 130}


def rows() -> list[Row]:
    """Returns a row for each driver, direction, batch and state of the log. The targets are for the largest batch."""
    return [
        *read(instructions.run_image("bench_driver", net="loopback")),
        *read(instructions.run_image("bench_driver", words=["card=virtio"]), "virtio.driver", VIRTIO_TARGETS),
    ]


def read(counts: Counts, title: str = "driver", targets: Mapping[str, float | None] = TARGETS) -> list[Row]:
    table = []
    for name, kinds in WAYS.items():
        target = targets[name]
        for log, words in enumerate(("log_off", "log_on")):
            for place, batch in enumerate(BATCHES):
                group = KINDS * (place + len(BATCHES) * log)
                cost = sum(counts.regions[group + kind].mean for kind in kinds) / batch
                table.append(
                    Row(f"{title}.{name}.batch_{batch}.{words}", "instructions a frame", cost, target if batch == BATCHES[-1] else None)
                )
    return table
