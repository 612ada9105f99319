# SPDX-License-Identifier: BSL-1.0
"""`./neap bench network`: transfers over bad links, Neap against Linux beside Linux to Linux on the same link.

Each row is a link. `out`: the server sends, `in`: it receives. The server is Neap or Linux, and the client is Linux in both cases. The
machines are modelled and time is virtual (tools/model/transfer.py), so the host's speed changes nothing, and a seed repeats its losses.
The value of a row is the bytes of its transfers by the sum of their seconds, which is the harmonic mean over the seeds. The ratio is that
of the values, and it should be at least TARGET. A transfer fails if the sums of the bytes at both ends differ, and its row then misses the
target.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.bench import modelled
from tools.bench.rows import Row, Selection, aligned
from tools.errors import Failure, UsageError
from tools.model import transfer
from tools.model.experiment import System
from tools.model.transfer import MTU_USUAL, Network, Outcome, Setting, Transfer

TARGET = 0.95
DIRECTIONS = ("out", "in")
ARMS = ("neap", "linux")
MEGABYTES_MAX = 10_000


@dataclasses.dataclass(frozen=True)
class Link:
    """A row. megabytes: of a transfer; docs/bad-links.md says how each was found. seeds: without losses by chance, one is enough. mtu: of
    Linux. neap_words: further words of the image."""

    about: str
    network: Network
    megabytes: float = 10
    seeds: int = 1
    mtu: int = MTU_USUAL
    neap_words: Sequence[str] = ()


LINKS = {
    "clean": Link("no impairment", Network(), megabytes=5),
    "loss_0.1": Link("loss 0.1 %", Network(loss=0.001), seeds=3),
    "loss_1": Link("loss 1 %", Network(loss=0.01), megabytes=20, seeds=3),
    "loss_5": Link("loss 5 %", Network(loss=0.05), megabytes=10, seeds=36),
    "reorder_5": Link("reordering 5 %, by up to 2 ms", Network(reorder=0.05), seeds=3),
    "duplicate_2": Link("duplication 2 %", Network(duplicate=0.02), megabytes=5, seeds=3),
    "delay_10": Link("delay 10 ms", Network(delay_ms=10), megabytes=50),
    "delay_50": Link("delay 50 ms", Network(delay_ms=50), megabytes=100),
    "delay_50_gbit": Link("delay 50 ms, 1 Gbit/s", Network(delay_ms=50, rate_mbps=1000), megabytes=100),
    "delay_50_loss_1": Link("delay 50 ms, loss 1 %", Network(delay_ms=50, loss=0.01), megabytes=20, seeds=5),
    "mtu_576": Link("MTU 576", Network(), megabytes=5, mtu=576),
    "mtu_9000": Link("MTU 9000", Network(), megabytes=5, mtu=9000, neap_words=("mtu=9000",)),
}


@dataclasses.dataclass(frozen=True)
class Run:
    """One boot of an arm: links with equal settings of the machines, and transfers in both directions for each seed."""

    arm: str
    links: tuple[str, ...]

    def steps(self, seeds: int | None, megabytes: float | None) -> list[Transfer]:
        """None: as each row has it."""
        found = []
        for name in self.links:
            link = LINKS[name]
            count = round((megabytes or link.megabytes) * 1e6)
            for direction, seed in itertools.product(DIRECTIONS, seeds_of(name, seeds)):
                found.append(Transfer(step_name(name, direction, seed), link.network, direction == "out", count, seed))
        return found


def seeds_of(link: str, seeds: int | None) -> range:
    return range(1, (LINKS[link].seeds if seeds is None else seeds) + 1)


def step_name(link: str, direction: str, seed: int) -> str:
    return f"{link}.{direction}.{seed}"


def runs_of(links: Sequence[str]) -> list[Run]:
    """Linux needs longer to boot than most transfers take, so as few boots as there are settings."""
    alike: dict[tuple, list[str]] = {}
    for name in links:
        alike.setdefault((LINKS[name].mtu, tuple(LINKS[name].neap_words)), []).append(name)
    return [Run(arm, tuple(names)) for names in alike.values() for arm in ARMS]


def chosen(selection: Selection) -> list[str]:
    """The links with a row that the patterns name. Raises UsageError if there is none."""
    found = [name for name in LINKS if any(selection.has(f"{name}.{direction}") or selection.has(name) for direction in DIRECTIONS)]
    if not found:
        raise UsageError(f"no row of the benchmark network matches {' or '.join(selection.patterns)}", f"rows: {' '.join(LINKS)}")
    return found


def rows(selection: Selection) -> list[Row]:
    seeds = selection.seeds
    if seeds is not None and not 1 <= seeds <= 1000:
        raise UsageError(f"--seeds takes a number from 1 to 1000, not {seeds}")
    if selection.megabytes is not None and not 0.001 <= selection.megabytes <= MEGABYTES_MAX:
        raise UsageError(f"--megabytes takes a number from 0.001 to {MEGABYTES_MAX}, not {selection.megabytes:g}")
    setting = Setting(congestion=selection.congestion, neap_words=words(selection.image_words, selection.congestion))
    setting.check()
    links = chosen(selection)
    modelled.prepare()
    image = transfer.neap_system()
    transfer.program()
    runs = runs_of(links)
    found = modelled.run_each(runs, lambda one: measure(one, setting, image, seeds, selection.megabytes))
    outcomes = {(one.arm, name): outcome for one, all_of_run in zip(runs, found, strict=True) for name, outcome in all_of_run.items()}
    return rows_of(links, outcomes, setting.congestion, seeds)


def words(given: Sequence[str], congestion: str) -> list[str]:
    """The words of the image: those of `./neap compare` and Linux's congestion control, with `given` in their place."""
    names = {word.partition("=")[0] for word in given}
    return [*(word for word in (*transfer.NEAP_WORDS, f"tcp_congestion={congestion}") if word.partition("=")[0] not in names), *given]


