# SPDX-License-Identifier: BSL-1.0
"""`./neap fit`: the published studies' models, fitted to each group of a study's runs (docs/study.md).

Runs under a load with a given rate have models 6.1 to 6.4 and the companion of power (open_loop.py); runs of NetPIPE have 6.5 and 6.6
(closed_loop.py). Each model that the rows do not determine is named with the reason. So are rows that are left out.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tools.bench.rows import aligned
from tools.errors import UsageError
from tools.log.tables import Making
from tools.study import closed_loop, open_loop, runs_table
from tools.study.closed_loop import Link
from tools.study.open_loop import Fit, Options, Unfit
from tools.study.runs_table import Excluded, Runs, drop, group_name

# A lower share of the wanted rate means that the server was saturated: then latency is that of a queue that grows.
RATE_SHARE_MIN = 0.99
MESSAGE_COLUMNS = ("message_bytes", "set_message_bytes", "set_bytes", "set_size")
PING_PONG = re.compile(r"(?:ping_?pong|netpipe)\D*?(\d+)", re.IGNORECASE)
REPLICATES_MAX = 100_000


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The command's options. `latency`: a column; None: p99_us, and p50_us for NetPIPE, whose one-way time that is."""

    latency: str | None = None
    keep_saturated: bool = False
    link: Link = Link()
    options: Options = Options()


@dataclasses.dataclass(frozen=True)
class GroupFits:
    """All models of one group of runs. `places`: the rows of each fit within `runs`."""

    key: dict[str, Any]
    runs: Runs
    fits: list[Fit]
    places: list[np.ndarray]
    unfit: list[Unfit]
    excluded: list[Excluded]

    @property
    def name(self) -> str:
        return group_name(self.key)


def fit(
    places: Sequence[str],
    by: str | None = None,
    where: str | None = None,
    latency: str | None = None,
    replicates: int = 1000,
    seed: int = 1,
    plain_residuals: bool = False,
    keep_saturated: bool = False,
    link_gbps: float = 10.0,
    link_delay_us: float = 0.0,
    residuals: str | None = None,
    as_json: bool = False,
    as_csv: bool = False,
) -> int:
    if not 0 <= replicates <= REPLICATES_MAX:
        raise UsageError(f"--replicates takes 0 to {REPLICATES_MAX}, not {replicates}")
    if not link_gbps > 0 or not link_delay_us >= 0:
        raise UsageError("--link-gbps takes a number above 0, --link-delay-us one from 0")
    if as_json and as_csv:
        raise UsageError("--json and --csv: one of them")
    runs = runs_table.read(places, where)
    wanted = Wanted(latency, keep_saturated, Link(link_gbps, link_delay_us), Options(not plain_residuals, replicates, seed))
    # Threads of a second core need more time for these small matrices than they save.
    with threadpool_limits(1):
        found, excluded = fit_groups(runs, by, wanted)
    if residuals:
        with Making(Path(residuals)) as making:
            making.write_text(residuals_text(found, wanted))
    if as_json:
        print(json.dumps(document(found, excluded, wanted), indent=1))
    elif as_csv:
        print(csv_text(found), end="")
    else:
        print(text(found, excluded, wanted, runs.source, len(runs)))
    return 0


def fit_groups(runs: Runs, by: str | None, wanted: Wanted) -> tuple[list[GroupFits], list[Excluded]]:
    """Raises Failure if a column is missing that all models need."""
    runs.require("itr_us", "frequency_ghz")
    names = runs_table.grouping(runs, by, ("idle", "rapl_w", *runs.further_settings()))
    usable, excluded = runs_table.measured(runs)
    sizes = message_sizes(usable)
    found = []
    for is_ping_pong, fitted in ((False, _open_loop), (True, _closed_loop)):
        part = usable.only(np.isfinite(sizes) == is_ping_pong)
        hidden = ("load", "rate_wanted", *MESSAGE_COLUMNS) if is_ping_pong and by is None else ()
        if len(part):
            found += [fitted(key, group, wanted) for key, group in part.groups([name for name in names if name not in hidden])]
    return found, excluded


