# SPDX-License-Identifier: BSL-1.0
"""A comparison as text: ratios at a glance, then for each number of cores a table of work, of traffic, and of latency and energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tools.bench.rows import aligned
from tools.compare.figures import BY_NAME, Cell, Estimate, ratio
from tools.compare.plan import Plan
from tools.model.layers import LAYERS

TRAFFIC = ("interrupts", "wakeups", "frames_in", "frames_out", "bytes_in", "bytes_out", "moved_lines")
RESPONSE = ("p50_us", "p99_us", "p999_us", "busy_share", "mhz", "watts", "uj")
AT_A_GLANCE = ("instructions", "p99_us", "uj")
WITH_INTERVAL = ("p50_us", "p99_us", "p999_us", "uj", "watts")
MISSING = "-"


def text(plan: Plan, cells: Mapping[tuple[str, int], Mapping[str, Cell]]) -> str:
    arms = [arm.name for arm in plan.arms]
    parts = [f"ratios to {arms[0]}: instructions / p99 / energy\n{aligned(_overview(cells, arms))}"] if len(arms) > 1 else []
    for cores in sorted({cores for _, cores in cells}):
        rows = {row: found for (row, number), found in cells.items() if number == cores}
        title = f"{cores} core{'s' * (cores != 1)}"
        parts.append(f"{title}: instructions, by layer\n{aligned(_work(rows, arms))}")
        parts.append(f"{title}: interrupts, wake-ups and traffic\n{aligned(_figures(rows, arms, TRAFFIC, ('wakeups',)))}")
        parts.append(f"{title}: latency, power and energy\n{aligned(_figures(rows, arms, RESPONSE, ('p99_us', 'uj')))}")
    return "\n\n".join(parts)


def _overview(cells: Mapping[tuple[str, int], Mapping[str, Cell]], arms: Sequence[str]) -> list[tuple[str, ...]]:
    lines = [("row", "cores", *arms[1:], "")]
    for (row, cores), found in cells.items():
        ratios = [
            " / ".join(_ratio(found[arm], found.get(arms[0]), name) for name in AT_A_GLANCE) if arm in found else MISSING
            for arm in arms[1:]
        ]
        lines.append((row, str(cores), *ratios, ""))
    return lines


def _work(rows: Mapping[str, Mapping[str, Cell]], arms: Sequence[str]) -> list[tuple[str, ...]]:
    cells = [("row", "arm", "instructions", "ratio", *LAYERS, "of")]
    for row, arm, cell, base in _lines(rows, arms):
        layers = [f"{cell.layers[name].mean:.0f}" if name in cell.layers else MISSING for name in LAYERS]
        cells.append((row, arm, _plain(cell, "instructions"), _ratio(cell, base, "instructions"), *layers, f"a {cell.each}"))
    return cells


def _figures(
    rows: Mapping[str, Mapping[str, Cell]], arms: Sequence[str], names: Sequence[str], with_ratio: Sequence[str]
) -> list[tuple[str, ...]]:
    heads = [word for name in names for word in ([_head(name), "ratio"] if name in with_ratio else [_head(name)])]
    cells = [("row", "arm", *heads, "of")]
    for row, arm, cell, base in _lines(rows, arms):
        line = [row, arm]
        for name in names:
            line.append(_plain(cell, name, with_interval=name in WITH_INTERVAL))
            if name in with_ratio:
                line.append(_ratio(cell, base, name))
        cells.append((*line, f"a {cell.each}"))
    return cells


def _head(name: str) -> str:
    figure = BY_NAME[name]
    return f"{figure.title}, {figure.unit}" if figure.unit in ("us", "W", "MHz", "uJ a @", "share") else figure.title


def _lines(rows: Mapping[str, Mapping[str, Cell]], arms: Sequence[str]):
    """Each row's arms in the plan's order: the row's name, the arm, its cell, and the cell of the first arm, the base of ratios."""
    for row, found in rows.items():
        present = [arm for arm in arms if arm in found]
        for arm in present:
            yield row, arm, found[arm], found.get(arms[0])


def _plain(cell: Cell, name: str, *, with_interval: bool = False) -> str:
    found = cell.figures.get(name)
    if found is None:
        return MISSING
    decimals = BY_NAME[name].decimals
    return number(found, decimals) if with_interval else f"{found.mean:.{decimals}f}"


def number(found: Estimate, decimals: int) -> str:
    """The mean, and behind it half of its confidence interval."""
    said = f"{found.mean:.{decimals}f}"
    return f"{said} +-{found.half_width:.{decimals}f}" if found.rounds > 1 else said


def _ratio(cell: Cell, base: Cell | None, name: str) -> str:
    found = ratio(cell, base, name) if base else None
    return MISSING if found is None else f"{found:.2f}"
