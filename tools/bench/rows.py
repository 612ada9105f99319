# SPDX-License-Identifier: BSL-1.0
"""The result of every benchmark: rows with a name, a value, its unit and its target."""

import dataclasses
import fnmatch
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a benchmark's table. `value` is None if it is not available; `unit` then says why. `value` should stay below `target`, if
    any, or reach it with `at_least`. `peer` is the cost of the same step in the peer that `peer_is` names. If `peer` is None, `peer_is` may
    say why."""

    name: str
    unit: str
    value: float | None
    target: float | None = None
    peer: float | None = None
    peer_is: str = ""
    at_least: bool = False

    def fields(self) -> dict[str, str | float | bool | None]:
        """Returns the members for --json, with the peer only if there is one, and with `at_least` only if it is true."""
        names = ["name", "unit", "value", "target"]
        names += ["peer", "peer_is"] if self.peer_is else []
        names += ["at_least"] if self.at_least else []
        return {name: getattr(self, name) for name in names}

    @property
    def bound(self) -> str:
        return ">=" if self.at_least else "<"

    @property
    def missed(self) -> bool:
        if self.target is None:
            return False
        return self.value is None or (self.value < self.target if self.at_least else self.value >= self.target)


@dataclasses.dataclass(frozen=True)
class Selection:
    """The rows to measure: those that match one of the patterns (fnmatch), or all; and whether Linux is measured beside them. Of the
    benchmark `network`: megabytes, seeds: of a transfer, and their number; None: as the row has them. congestion: Linux's algorithm of
    TCP. image_words: for Neap's image. silo: of `tpcc`, a checkout of Silo's source, which is measured too."""

    patterns: Sequence[str] = ()
    with_linux: bool = False
    megabytes: float | None = None
    seeds: int | None = None
    congestion: str = "cubic"
    image_words: Sequence[str] = ()
    silo: str | None = None

    def has(self, name: str) -> bool:
        return not self.patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as aligned columns. Peers have two columns if there are any."""
    cells = [("name", "value", "target", "unit")]
    cells += [
        (row.name, "-" if row.value is None else _number(row.value), "" if row.target is None else f"{row.bound} {row.target:g}", row.unit)
        for row in rows
    ]
    if not any(row.peer_is for row in rows):
        return aligned(cells)
    unit_width = max(len(unit) for *_, unit in cells)
    peers = [("peer", "the peer")] + [
        (f"{row.peer:.0f}" if row.peer is not None else "-" if row.peer_is else "", row.peer_is) for row in rows
    ]
    return aligned([(*others, peer, f"{unit:<{unit_width}}  {what}") for (*others, unit), (peer, what) in zip(cells, peers)])


def _number(value: float) -> str:
    """Ratios and fractions have three decimals, other values one."""
    return f"{value:.3f}" if abs(value) < 2 and value != round(value) else f"{value:.1f}"


def aligned(cells: Sequence[Sequence[str]]) -> str:
    """Aligns the first and the last column to the left, and the columns between them to the right."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    last = len(widths) - 1
    lines = [
        "  ".join(f"{cell:{'<' if column in (0, last) else '>'}{widths[column]}}" for column, cell in enumerate(line)) for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines)