def measure(one: Run, setting: Setting, image: System, seeds: int | None, megabytes: float | None) -> Mapping[str, Outcome]:
    """The outcomes of one boot by name. If the run ended early, the transfers that it had not finished have failed for that reason."""
    link = LINKS[one.links[0]]
    wanted = dataclasses.replace(setting, mtu=link.mtu, neap_words=[*setting.neap_words, *link.neap_words])
    steps = one.steps(seeds, megabytes)
    console: list[str] = []

    def on_line(role: str, line: str) -> None:
        if role == transfer.CLIENT:
            console.append(line)

    try:
        with tempfile.TemporaryDirectory(prefix="neap-network-") as scratch:
            return transfer.run(wanted, image if one.arm == "neap" else None, steps, Path(scratch), on_line).outcomes
    except Failure as failure:
        return transfer.outcomes(steps, console, failure.message)


def rows_of(links: Sequence[str], found: Mapping[tuple[str, str], Outcome], congestion: str, seeds: int | None) -> list[Row]:
    """Two rows for each link and direction: the goodput of Neap with that of Linux as its peer, and the ratio. `found`: by arm and name."""
    made = []
    for link, direction in itertools.product(links, DIRECTIONS):
        rates: dict[str, float | None] = {}
        why = spread = ""
        for arm in ARMS:
            outcomes = [found[arm, step_name(link, direction, seed)] for seed in seeds_of(link, seeds)]
            failed = next((one.failed for one in outcomes if one.failed), "")
            if failed:
                why = why or f"{arm}: {failed}"
            values = [one.mbps for one in outcomes if not one.failed]
            rates[arm] = statistics.harmonic_mean(values) if values and not failed else None
            if arm == "neap" and len(values) > 1:
                spread = f", {min(values):.1f} to {max(values):.1f}"
        neap, linux = rates["neap"], rates["linux"]
        unit = f"Mbit/s: {LINKS[link].about}{spread}"
        ratio = neap / linux if neap is not None and linux else None
        peer_is = f"Linux, {congestion}"
        made.append(Row(f"{link}.{direction}.mbps", unit, neap, None, linux, peer_is))
        made.append(Row(f"{link}.{direction}.ratio", why or f"of the goodput of Linux, {congestion}", ratio, TARGET, at_least=True))
    return made


def show(found: Sequence[Row]) -> str:
    """One line for each link."""
    values = {row.name: row for row in found}
    links = [name for name in LINKS if f"{name}.out.mbps" in values]
    title = "Mbit/s of virtual time, 100 Mbit/s unless the row says otherwise; out: Neap sends, in: Neap receives"
    cells: list[tuple[str, ...]] = [("link", "out: Neap", "Linux", "ratio", "in: Neap", "Linux", "ratio", "")]
    for name in links:
        cell = [LINKS[name].about]
        notes = []
        for direction in DIRECTIONS:
            rate, ratio = values[f"{name}.{direction}.mbps"], values[f"{name}.{direction}.ratio"]
            cell += [_number(rate.value), _number(rate.peer), "-" if ratio.value is None else f"{ratio.value:.2f}"]
            if ratio.value is None:
                notes.append(f"{direction}: {ratio.unit}")
            elif ratio.missed:
                notes.append(f"{direction} below {TARGET}")
        cells.append((*cell, "; ".join(notes)))
    peer = next((row.peer_is for row in found if row.peer_is), "Linux")
    return f"{title}; {peer}\n{aligned(cells)}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
