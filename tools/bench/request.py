# SPDX-License-Identifier: BSL-1.0
"""`./neap bench request`: the instructions of a request, by kind, number of connections and size, with their layers.

The model machine (docs/model-machine.md) counts all instructions of all cores while requests arrive: interrupt, driver, network stack,
application, the way into sleep and back. Virtual time repeats to the instruction, so a difference between two builds is a difference of
their code. A repeated string instruction counts once (sim/machine/profile.hpp).

The load decides how many requests share an event. They leave the clients in bursts with equal gaps, and all frames of a burst arrive while
the core wakes up. A burst has a request for each connection, at most 64 frames for each core, which is the driver's budget of an event.
With a depth above 1, the requests of one connection share a frame.

The layers of a row are shown behind the table if `--rows` has its whole name; without `--rows`, those of get.16.

With `--linux`, Debian 12's kernel and memcached are measured beside each row, in the same machine under the same load. Some rows are not
about requests: power-on to listening, and the memory of items and connections (request_memory.py). Two are measured in real time, on
virtio-net beside the 82599 (request_cards.py).
"""

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tools import build
from tools.bench import modelled, request_cards, request_memory
from tools.bench.rows import Row, Selection, aligned, table
from tools.errors import Failure, UsageError
from tools.model import experiment, linux, pair, profile

MODEL = "e5-2690"
BURSTS = 200
GAP_US = 500.0
WARM_UP_MS = 20.0
FRAMES_MAX = 64
KEYS = 100
KEY_BYTES = 16
VALUE_BYTES = 100
WORDS = ("itr=16us",)
UNIT = "instructions a request"
LINUX = "Linux 6.1, memcached 1.6"
# The row whose layers are shown, if no row is asked for by its name, and functions of a layer that are named.
MAIN = "get.16"
FUNCTIONS = 4
PING_PONG = {64: 1600, 8192: 4000, 65536: 20_000}
PING_PONG_WORDS = ("itr=16us", "from=32", "to=64K", "repeats=50")
LISTENING = "listening"


class Measured(Protocol):
    """A row of this benchmark or of another one."""

    @property
    def name(self) -> str: ...
    def experiment(self) -> experiment.Experiment: ...


@dataclasses.dataclass(frozen=True)
class Load:
    """One row. bar: the target. bursts: requests in flight on all connections form one burst. words: of the image's command line; Linux
    has none, so its figure is that of the row `same_as`, without them. moved: the row of cache lines that move between cores for each
    request."""

    name: str
    about: str
    bar: float | None = None
    connections: int = 16
    depth: int = 1
    value_bytes: int = VALUE_BYTES
    update: float = 0.0
    mix: str = "fixed"
    protocol: str = "text"
    cores: int = 1
    gap_us: float = GAP_US
    bursts: int = BURSTS
    keys: int = KEYS
    words: Sequence[str] = ()
    same_as: str = ""
    moved: str = ""

    @property
    def burst(self) -> int:
        return min(self.connections, FRAMES_MAX * self.cores) * self.depth

    def experiment(self) -> experiment.Experiment:
        sizes = [] if self.mix == "etc" else ["--key-size", str(KEY_BYTES), "--update", str(self.update)]
        return experiment.Experiment(
            MODEL,
            load=self.mix,
            rate=self.burst * 1e6 / self.gap_us,
            window_ms=self.bursts * self.gap_us / 1e3,
            warm_up_ms=WARM_UP_MS,
            connections=self.connections,
            depth=self.depth,
            protocol=self.protocol,
            cores=self.cores,
            keys=None if self.mix == "etc" else self.keys,
            value_bytes=None if self.mix == "etc" else self.value_bytes,
            arguments=[*WORDS, *self.words],
            world_options=["--arrivals", f"bursts:{self.burst}:fixed", *sizes],
            profile=True,
        )


