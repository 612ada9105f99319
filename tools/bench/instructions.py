# SPDX-License-Identifier: BSL-1.0
"""`./neap bench observe` and `request`: what things cost, in instructions of the guest.

Time on an emulated machine says nothing about real ones; instructions do not depend on the machine's mood. They are counted by a plugin
of QEMU (bench/instruction_counter.c), in release images: between two marks of an image from bench/, or over a whole run.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import build, progress, qemu_plugin
from tools.bench.rows import Row
from tools.control import Control
from tools.errors import Failure
from tools.machine import LOOPBACK, SUCCESS, Machine

COUNTER_SOURCE = build.REPOSITORY / "bench/instruction_counter.c"
RUN_SECONDS = 300
LIVE_BYTES = 256 * 64
GETS, VALUE_BYTES = 5_000, 100
LONG_GETS, LONG_VALUE_BYTES = 500, 32 << 10
ANSWER_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class Region:
    """What was counted between two marks. The median is of the first 16,384 visits."""

    visits: int
    instructions: int
    least: int
    median: int
    most: int

    @property
    def mean(self) -> float:
        return self.instructions / self.visits


@dataclasses.dataclass(frozen=True)
class Counts:
    """Instructions of a run: by CPU, and by region."""

    cpus: tuple[int, ...]
    regions: dict[int, Region]


def observe() -> list[Row]:
    """What the log's calls cost the core that makes them, a release image, 10,000 times each.

    Not among them: a record with a sample. The emulated CPU has no counters, so that none is ever written here.
    """
    counts = run_image("bench_observe")
    require_exact(counts)
    # The numbers of bench/observe.cpp.
    names = {
        3: ("observe.record", 60),
        2: ("observe.record_without_a_run", None),
        6: ("observe.poll_record", None),
        5: ("observe.sleep", None),
        7: ("observe.record_and_sleep", None),
        4: ("observe.record_with_control_traffic", 60),
        8: ("observe.count_control_frame", None),
    }
    rows = []
    for number, (name, target) in names.items():
        region = counts.regions[number]
        rows += [
            Row(name, "instructions, mean", region.mean, target),
            Row(f"{name}.median", "instructions", region.median, target),
            Row(f"{name}.most", "instructions", region.most),
        ]
    return rows


def request() -> list[Row]:
    """A memcached GET over the soft card, one connection, one request at a time: all that the machine executes for it.

    A long reply in each form of segmentation; an answer's acknowledgements are part of it, and how many those are is the user network's.
    """
    build.build_soft_card()
    build.build("image", ["memcached.elf"])
    with tempfile.TemporaryDirectory(prefix="neap-bench-") as directory:
        live = Path(directory) / "live"
        options = counter_options(Path(directory) / "counts.json", live)
        with Machine(build.image("memcached"), forward=[(0, 11211), (0, 5002)], qemu_options=options) as machine:
            machine.wait_for_line(r"memcached: listening on", RUN_SECONDS)
            with socket.create_connection((LOOPBACK, machine.port(11211)), timeout=ANSWER_SECONDS) as client:
                rows = [Row("request.get", "instructions a request, 1 connection, depth 1", get_cost(client, live, VALUE_BYTES, GETS))]
                for form in ("off", "copy", "chain"):
                    with Control(LOOPBACK, machine.port(5002)) as control:
                        if not (answer := control.ask(f"tso,{form}")).startswith("ok "):
                            raise Failure(f"tso,{form} was answered by {answer}")
                    short = get_cost(client, live, VALUE_BYTES, GETS)
                    long = get_cost(client, live, LONG_VALUE_BYTES, LONG_GETS)
                    rows += [
                        Row(f"request.get.tso_{form}", "instructions a request, the same", short),
                        Row(f"request.get_32_KiB.tso_{form}", "instructions a request, the same", long),
                    ]
    return rows


def get_cost(client: socket.socket, live: Path, value_bytes: int, gets: int) -> float:
    """Instructions that a GET of so many bytes takes, warm."""
    value = b"v" * value_bytes
    exchange(client, b"set key 0 0 %d\r\n%s\r\n" % (len(value), value), b"STORED\r\n")
    answer = b"VALUE key 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)
    for count in (gets // 10, gets):  # first warm
        before = executed(live)
        for _ in range(count):
            exchange(client, b"get key\r\n", answer)
    return (executed(live) - before) / count


def exchange(client: socket.socket, ask: bytes, expected: bytes) -> None:
    """Sends and reads the whole answer. Raises Failure if it is another."""
    client.sendall(ask)
    answer = b""
    while len(answer) < len(expected):
        data = client.recv(65536)
        if not data:
            break
        answer += data
    if answer != expected:
        raise Failure(f"memcached answered {answer[:80]!r} to {ask[:80]!r}")


def require_exact(counts: Counts) -> None:
    """The image runs a thousand NOPs between marks, and a string instruction (with what loads its registers) over 1 to 694 bytes."""
    nops, string = counts.regions[0], counts.regions[1]
    if (nops.least, nops.most) != (1000, 1000):
        raise Failure(f"the instruction counter is wrong: {nops.least} to {nops.most} where 1000 ran")
    if string.least != string.most or string.most > 10:
        raise Failure(f"the instruction counter counts repetitions: {string.least} to {string.most} for one string instruction")


def run_image(name: str, preset: str = "image", words: Sequence[str] = (), cores: int = 1, net: str | None = None) -> Counts:
    """Builds an image of bench/, boots it, counts, and waits for its end. Raises Failure if it does not end well.

    net: the soft card's --net; None: the machine has no card.
    """
    if net is not None:
        build.build_soft_card()
    build.build(preset, [f"{name}.elf"])
    image = build.BUILD / preset / "bench" / f"{name}.elf"
    with tempfile.TemporaryDirectory(prefix="neap-bench-") as directory:
        out = Path(directory) / "counts.json"
        with progress.step(f"counting instructions of {name}"):
            machine = Machine(
                image,
                cores=cores,
                memory="256M",
                card=net is not None,
                net=net or "none",
                arguments=words,
                qemu_options=counter_options(out),
            )
            with machine:
                status = machine.wait_exit(RUN_SECONDS)
            if status != SUCCESS:
                raise Failure(f"{name} ended with status {status}", details=machine.lines[-20:])
        return read_counts(out)


def counter_options(out: Path, live: Path | None = None, skip: Sequence[tuple[int, int]] = ()) -> list[str]:
    """QEMU's words for counting into the file `out` when it ends, and all the time into `live` (see `executed`).

    skip: ranges of addresses [low, high) whose instructions do not count, an idle loop that spins for one.
    """
    words = [f"out={out}", *([f"live={live}"] if live else []), *(f"skip={low:x}:{high:x}" for low, high in skip)]
    return qemu_plugin.option(qemu_plugin.library(COUNTER_SOURCE), *words)


def executed(live: Path) -> int:
    """The instructions that all CPUs of a running machine have executed up to now."""
    return sum(struct.unpack_from("<Q", live.read_bytes(), offset)[0] for offset in range(0, LIVE_BYTES, 64))


def read_counts(path: Path) -> Counts:
    """Reads what the counter wrote when QEMU ended."""
    try:
        written = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise Failure(f"the instruction counter wrote nothing: {error}") from None
    regions = {}
    for number, fields in written["regions"].items():
        if fields.pop("unmatched") or not fields["visits"]:
            raise Failure(f"region {number} of the image ends without a beginning")
        regions[int(number)] = Region(**fields)
    return Counts(tuple(written["cpus"]), regions)
