# SPDX-License-Identifier: BSL-1.0
"""`./neap pareto`: fronts of latency against energy per request, and the best settings for each SLA (docs/study.md)."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Sequence
from typing import Any

from threadpoolctl import threadpool_limits

from tools.bench.rows import aligned
from tools.errors import UsageError
from tools.study import best_settings, derived, fronts, runs_table
from tools.study.best_settings import Best, Choice, Chooser
from tools.study.fronts import Front, Settings
from tools.study.least_squares import LEVEL
from tools.study.runs_table import Excluded

SLAS_US = (100.0, 200.0, 300.0, 400.0, 500.0)
REPLICATES_MAX = 100_000
MISSING = "-"
BAND_COLUMNS = ("least_energy_uj", "low_uj", "high_uj")
HEADS = {"itr_us": "ITR us", "frequency_ghz": "GHz", "idle": "idle", "rapl_w": "RAPL W"}
# The meaning of a setting without a value.
UNSET = {"itr_us": "adaptive", "frequency_ghz": "governor"}
DERIVED_SHOWN = ("non_idle", "ipc", "edp_uj_ms", "instructions_per_joule")


@dataclasses.dataclass(frozen=True)
class GroupResult:
    group: Settings
    front: Front
    best: list[Best]


def pareto(
    places: Sequence[str],
    by: str | None = None,
    where: str | None = None,
    latency: str | None = None,
    sla: str | None = None,
    default_itr: float | None = None,
    sure: float = best_settings.SURE,
    table: str = "front",
    replicates: int = 1000,
    seed: int = 1,
    keep_saturated: bool = False,
    as_json: bool = False,
    as_csv: bool = False,
) -> int:
    if not 0 <= replicates <= REPLICATES_MAX:
        raise UsageError(f"--replicates takes 0 to {REPLICATES_MAX}, not {replicates}")
    if not best_settings.SURE <= sure < 1:
        raise UsageError(f"--sure takes a share from {best_settings.SURE:g} to less than 1, not {sure:g}")
    if as_json and as_csv:
        raise UsageError("--json and --csv: one of them")
    limits = slas(sla)
    column = latency or "p99_us"
    runs = runs_table.read(places, where)
    excluded: list[Excluded] = []
    found = fronts.groups(runs, by, column, replicates, seed, excluded, keep_saturated)
    # Threads of a second core need more time for these small matrices than they save.
    with threadpool_limits(1):
        results = [evaluate(group, limits, default_itr, sure) for group in found]
    if as_json:
        print(json.dumps(document(results, excluded, column, replicates), indent=1))
    elif as_csv:
        print(csv_text(results, table), end="")
    else:
        print(text(results, excluded, column, default_itr, runs.source, len(runs), replicates))
    return 0


def slas(words: str | None) -> list[float]:
    """The limits of --sla, like 200,500."""
    if words is None:
        return list(SLAS_US)
    try:
        found = [float(word) for word in words.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < value < math.inf for value in found):
        raise UsageError(f"--sla takes latencies in us with commas between them, like 200,500; not {words}")
    return found


def evaluate(group: Settings, limits: Sequence[float], default_itr: float | None, sure: float) -> GroupResult:
    """The group of the result has no replicates any more, because those of many groups would not fit into memory."""
    best = [Chooser(group, limit, sure).best(default_itr) for limit in limits]
    return GroupResult(group.released(), fronts.front_of(group), best)


def text(
    results: Sequence[GroupResult],
    excluded: Sequence[Excluded],
    column: str,
    default_itr: float | None,
    source: str,
    rows: int,
    replicates: int,
) -> str:
    parts = [f"{source}: {rows} rows; {column} against energy_uj, the energy per request; {_bands(results, replicates)}"]
    for result in results:
        group = result.group
        title = f"front of {group.name}: {len(result.front.members)} of {len(group)} settings"
        parts.append(f"{title}\n{aligned(_front_lines(result, column))}")
    if results:
        parts.append(f"least energy within each SLA of {column}\n{aligned(_best_lines(results))}")
        parts.append(f"additional energy of simpler choices\n{aligned(_loss_lines(results, default_itr))}")
    if any(len(best.dvfs_alone) > 1 for result in results for best in result.best):
        parts.append(f"additional energy of DVFS alone, by its fixed ITR in us\n{aligned(_itr_lines(results))}")
    notes = [f"{one.rows} rows are left out: {one.reason}" for one in excluded]
    notes += [f"{one.rows} rows are left out: {one.reason} ({result.group.name})" for result in results for one in result.group.excluded]
    few = [result.group.name for result in results if result.group.has_bands and int(result.group.repeats.min()) < fronts.OWN_REPEATS_MIN]
    if few:
        least = fronts.OWN_REPEATS_MIN
        notes.append(f"settings with fewer than {least} repeats: their scatter is taken from all settings of the group ({'; '.join(few)})")
    return "\n\n".join(parts + (["\n".join(notes)] if notes else []))


def _bands(results: Sequence[GroupResult], replicates: int) -> str:
    """Says where the bands come from."""
    with_bands = [result.group for result in results if result.group.has_bands]
    if not with_bands:
        return "no setting has two repeats, or --replicates is 0: there are no bands" if results else "there is no row left"
    low, high = min(int(group.repeats.min()) for group in with_bands), max(int(group.repeats.max()) for group in with_bands)
    repeats = f"{low}" if low == high else f"{low} to {high}"
    return f"bands of {100 * LEVEL:g} % from {replicates} replicates of {repeats} repeats"


def _setting(group: Settings, place: int) -> list[str]:
    return [shown(name, group.settings[place][name]) for name in _names(group)]


def _names(group: Settings) -> list[str]:
    """The settings that vary, and always ITR and frequency."""
    found = list(group.settings[0]) if len(group) else []
    return [name for name in found if name in ("itr_us", "frequency_ghz") or len(set(group.values(name).tolist())) > 1]


def shown(name: str, value: Any) -> str:
    return UNSET.get(name, MISSING) if value is None else f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _head(name: str) -> str:
    return HEADS.get(name, name.removeprefix("set_"))


def _front_lines(result: GroupResult, column: str) -> list[tuple[str, ...]]:
    group, front = result.group, result.front
    heads = [_head(name) for name in _names(group)]
    figures = [name for name in DERIVED_SHOWN if any(name in one for one in group.figures)]
    lines = [(*heads, column.replace("_us", " us"), "uJ", "on the front", "repeats", *map(_title, figures), "")]
    for place in front.members.tolist():
        one = (fronts.bounds(group.latency_bounds, place), fronts.bounds(group.energy_bounds, place))
        means = _bounded(group.latency_us[place], one[0], 1), _bounded(group.energy_uj[place], one[1], 2)
        cells = [_figure(group.figures[place].get(name)) for name in figures]
        lines.append((*_setting(group, place), *means, _share(front.share[place]), str(group.repeats[place]), *cells, ""))
    return lines


def _title(name: str) -> str:
    return derived.TITLES[name]


def _figure(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}" if value < 1e4 else f"{value:.3e}"


def _best_lines(results: Sequence[GroupResult]) -> list[tuple[str, ...]]:
    names = list(dict.fromkeys(name for result in results for name in _names(result.group)))
    lines: list[tuple[str, ...]] = [
        ("", "SLA us", *map(_head, names), "latency us", "uJ", "within SLA", "is best", "unseen repeat", "within", "")
    ]
    for result in results:
        for best in result.best:
            one = best.best
            if one is None:
                lines.append((result.group.name, f"{best.sla_us:g}", *[MISSING] * (len(names) + 6), "no setting is within this SLA"))
                continue
            setting = result.group.settings[one.place]
            settings = [shown(name, setting[name]) if name in setting else MISSING for name in names]
            latency, energy = _bounded(one.latency_us, one.latency_bounds, 1), _bounded(one.energy_uj, one.energy_bounds, 2)
            unseen = (_loss(best.unseen.loss), _share(best.unseen.meets)) if best.unseen else (MISSING, MISSING)
            lines.append(
                (result.group.name, f"{best.sla_us:g}", *settings, latency, energy, _share(one.meets), _share(one.is_best), *unseen, "")
            )
    return lines


def _bounded(value: float, bounds: tuple[float, float], digits: int) -> str:
    return f"{value:.{digits}f}" + (f" [{bounds[0]:.{digits}f}, {bounds[1]:.{digits}f}]" if math.isfinite(bounds[0]) else "")


def _share(value: float) -> str:
    return MISSING if math.isnan(value) else f"{100 * value:.0f} %"


def _loss(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:+.1f} %"  # + 0.0: no "-0.0"


def _choice(one: Choice | None) -> str:
    if one is None:
        return "none"
    low, high = one.loss_bounds
    return _loss(one.loss) + (f" [{100 * low:+.1f}, {100 * high:+.1f}]" if math.isfinite(low) and one.loss != 0 else "")


def default_of(group: Settings, best: Best, default_itr: float | None) -> float | None | str:
    """The ITR of "DVFS alone": that of --default-itr; else the adaptive one if the group has it; else none ("")."""
    if default_itr is not None:
        return default_itr
    return None if None in best.dvfs_alone and len(best.dvfs_alone) > 1 else ""


def _loss_lines(results: Sequence[GroupResult], default_itr: float | None) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = [("", "SLA us", "second best", "ITR alone", "DVFS alone", "")]
    for result in results:
        for best in result.best:
            if best.best is None:
                continue
            key = default_of(result.group, best, default_itr)
            if isinstance(key, str):
                met = [one for one in best.dvfs_alone.values() if one]
                among = f"{len(met)} of {len(best.dvfs_alone)} ITRs meet it"
                dvfs = f"{_loss(min(one.loss for one in met))} to {_loss(max(one.loss for one in met))}, {among}" if met else "none"
            else:
                dvfs = f"{_choice(best.dvfs_alone.get(key))} at {shown('itr_us', key)}"
            second = _choice(best.second) + (f" at {_where(result.group, best.second)}" if best.second else "")
            lines.append((result.group.name, f"{best.sla_us:g}", second, _choice(best.itr_alone), dvfs, ""))
    return lines


def _where(group: Settings, one: Choice) -> str:
    return ", ".join(f"{shown(name, group.settings[one.place][name])} {_head(name).split()[-1]}" for name in _names(group))


def _itr_lines(results: Sequence[GroupResult]) -> list[tuple[str, ...]]:
    itrs = sorted({itr for result in results for best in result.best for itr in best.dvfs_alone}, key=lambda itr: (itr is None, itr or 0))
    lines: list[tuple[str, ...]] = [("", "SLA us", *(shown("itr_us", itr) for itr in itrs), "")]
    for result in results:
        for best in result.best:
            cells = [MISSING if itr not in best.dvfs_alone else _plain_loss(best.dvfs_alone[itr]) for itr in itrs]
            lines.append((result.group.name, f"{best.sla_us:g}", *cells, ""))
    return lines


def _plain_loss(one: Choice | None) -> str:
    return "none" if one is None else _loss(one.loss)


def document(results: Sequence[GroupResult], excluded: Sequence[Excluded], column: str, replicates: int) -> dict[str, Any]:
    return {
        "latency": column,
        "level": LEVEL,
        "replicates": replicates,
        "excluded": [dataclasses.asdict(one) for one in excluded],
        "groups": [
            {
                "group": result.group.key,
                "settings": [_setting_document(result, place) for place in range(len(result.group))],
                "front": result.front.members.tolist(),
                "band": _band_rows(result),
                "best": [_best_document(best) for best in result.best],
                "excluded": [dataclasses.asdict(one) for one in result.group.excluded],
            }
            for result in results
        ],
    }


def _band_rows(result: GroupResult) -> list[dict[str, float | None]]:
    front = result.front
    curves = zip(front.limits_us, front.least_uj, front.low_uj, front.high_uj, strict=True)
    return [{"latency_us": float(limit), **dict(zip(BAND_COLUMNS, map(_finite, values)))} for limit, *values in curves]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _setting_document(result: GroupResult, place: int) -> dict[str, Any]:
    group = result.group
    bounds = {}
    for name, of in (("latency_us", group.latency_bounds), ("energy_uj", group.energy_bounds)):
        low, high = fronts.bounds(of, place)
        bounds |= {f"{name}_low": _finite(low), f"{name}_high": _finite(high)}
    return {
        **group.settings[place],
        "latency_us": float(group.latency_us[place]),
        "energy_uj": float(group.energy_uj[place]),
        **bounds,
        "repeats": int(group.repeats[place]),
        "on_front": place in result.front.members,
        "on_front_share": _finite(result.front.share[place]),
        **group.figures[place],
    }


def _best_document(best: Best) -> dict[str, Any]:
    return {
        "sla_us": best.sla_us,
        "best": _choice_document(best.best),
        "second_best": _choice_document(best.second),
        "itr_alone": _choice_document(best.itr_alone),
        "dvfs_alone": [{"itr_us": itr, "choice": _choice_document(one)} for itr, one in best.dvfs_alone.items()],
        "unseen_repeat": dataclasses.asdict(best.unseen) if best.unseen else None,
    }


def _choice_document(one: Choice | None) -> dict[str, Any] | None:
    if one is None:
        return None
    found = {"setting": one.place, "latency_us": one.latency_us, "energy_uj": one.energy_uj, "loss": one.loss}
    for name, (low, high) in (("latency_us", one.latency_bounds), ("energy_uj", one.energy_bounds), ("loss", one.loss_bounds)):
        found |= {f"{name}_low": _finite(low), f"{name}_high": _finite(high)}
    return found | {"within_sla_share": _finite(one.meets), "is_best_share": _finite(one.is_best)}


def csv_text(results: Sequence[GroupResult], table: str) -> str:
    """front, settings: a line for each setting (on the front, or all); band: a line for each limit of latency; best: a line for each group,
    SLA and kind of choice."""
    keys = list(dict.fromkeys(name for result in results for name in result.group.key))
    names = list(dict.fromkeys(name for result in results if len(result.group) for name in result.group.settings[0]))
    figures = [name for name in derived.TITLES if any(name in one for result in results for one in result.group.figures)]
    means = ["latency_us", "energy_uj"]
    bounds = [f"{name}_{end}" for name in means for end in ("low", "high")]
    if table == "best":
        shares = ["within_sla_share", "is_best_share"]
        columns = [*keys, "sla_us", "choice", "fixed_itr_us", *names, *means, *bounds, "loss", "loss_low", "loss_high", *shares]
        lines = [line for result in results for best in result.best for line in _best_rows(result, best)]
    elif table == "band":
        columns = [*keys, "latency_us", *BAND_COLUMNS]
        lines = [{**result.group.key, **line} for result in results for line in _band_rows(result)]
    else:
        columns = [*keys, *names, *means, *bounds, "repeats", "on_front", "on_front_share", *figures]
        lines = [line for result in results for line in _setting_rows(result, only_front=table == "front")]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if value is None else value for name, value in line.items()} for line in lines)
    return out.getvalue()


def _setting_rows(result: GroupResult, only_front: bool) -> list[dict[str, Any]]:
    places = result.front.members.tolist() if only_front else range(len(result.group))
    return [{**result.group.key, **_setting_document(result, place)} for place in places]


def _best_rows(result: GroupResult, best: Best) -> list[dict[str, Any]]:
    kinds: list[tuple[str, float | None, Choice | None]] = [("best", None, best.best), ("second_best", None, best.second)]
    kinds += [("itr_alone", None, best.itr_alone), *(("dvfs_alone", itr, one) for itr, one in best.dvfs_alone.items())]
    found = []
    for kind, itr, one in kinds:
        line = {**result.group.key, "sla_us": best.sla_us, "choice": kind, "fixed_itr_us": itr}
        if one is not None:
            line |= {**result.group.settings[one.place], **(_choice_document(one) or {})}
        found.append(line)
    return found