LOADS = [
    Load("get.1", "GET 100 B, 1 connection", 1900, connections=1, bursts=1000, gap_us=50),
    Load("get.16", "GET 100 B, 16 connections", 1200),
    Load("get.64", "GET 100 B, 64 connections", 1260, connections=64),
    Load("get.256", "GET 100 B, 256 connections", 1260, connections=256),
    # The gap is so short that a connection asks again before the clients' delayed acknowledgement, which is then no frame of its own.
    Load("get.1024", "GET 100 B, 1024 connections", 1260, connections=1024, gap_us=250),
    Load("get.16.depth_4", "16 connections, 4 requests in a frame", 650, depth=4),
    Load("get.16.depth_16", "16 connections, 16 requests in a frame", 450, depth=16),
    Load("set.1", "SET 100 B, 1 connection", None, connections=1, update=1.0, bursts=1000, gap_us=50),
    Load("set.16", "SET 100 B, 16 connections", 1700, update=1.0),
    Load("etc.16", "ETC, 16 connections", 1500, mix="etc"),
    Load("etc.16.depth_4", "ETC, 16 connections, 4 requests in a frame", None, mix="etc", depth=4),
    Load("binary_get.16", "binary GET, 16 connections", 1200, protocol="binary"),
    Load("binary_set.16", "binary SET, 16 connections", 1700, protocol="binary", update=1.0),
    Load("meta_get.16", "mg with v k O, 16 connections", None, protocol="meta"),
    Load("meta_set.16", "ms with T O, 16 connections", None, protocol="meta", update=1.0),
    Load("get_1_KiB.16", "GET 1 KiB, 16 connections", None, value_bytes=1 << 10),
    Load("get_32_KiB", "GET 32 KiB, 1 connection", 9000, connections=1, value_bytes=32 << 10),
    Load(
        "get_32_KiB.tso_off",
        "the same with tso=off",
        None,
        connections=1,
        value_bytes=32 << 10,
        words=["tso=off"],
        same_as="get_32_KiB",
    ),
    Load(
        "get_1_MiB", "GET 1 MiB - 512 B, 1 connection", 200_000, connections=1, value_bytes=(1 << 20) - 512, gap_us=1e4, bursts=20, keys=4
    ),
    Load(
        "get_1_MiB.tso_off",
        "the same with tso=off",
        None,
        connections=1,
        value_bytes=(1 << 20) - 512,
        gap_us=1e4,
        bursts=20,
        keys=4,
        words=["tso=off"],
        same_as="get_1_MiB",
    ),
    Load("get.500_a_second", "GET 100 B, 500 a second, idle time included", None, connections=1, gap_us=2000),
    *(
        Load(
            f"get.{connections}.cores_{cores}",
            f"GET 100 B, {connections} connections, {cores} cores",
            1260,
            connections=connections,
            cores=cores,
            moved=f"moved_lines.get.{connections}.cores_{cores}",
        )
        for connections, cores in ((64, 2), (32, 2), (64, 4), (128, 8))
    ),
    Load(
        "set.64.cores_4",
        "SET 100 B, 64 connections, 4 cores",
        None,
        connections=64,
        cores=4,
        update=1.0,
        moved="moved_lines.set.64.cores_4",
    ),
]
MOVED_BARS = dict.fromkeys([load.moved for load in LOADS if load.moved and load.update == 0], 0.02)
# The largest cost of several rows, relative to that of the first.
FLAT = {
    "flat.connections": ("get.16", "get.64", "get.256", "get.1024"),
    "flat.cores": ("get.16", "get.32.cores_2", "get.64.cores_4", "get.128.cores_8"),  # 16 connections a core share an event
}
FLAT_BAR = 1.05


@dataclasses.dataclass(frozen=True)
class Cost:
    """One row's result: of a request, and the profile of all. `profile` is None for Linux."""

    instructions: float
    moved_lines: float
    answered: int
    requests_a_wakeup: float
    profile: profile.Profile | None


# The layers of these rows are shown behind the table.
_shown: dict[str, Cost] = {}


