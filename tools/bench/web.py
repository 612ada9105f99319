# SPDX-License-Identifier: BSL-1.0
"""`./neap bench web`: the instructions of an HTTP request to the web server, all told, and their layers.

The model machine counts them as for `./neap bench request`: from the interrupt to the last frame, with kernel, network, engine and script,
and the way into sleep. The scripts are those of apps/webserver/scripts. Each reply is checked. The rows with 148 bytes have the reply of
the published studies, whose size counts the head. The layers of a row are shown behind the table if `--rows` has its whole name; without
`--rows`, those of hello.1.

With `--linux`, Debian's Node 20 serves the same script on Linux beside each row, in the same machine under the same load. Its compiler
needs some thousand requests until the code is as fast as it gets, so its window begins after WARM_UP_REQUESTS_OF_LINUX.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import build, web_archive
from tools.bench import modelled, request
from tools.bench.rows import Row, Selection, table
from tools.errors import Failure, UsageError
from tools.model import experiment, linux

WARM_UP_MS = 100.0
WARM_UP_REQUESTS_OF_LINUX = 12_000
MEMORY_OF_LINUX = "1G"
LINUX = "Linux 6.1, Node 20"
MAIN = "hello.1"
APPLICATION = "webserver"
# A server that keeps up sleeps after each burst. So it answers few requests more in one go.
BEHIND = 1.5


@dataclasses.dataclass(frozen=True)
class Load:
    """One row. script: of apps/webserver/scripts, and the load's preset. Requests on all connections leave in one burst, whose gap is so
    long that both systems have answered them all. It is shorter than the clients' delay of an
    acknowledgement, except for JSON and for pipelined requests."""

    name: str
    about: str
    script: str
    bar: float | None = None
    connections: int = 16
    depth: int = 1
    gap_us: float = 2000.0
    bursts: int = 200
    warm_up_ms: float = WARM_UP_MS
    memory: str = "512M"

    @property
    def burst(self) -> int:
        return self.connections * self.depth

    def experiment(self) -> experiment.Experiment:
        return experiment.Experiment(
            request.MODEL,
            load=self.script,
            rate=self.burst * 1e6 / self.gap_us,
            window_ms=self.bursts * self.gap_us / 1e3,
            warm_up_ms=self.warm_up_ms,
            memory=self.memory,
            connections=self.connections,
            depth=self.depth,
            protocol="http",
            arguments=request.WORDS,
            world_options=["--arrivals", f"bursts:{self.burst}:fixed"],
            profile=True,
        )

    def of_linux(self) -> "Load":
        warm_up_ms = WARM_UP_REQUESTS_OF_LINUX / self.burst * self.gap_us / 1e3
        return dataclasses.replace(self, warm_up_ms=warm_up_ms, memory=MEMORY_OF_LINUX)


LOADS = [
    Load("hello.1", "hello, 1 connection", "hello", 8000, connections=1, gap_us=250, bursts=1000),
    Load("hello.16", "hello, 16 connections", "hello"),
    Load("148_B.1", "GET, a reply of 148 B, 1 connection", "study", connections=1, gap_us=250, bursts=1000),
    Load("148_B.16", "GET, a reply of 148 B, 16 connections", "study"),
    Load("depth_4", "hello, 16 connections, 4 requests in a frame", "hello", depth=4, gap_us=9000),
    Load("json_1_KiB.16", "POST of JSON of 1 KiB and its echo, 16 connections", "json", gap_us=12_000, bursts=60),
]

# The layers of these rows are shown behind the table.
_shown: dict[str, request.Cost] = {}


def rows(selection: Selection | None = None, image: Path | None = None) -> list[Row]:
    """`image`: a web server of another build, to compare it with this one. Raises UsageError if no row is selected."""
    selection = selection or Selection()
    loads = [load for load in LOADS if selection.has(load.name)]
    if not loads:
        raise UsageError(f"--rows: no row is named {' or '.join(selection.patterns)}", f"rows: {' '.join(names())}")
    modelled.prepare(APPLICATION)
    with_layers = {load.name for load in loads if load.name in (selection.patterns or [MAIN])}
    with tempfile.TemporaryDirectory(prefix="neap-web-") as scratch:
        systems = {script: _system(script, image or build.image(APPLICATION, "image"), Path(scratch)) for script in _scripts(loads)}
        runs = [(load, systems[load.script], load.name in with_layers) for load in loads]
        if selection.with_linux:
            kernel, initramfs = linux.web_image()
            peers = {script: experiment.System(kernel, initramfs, server=linux.web_server(script)) for script in _scripts(loads)}
            runs += [(load.of_linux(), peers[load.script], False) for load in loads]
        costs = modelled.run_each(runs, lambda run: _cost(*run))
    ours = dict(zip([load.name for load in loads], costs))
    theirs = dict(zip([load.name for load in loads], costs[len(loads) :]))
    found = []
    for load in loads:
        own, peer = ours[load.name], theirs.get(load.name)
        about = f"{request.UNIT}, {load.about}; {own.requests_a_wakeup:.1f} a wake-up"
        found.append(Row(f"web.{load.name}", about, own.instructions, load.bar, peer and peer.instructions, LINUX if peer else ""))
    _shown.clear()
    _shown.update({name: cost for name, cost in ours.items() if name in with_layers})
    return found


def names() -> list[str]:
    return [load.name for load in LOADS]


def _cost(load: Load, system: experiment.System, with_layers: bool) -> request.Cost:
    """Raises Failure if the server was busy all the time: then the window has only a part of the requests' work."""
    found = request.cost(load, system, with_layers)
    if found.requests_a_wakeup > BEHIND * load.burst:
        raise Failure(f"{load.name}: the server cannot keep up with a burst every {load.gap_us:g} us")
    return found


def _scripts(loads: Sequence[Load]) -> list[str]:
    return list(dict.fromkeys(load.script for load in loads))


def _system(script: str, image: Path, folder: Path) -> experiment.System:
    """The image with one of the scripts as its boot module."""
    module = folder / f"{script}.archive"
    module.write_bytes(web_archive.of(linux.WEB_SCRIPTS / f"{script}.js"))
    return experiment.System(image, modules=(module,))


def show(found: Sequence[Row]) -> str:
    return table(found) + "".join(f"\n\n{request.layers(name, cost)}" for name, cost in _shown.items())