def message_sizes(runs: Runs) -> np.ndarray:
    """The message size of NetPIPE's rows: of a column, or of the load's name, like ping_pong.8192. NaN for other rows."""
    for name in MESSAGE_COLUMNS:
        if runs.has(name):
            return runs.numbers(name)
    codes, loads = runs.coded("load")
    matches = (PING_PONG.match(str(load)) for load in loads)
    return np.array([float(match.group(1)) if match else np.nan for match in matches])[codes]


def _settled(runs: Runs, column: str, excluded: list[Excluded], *, with_zero: bool) -> Runs:
    """The rows with fixed settings and a positive value in `column`."""
    runs = drop(runs, np.isnan(runs.numbers("itr_us")), "ITR is adaptive or not known", excluded)
    runs = drop(runs, np.isnan(runs.numbers("frequency_ghz")), "the frequency is a governor's or not known", excluded)
    bad = (runs.numbers("itr_us") < 0) | (runs.numbers("frequency_ghz") <= 0)
    runs = drop(runs, bad, "ITR is negative, or the frequency is not positive", excluded)
    if not with_zero:
        runs = drop(runs, runs.numbers("itr_us") == 0, "ITR is 0, which has no power", excluded)
    return drop(runs, ~(runs.numbers(column) > 0), f"{column} is not known or not positive", excluded)


def _open_loop(key: dict[str, Any], runs: Runs, wanted: Wanted) -> GroupFits:
    excluded: list[Excluded] = []
    column = wanted.latency or "p99_us"
    runs.require(column)
    if not wanted.keep_saturated:
        with np.errstate(divide="ignore", invalid="ignore"):
            share = runs.numbers("rate_reached") / runs.numbers("rate_wanted")
        runs = drop(runs, share < RATE_SHARE_MIN, f"less than {100 * RATE_SHARE_MIN:g} % of the wanted rate was reached", excluded)
    runs = _settled(runs, column, excluded, with_zero=True)
    given = open_loop.points(runs.numbers("itr_us"), runs.numbers("frequency_ghz"), runs.numbers(column))
    latency = open_loop.fit_latency(given, wanted.options, column)
    parts = open_loop.fit_parts(given, wanted.options, column)
    everything = np.arange(len(runs))
    found: list[tuple[Fit | Unfit, np.ndarray]] = [(latency, everything), (parts.interrupt, everything), (parts.work, np.array([], int))]
    found.append(_further(runs, "6.4", _interrupt_j(runs), lambda points: open_loop.fit_energy(points, latency, wanted.options)))
    found.append(_further(runs, "power", runs.numbers("power_w"), lambda points: open_loop.fit_power(points, wanted.options)))
    return _group(key, runs, found, excluded)


def _interrupt_j(runs: Runs) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(runs.numbers("interrupts") > 0, runs.numbers("energy_j") / runs.numbers("interrupts"), np.nan)


def _further(runs: Runs, model: str, values: np.ndarray, fitted) -> tuple[Fit | Unfit, np.ndarray]:
    """A model that takes the logarithm of ITR and of its own column, so that it may lose further rows."""
    itr = runs.numbers("itr_us")
    keep = (itr > 0) & (values > 0)
    if not len(runs):
        return Unfit(model, "there is no row left"), np.array([], int)
    if not keep.any():
        needed = {"6.4": "energy_j and interrupts", "power": "power_w"}[model]
        return Unfit(model, f"no row has {needed}, and an ITR above 0"), np.array([], int)
    made = fitted(open_loop.points(itr[keep], runs.numbers("frequency_ghz")[keep], values[keep]))
    if isinstance(made, Fit) and not keep.all():
        made = dataclasses.replace(made, notes=(*made.notes, f"{int((~keep).sum())} rows without a value or with ITR 0 are left out"))
    return made, np.flatnonzero(keep)