def rows(selection: Selection | None = None, image: Path | None = None) -> list[Row]:
    """`image`: a memcached of another build, to compare it with this one. Raises UsageError if no row is selected."""
    selection = selection or Selection()
    flat = {name: parts for name, parts in FLAT.items() if selection.has(name)}
    parts = {part for parts in flat.values() for part in parts}
    loads = [load for load in LOADS if selection.has(load.name) or (load.moved and selection.has(load.moved)) or load.name in parts]
    further = {name: measure for name, measure in FURTHER.items() if selection.has(name)}
    if not loads and not further:
        raise UsageError(f"--rows: no row is named {' or '.join(selection.patterns)}", f"rows: {' '.join(names())}")
    modelled.prepare("memcached")
    measured = image or build.image("memcached", "image")
    system = experiment.System(*linux.image()) if selection.with_linux else None
    with_layers = {load.name for load in loads if load.name in (selection.patterns or [MAIN])}
    peers = [load for load in loads if not load.same_as] if system else []
    runs: list[tuple[Load, Path | experiment.System, bool]] = [(load, measured, load.name in with_layers) for load in loads]
    runs += [(load, system, False) for load in peers]
    costs = modelled.run_each(runs, lambda run: cost(*run)) if runs else []
    ours = dict(zip([load.name for load in loads], costs))
    theirs = dict(zip([load.name for load in peers], costs[len(loads) :]))
    found = []
    for load in loads:
        own, peer = ours[load.name], theirs.get(load.same_as or load.name)
        about = f"{load.about}; {own.requests_a_wakeup:.1f} a wake-up"
        row = Row(f"request.{load.name}", f"{UNIT}, {about}", own.instructions, load.bar, peer and peer.instructions, LINUX if peer else "")
        found.append(row)
        if load.moved:
            found.append(
                Row(f"request.{load.moved}", "cache lines moved between cores, a request", own.moved_lines, MOVED_BARS.get(load.moved))
            )
    for name, rows_of in flat.items():
        largest = max(ours[part].instructions for part in rows_of)
        about = f"the largest of {', '.join(rows_of)}, relative to the first"
        found.append(Row(f"request.{name}", about, largest / ours[rows_of[0]].instructions, FLAT_BAR))
    _shown.clear()
    request_cards.shown.clear()
    _shown.update({name: ours[name] for name in ours if name in with_layers})
    for measure in dict.fromkeys(further.values()):
        found += [row for row in measure(measured) if selection.has(row.name.removeprefix("request."))]
    return found


def names() -> list[str]:
    return [name for load in LOADS for name in (load.name, load.moved) if name] + list(FLAT) + list(FURTHER)


def cost(load: Measured, booted: Path | experiment.System, with_layers: bool = False) -> Cost:
    """Returns the instructions of all cores in the window, divided by the requests answered. Raises Failure if one was not answered."""
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        result = experiment.run(load.experiment(), booted, Path(scratch))
        if result.world["failed"] or not result.answered:
            raise Failure(f"{load.name}: {result.world['failed']} requests failed, {result.answered} were answered")
        file = Path(scratch) / experiment.PROFILE
        instructions, moved = profile.total(file)
        system = booted if isinstance(booted, experiment.System) else experiment.System(booted)
        sites = profile.read(file, system.kernel) if with_layers and not system.is_linux else None
    wakeups = sum(core.wakeups for core in result.cores)
    return Cost(instructions / result.answered, moved / result.answered, result.answered, result.answered / max(wakeups, 1), sites)


def ping_pong(_: Path) -> list[Row]:
    """The instructions of one machine for a message there and back, NetPIPE between two machines."""
    build.build("image", ["netpipe.elf"])
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        result = pair.run(pair.Pairing(MODEL, arguments=list(PING_PONG_WORDS)), build.image("netpipe", "image"), Path(scratch))
    spent = {point.size: point.spent[pair.RECEIVER].instructions / (pair.TRIALS * point.repeats) for point in result.points if point.spent}
    if missing := [size for size in PING_PONG if size not in spent]:
        raise Failure(f"NetPIPE did not measure {missing} bytes")
    unit = "instructions a round trip, at the end that answers"
    return [Row(f"request.ping_pong.{size}", f"{unit}, {size} bytes", spent[size], bar) for size, bar in PING_PONG.items()]


FURTHER: dict[str, Callable[[Path], list[Row]]] = {
    **{f"ping_pong.{size}": ping_pong for size in PING_PONG},
    **{name: request_memory.boot for name in request_memory.BOOT},
    **{name: request_memory.items for name in request_memory.ITEMS},
    **{name: request_memory.connections for name in request_memory.CONNECTIONS},
    request_cards.ON_TAP: request_cards.on_tap,
    request_cards.ON_USER_NETWORK: request_cards.on_user_network,
}


def show(found: Sequence[Row]) -> str:
    return table(found) + "".join(f"\n\n{text}" for text in [*(layers(*shown) for shown in _shown.items()), *request_cards.shown])


def layers(name: str, row: Cost) -> str:
    """The layers of a row, and the largest functions of each."""
    assert row.profile
    cells = [(f"{name}: layer", UNIT, "the largest functions")]
    for layer, count in row.profile.layers().most_common():
        largest = row.profile.functions(layer).most_common(FUNCTIONS)
        said = ", ".join(f"{function.rpartition('::')[2] or function} {counted / row.answered:.0f}" for function, counted in largest)
        cells.append((layer, f"{count / row.answered:.0f}", said))
    return aligned(cells)