def _closed_loop(key: dict[str, Any], runs: Runs, wanted: Wanted) -> GroupFits:
    excluded: list[Excluded] = []
    column = wanted.latency or "p50_us"
    runs.require(column)
    runs = _settled(runs, column, excluded, with_zero=False)
    sizes, rows = {}, {}
    numbers = message_sizes(runs)
    has_energy = runs.has("energy_uj")
    for number in np.unique(numbers).tolist():
        rows[number] = np.flatnonzero(numbers == number)
        part = runs.only(numbers == number)
        energy = part.numbers("energy_uj") if has_energy and np.all(part.numbers("energy_uj") > 0) else None
        sizes[number] = closed_loop.size(number, part.numbers("itr_us"), part.numbers("frequency_ghz"), part.numbers(column), energy)
    found: list[tuple[Fit | Unfit, np.ndarray]] = []
    for fitted in (closed_loop.fit_times, closed_loop.fit_longer):
        times = {number: fitted(size, wanted.link, wanted.options) for number, size in sizes.items()}
        found += [(times[number], rows[number]) for number in times]
        used = [number for number, one in times.items() if isinstance(one, Fit) and sizes[number].energy_uj is not None]
        energies = closed_loop.fit_energies(sizes, times, wanted.link, wanted.options) if times else Unfit("6.6", "there is no row left")
        found.append((energies, np.concatenate([rows[number] for number in used]) if used else np.array([], int)))
    return _group(key, runs, found, excluded)


def _group(key: dict[str, Any], runs: Runs, found: list[tuple[Fit | Unfit, np.ndarray]], excluded: list[Excluded]) -> GroupFits:
    fits = [(one, rows) for one, rows in found if isinstance(one, Fit)]
    unfit = [one for one, _ in found if isinstance(one, Unfit)]
    return GroupFits(key, runs, [one for one, _ in fits], [rows for _, rows in fits], unfit, excluded)


def text(found: Sequence[GroupFits], excluded: Sequence[Excluded], wanted: Wanted, source: str, rows: int) -> str:
    """For each model a table with a line for each group; then what is not fitted, cautions and the rows that are left out."""
    level = f"{100 * open_loop.least_squares.LEVEL:g} %"
    said = f"intervals of {level} from {wanted.options.replicates} replicates" if wanted.options.replicates else "without intervals"
    parts = [f"{source}: {rows} rows; f in GHz, times in us; {said}"]
    for formula, lines in _tables(found).items():
        parts.append(f"{formula}\n{aligned(lines)}")
    unfit = [(f"{one.model} is not fitted: {one.reason}", group.name) for group in found for one in group.unfit]
    cautions = [(f"{one.model}: {note}", group.name) for group in found for one in group.fits for note in one.notes]
    notes = _gathered(unfit, len(found)) + _gathered(cautions, len(found))
    notes += [f"{one.rows} rows are left out: {one.reason}" for one in excluded]
    notes += [f"{group.name}: {one.rows} rows are left out: {one.reason}" for group in found for one in group.excluded]
    return "\n\n".join(parts + (["\n".join(notes)] if notes else []))


def _gathered(said: Sequence[tuple[str, str]], groups: int) -> list[str]:
    """Texts and the groups that they are about: each text once, with its groups."""
    names: dict[str, list[str]] = {}
    for note, name in said:
        names.setdefault(note, []).append(name)
    return [f"{note} ({'all groups' if len(of) == groups > 1 else '; '.join(of)})" for note, of in names.items()]


def _tables(found: Sequence[GroupFits]) -> dict[str, list[tuple[str, ...]]]:
    tables: dict[str, list[tuple[str, ...]]] = {}
    every = [(one, group) for group in found for one in group.fits]
    for one, group in sorted(every, key=lambda each: each[0].model.split(",")[0]):
        shown = [parameter for parameter in one.parameters if parameter.name != "work" and not parameter.name.startswith("t_work(")]
        heads = tuple(f"{parameter.name} {_unit(parameter.unit)}".strip() for parameter in shown)
        title = f"{one.model}  {one.formula}"
        table = tables.setdefault(title, [("", *heads, "rows", "R2", "residual", "largest residual", "misfit p")])
        cells = [number(parameter.value, parameter.low, parameter.high) for parameter in shown]
        misfit = "-" if one.misfit_p is None else f"{one.misfit_p:.2g}"
        line = (group.name, *cells, str(one.solution.rows), f"{one.solution.r2:.3f}", _size(one), _largest(group, one), misfit)
        if len(line) == len(table[0]):
            table.append(line)
        else:  # other parameters, such as the sum of log gamma and log phi
            tables[f"{title}  ({group.name})"] = [("", *heads, *table[0][-5:]), line]
    return tables


def _unit(unit: str) -> str:
    return unit if unit in ("us", "W", "J/us", "1/GHz", "log W") else ""


def number(value: float, low: float, high: float) -> str:
    """A value and its interval, with as many digits as the interval has a use for."""
    width = (high - low) / 2
    if not math.isfinite(width):
        return f"{value:.4g}"
    digits = max(0, min(6, 1 - math.floor(math.log10(width)))) if width > 0 else 2
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _is_logarithmic(one: Fit) -> bool:
    return one.model in ("6.4", "power")


def _residual(one: Fit, value: float) -> float:
    """A residual as a fraction, or in the unit of the rows. 1 of a logarithm is +172 %."""
    return math.expm1(value) if _is_logarithmic(one) else value


def _size(one: Fit) -> str:
    spread = _residual(one, one.solution.spread)
    return f"{100 * spread:.1f} %" if one.relative or _is_logarithmic(one) else f"{spread:.3g}"


def _largest(group: GroupFits, one: Fit) -> str:
    residuals = one.solution.residuals
    at = int(np.argmax(np.abs(residuals)))
    largest = _residual(one, float(residuals[at]))
    size = f"{100 * largest:+.1f} %" if one.relative or _is_logarithmic(one) else f"{largest:+.3g}"
    rows = group.places[group.fits.index(one)]
    if not len(rows):
        return size
    itr, ghz = group.runs.numbers("itr_us")[rows[at]], group.runs.numbers("frequency_ghz")[rows[at]]
    return f"{size} at {itr:g} us, {ghz:g} GHz"


def document(found: Sequence[GroupFits], excluded: Sequence[Excluded], wanted: Wanted) -> dict[str, Any]:
    return {
        "level": open_loop.least_squares.LEVEL,
        "replicates": wanted.options.replicates,
        "relative_residuals": wanted.options.relative,
        "excluded": [dataclasses.asdict(one) for one in excluded],
        "groups": [
            {
                "group": group.key,
                "fits": [_fit_document(one) for one in group.fits],
                "not_fitted": [dataclasses.asdict(one) for one in group.unfit],
                "excluded": [dataclasses.asdict(one) for one in group.excluded],
            }
            for group in found
        ],
    }


def _fit_document(one: Fit) -> dict[str, Any]:
    return {
        "model": one.model,
        "formula": one.formula,
        "parameters": {p.name: {"value": p.value, "low": _finite(p.low), "high": _finite(p.high), "unit": p.unit} for p in one.parameters},
        "rows": one.solution.rows,
        "settings": one.settings,
        "r2": _finite(one.solution.r2),
        "residual_spread": one.solution.spread,
        "residual_largest": float(np.max(np.abs(one.solution.residuals))),
        "misfit_p": one.misfit_p,
        "correlations": {name: _finite(value) for name, value in one.correlations.items()},
        "notes": list(one.notes),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _csv(lines: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(["" if cell is None else cell for cell in line] for line in lines)
    return out.getvalue()


def csv_text(found: Sequence[GroupFits]) -> str:
    """A line for each parameter."""
    names = list(dict.fromkeys(name for group in found for name in group.key))
    lines: list[list[Any]] = [[*names, "model", "parameter", "unit", "value", "low", "high", "rows", "settings", "r2", "residual_spread"]]
    for group in found:
        key = [group.key.get(name) for name in names]
        for one in group.fits:
            for p in one.parameters:
                told = [one.solution.rows, one.settings, _finite(one.solution.r2), one.solution.spread]
                lines.append([*key, one.model, p.name, p.unit, p.value, _finite(p.low), _finite(p.high), *told])
    return _csv(lines)


def residuals_text(found: Sequence[GroupFits], wanted: Wanted) -> str:
    """A line for each row of each fit."""
    names = list(dict.fromkeys(name for group in found for name in group.key))
    lines: list[list[Any]] = [[*names, "model", "run", "itr_us", "frequency_ghz", "measured", "predicted", "residual"]]
    for group in found:
        key = [group.key.get(name) for name in names]
        run, itr, ghz = group.runs.values("run"), group.runs.numbers("itr_us"), group.runs.numbers("frequency_ghz")
        for one, rows in zip(group.fits, group.places, strict=True):
            measured, predicted = one.solution.measured, one.solution.predicted
            if _is_logarithmic(one):
                measured, predicted = np.exp(measured), np.exp(predicted)
            for at, row in enumerate(rows):
                value = [float(measured[at]), float(predicted[at]), float(one.solution.residuals[at])]
                lines.append([*key, one.model, run[row], float(itr[row]), float(ghz[row]), *value])
    return _csv(lines)
