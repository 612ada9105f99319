# SPDX-License-Identifier: BSL-1.0
"""The ready figures of `./neap view STUDY --figure NAME`: each is the counterpart of a figure or a table in the studies.

FIGURES lists them. Those with a curve for each setting are in view_curves.py. The others have a function of their own here.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tools.errors import Failure, UsageError
from tools.foreign import shown
from tools.study import view_timeline
from tools.study.view_columns import KNOWN, LINEAR, LOG
from tools.study.view_curves import CURVES, Figure, curves, needs, scale_of
from tools.study.view_data import Data, Options, front, setting_text, title_of, value_text, varied
from tools.study.view_picture import Cells, Density, Envelope, Level, Line, Made, Panel, Points, Series, Stack, number_text
from tools.study.view_source import Source

STATES = ("c0", "c1", "c1e", "c3", "c6", "c7")
POINTS_DRAWN_MAX = 4000


def make(source: Source, name: str, options: Options) -> Made:
    """Returns a ready figure. Raises UsageError for another name, or a table that lacks what it needs; Failure if no run is left."""
    figure = FIGURES.get(name)
    if figure is None:
        raise UsageError(f"there is no figure '{shown(name, 60)}'", "./neap view --figures lists them")
    if lacks := figure.lacks(source):
        raise UsageError(f"{shown(source.places[0])} has no {lacks.removeprefix('a ')}, which the figure {name} needs")
    data = Data(source, options)
    if not data.query(f"SELECT count(*) AS n FROM runs WHERE {data.where}")[0]["n"]:
        raise Failure("no good run is left", "other filters leave some: --where NAME=VALUE")
    return figure.make(figure, data)


def listing() -> str:
    """Returns a line for each figure."""
    width = max(map(len, FIGURES))
    return "\n".join(f"{each.name:<{width}}  {each.title} ({each.about})" for each in FIGURES.values())


# ---- the best settings ----


def _pareto(figure: Figure, data: Data) -> Made:
    panels, rows = [], []
    names = varied(data)
    for keys in data.panels(("load", "rate_wanted")):
        layers: list[Any] = []
        found = data.by_setting(keys)
        for arm in dict.fromkeys(row.get("arm") for row in found):
            own, series = [row for row in found if row.get("arm") == arm], data.arm_series(arm)
            points = [(row["mean_energy_uj"], row["mean_p99_us"]) for row in own]
            on = front(points)
            chosen = list(dict.fromkeys([*on, *range(0, len(points), max(1, len(points) // POINTS_DRAWN_MAX))]))
            layers.append(Points(dataclasses.replace(series, name=""), [points[at][0] for at in chosen], [points[at][1] for at in chosen]))
            layers.append(Line(series, [points[at][0] for at in on], [points[at][1] for at in on], steps=True))
            for at, row in enumerate(own):
                setting = setting_text(row, data.settings, names)
                rows.append([*keys.values(), arm, setting, *points[at], row["n"], "yes" if at in on else "no"])
        panels.append(Panel(title_of(keys), layers))
    first = data.panels(("load", "rate_wanted"))[0]
    y_values = [row[-3] for row in rows]
    return Made(
        figure.name,
        figure.title,
        panels,
        KNOWN["energy_uj"].label,
        KNOWN["p99_us"].label,
        LINEAR,
        scale_of(y_values),
        [
            "A point is a setting, the mean of its repeats. A line is an arm's Pareto front: no other setting has less of both.",
            *data.notes(),
        ],
        [*first, "arm", "setting", "energy_uj", "p99_us", "runs", "on_front"],
        rows,
    )


def _best(found: Sequence[dict], arm: Any, sla: float | None) -> dict | None:
    """Returns the setting of an arm with the least energy per request among those that meet the limit of p99."""
    own = [row for row in found if row.get("arm") == arm and (sla is None or row["mean_p99_us"] <= sla)]
    return min(own, key=lambda row: row["mean_energy_uj"], default=None)


def _best_settings(figure: Figure, data: Data) -> Made:
    slas, arms, names = data.slas(), data.values_of("arm"), varied(data)
    panels, rows = [], []
    keys_of_all = data.panels(("load", "rate_wanted"))
    for keys in keys_of_all:
        found = data.by_setting(keys)
        values, texts = [], []
        for sla in slas:
            chosen = [_best(found, arm, sla) for arm in arms]
            values.append([row["mean_energy_uj"] if row else math.nan for row in chosen])
            texts.append(
                [
                    (f"{number_text(row['mean_energy_uj'])} uJ", *_two_lines(setting_text(row, data.settings, names)))
                    if row
                    else ("no setting",)
                    for row in chosen
                ]
            )
            for arm, row in zip(arms, chosen):
                if row:
                    rows.append(
                        [*keys.values(), sla, arm, setting_text(row, data.settings, names), row["mean_energy_uj"], row["mean_p99_us"]]
                    )
        panels.append(Panel(title_of(keys), [Cells([str(arm) for arm in arms], [f"{number_text(sla)} us" for sla in slas], values, texts)]))
    note = "A cell has the least energy per request of an arm under the limit, and its setting. Darker is more energy within a panel."
    return Made(
        figure.name,
        figure.title,
        panels,
        "arm",
        "limit of p99",
        notes=[note, *data.notes()],
        header=[*keys_of_all[0], "sla_us", "arm", "setting", "energy_uj", "p99_us"],
        rows=rows,
    )


def _two_lines(text: str) -> tuple[str, ...]:
    parts = text.split(", ")
    return (
        (text,)
        if len(text) < 22 or len(parts) < 2
        else (", ".join(parts[: (len(parts) + 1) // 2]), ", ".join(parts[(len(parts) + 1) // 2 :]))
    )


def _map(y: str) -> Callable[[Figure, Data], Made]:
    def made(figure: Figure, data: Data) -> Made:
        itrs, frequencies = data.values_of("itr_us"), data.values_of("frequency_ghz")
        if len(itrs) > 20 or len(frequencies) > 20:
            raise Failure("a map has at most 20 x 20 settings", "--where itr_us=0..100 chooses some")
        panels, rows = [], []
        # Two maps stand side by side: of one arm at two rates.
        arms = data.values_of("arm")
        keys_of_all = sorted(data.panels(), key=lambda keys: arms.index(keys.get("arm", arms[0])))
        for keys in keys_of_all:
            found = {(row["itr_us"], row["frequency_ghz"]): row for row in data.means(keys, ("itr_us", "frequency_ghz"), y)}
            own_itrs = [itr for itr in itrs if any(at[0] == itr for at in found)]
            own_frequencies = [ghz for ghz in frequencies if any(at[1] == ghz for at in found)]
            values = [[found[itr, ghz]["y"] if (itr, ghz) in found else math.nan for itr in own_itrs] for ghz in own_frequencies]
            texts = [[(number_text(value),) if math.isfinite(value) else () for value in row] for row in values]
            best = min(
                ((value, at, column) for at, row in enumerate(values) for column, value in enumerate(row) if math.isfinite(value)),
                default=None,
            )
            columns = [value_text("itr_us", itr) if itr is None else number_text(itr) for itr in own_itrs]
            lines = [value_text("frequency_ghz", ghz) if ghz is None else number_text(ghz) for ghz in own_frequencies]
            if best:
                panels.append(Panel(title_of(keys), [Cells(columns, lines, values, texts, best[1:])]))
            rows += [[*keys.values(), itr, ghz, row["y"], row["n"]] for (itr, ghz), row in found.items()]
        note = f"A cell is the mean {KNOWN[y].label}. Darker is more within a panel. The frame marks the least of a panel."
        return Made(
            figure.name,
            figure.title,
            panels,
            KNOWN["itr_us"].label,
            KNOWN["frequency_ghz"].label,
            notes=[note, *data.notes()],
            header=[*keys_of_all[0], "itr_us", "frequency_ghz", y, "runs"],
            rows=rows,
        )

    return made


def _by_rate(y: str, baselines: bool) -> Callable[[Figure, Data], Made]:
    """The best setting of each arm at each rate: that with the least energy per request."""

    def made(figure: Figure, data: Data) -> Made:
        panels, rows = [], []
        sla = data.options.slas_us[0] if data.options.slas_us else None
        names = varied(data)
        keys_of_all = data.panels(("load",))
        for keys in keys_of_all:
            found = data.by_setting(keys, ("rate_wanted",), ("p99_us", "energy_uj", "power_w"))
            layers: list[Any] = []
            for arm in data.values_of("arm"):
                best = [
                    (rate, _best([row for row in found if row["rate_wanted"] == rate], arm, sla)) for rate in data.values_of("rate_wanted")
                ]
                known = [(rate, row) for rate, row in best if row and rate is not None]
                layers.append(Line(data.arm_series(arm), [rate for rate, _ in known], [row[f"mean_{y}"] for _, row in known]))
                rows += [
                    [*keys.values(), arm, rate, setting_text(row, data.settings, names), row[f"mean_{y}"], row["mean_p99_us"]]
                    for rate, row in known
                ]
            for number, (name, title) in enumerate((("idle_w", "idle"), ("polling_w", "polling")) if baselines else ()):
                if name in data.source.columns and (each := data.means(keys, (), name)):
                    layers.append(Level(Series(title, colour=7 - 2 * number, dashed=True), each[0]["y"]))
            panels.append(Panel(title_of(keys), layers))
        note = "At each rate, the setting of each arm with the least energy per request" + (
            f" and p99 of at most {number_text(sla)} us." if sla else "."
        )
        return Made(
            figure.name,
            figure.title,
            panels,
            KNOWN["rate_wanted"].label,
            KNOWN[y].label,
            notes=[note, *data.notes()],
            from_zero=True,
            header=[*keys_of_all[0], "arm", "rate_wanted", "setting", y, "p99_us"],
            rows=rows,
        )

    return made


# ---- distributions ----


def _sleep_states(figure: Figure, data: Data) -> Made:
    panels, rows = [], []
    there = [state for state in STATES if state in data.source.columns]
    shades = [
        Series(state.upper() if state != "c0" else "C0 (awake)", colour=at, shade=None if state == "c0" else 0.1 + 0.9 * at / len(STATES))
        for at, state in enumerate(STATES)
    ]
    looks = [dataclasses.replace(shades[STATES.index(state)], colour=1 if state == "c0" else STATES.index(state) + 10) for state in there]
    keys_of_all = data.panels(("arm", "load"))
    for keys in keys_of_all:
        columns = [
            (rate, [row[0]["y"] if (row := data.means({**keys, "rate_wanted": rate}, (), state)) else 0.0 for state in there])
            for rate in data.values_of("rate_wanted")
        ]
        columns = [(rate, [100 * (value or 0.0) for value in values]) for rate, values in columns if any(values)]
        if columns:
            panels.append(
                Panel(
                    title_of(keys),
                    [
                        Stack(
                            [number_text(rate) if rate is not None else "closed loop" for rate, _ in columns],
                            looks,
                            [values for _, values in columns],
                        )
                    ],
                )
            )
        rows += [[*keys.values(), rate, *values] for rate, values in columns]
    if not panels:
        raise Failure("no run has residencies of sleep states")
    return Made(
        figure.name,
        figure.title,
        panels,
        KNOWN["rate_wanted"].label,
        "share of core time (%)",
        notes=["Means over all settings of the panel's runs; --where chooses some.", *data.notes()],
        header=[*keys_of_all[0], "rate_wanted", *(f"{state}_percent" for state in there)],
        rows=rows,
        from_zero=True,
    )


def _distribution(is_tail: bool) -> Callable[[Figure, Data], Made]:
    return lambda figure, data: _latency(figure, data, is_tail)


def _latency(figure: Figure, data: Data, is_tail: bool) -> Made:
    """The share of requests up to a latency, or above it on a logarithmic scale, which shows the tail."""
    panels, rows = [], []
    names = varied(data)
    sla = data.options.slas_us[0] if data.options.slas_us else None
    keys_of_all = data.panels(("load", "rate_wanted"))
    said = []
    for keys in keys_of_all:
        found, layers = data.by_setting(keys), []
        settings = []
        for arm in data.values_of("arm"):
            best = _best(found, arm, sla)
            if best is None:
                continue
            where, values = data.within({**keys, **{name: best[name] for name in ("arm", *data.settings) if name in best}})
            buckets = data.query(
                "SELECT upper_us AS upper, sum(count)::BIGINT AS n FROM histograms "
                f"WHERE run IN (SELECT run FROM runs WHERE {where}) GROUP BY 1 ORDER BY 1",
                values,
            )
            total = sum(row["n"] for row in buckets)
            if not total:
                continue
            below, x, y = 0, [], []
            for row in buckets:
                below += row["n"]
                x.append(row["upper"])
                y.append(100 * (total - below if is_tail else below) / total)
                rows.append([*keys.values(), arm, setting_text(best, data.settings, names), row["upper"], y[-1]])
            if is_tail:
                x, y = x[:-1], y[:-1]  # nothing is above the last bucket, and a logarithmic scale has no 0
            layers.append(Line(data.arm_series(arm), x, y, steps=True, markers=False))
            settings.append(f"{arm}: {setting_text(best, data.settings, names)}")
        said.append(f"{title_of(keys)}{': ' if keys else ''}{'; '.join(settings)}")
        panels.append(Panel(title_of(keys), layers))
    if not any(panel.layers for panel in panels):
        raise Failure("no run of these has a histogram")
    text = f"Settings with the least energy per request{f' and p99 of at most {number_text(sla)} us' if sla else ''}:"
    return Made(
        figure.name,
        figure.title,
        panels,
        "latency (us)",
        f"share of requests {'above' if is_tail else 'up to here'} (%)",
        LOG,
        LOG if is_tail else LINEAR,
        notes=[text, *said, *data.notes()],
        header=[*keys_of_all[0], "arm", "setting", "upper_us", "percent"],
        rows=rows,
        from_zero=not is_tail,
    )


def _timeline(figure: Figure, data: Data) -> Made:
    row = data.options.row
    if row is None:
        found = data.query(f"SELECT min(rowid) AS r FROM runs WHERE {data.where} AND log IS NOT NULL")
        row = found[0]["r"]
        if row is None:
            raise Failure("none of these runs has a log")
    about, arrays = view_timeline.Timelines(data.source).answer(row, view_timeline.View(columns=800))
    span = tuple(about["span"])
    counts = np.zeros(view_timeline.INTERVAL_ROWS * 800)
    counts[arrays["gap_cell"]] = arrays["gap_n"]
    gaps = tuple(1e6 * each for each in about["gap_span"])
    panels = [
        Panel(
            "time since the interrupt before, all cores: number of interrupts (pale: few, dark: many)",
            [Density(counts.reshape(-1, 800), span, gaps)],
            "interval (us)",
            LOG,
            200,
        )
    ]

    def envelope(name: str, series: Series) -> Envelope:
        return Envelope(series, span, *(arrays[f"{name}_{end}"] for end in ("low", "mean", "high")))

    panels.append(Panel("interrupts of a core", [envelope("rate", Series("", 0))], "interrupts/s", LINEAR, 130))
    if about["knows_sleep"]:
        panels.append(Panel("time asleep", [envelope("asleep", Series("", 2))], "% of time", LINEAR, 130, (100.0,)))
    if about["packages"]:
        layers = [
            envelope(f"watts{number}", Series(f"package {number}" if len(about["packages"]) > 1 else "", at))
            for at, number in enumerate(about["packages"])
        ]
        panels.append(Panel("power", layers, "power (W)", LINEAR, 130))
    known = data.source.rows("SELECT * FROM runs WHERE rowid = ?", [row])[0]
    names = [name for name in ("arm", "load", "rate_wanted", *data.settings, "repeat") if known.get(name) is not None]
    said = ", ".join(value_text(name, known[name]) if name != "repeat" else f"repeat {known[name]}" for name in names)
    modelled = [note for note in data.notes() if note.startswith("Modelled")]
    rows = []
    for at in range(800):
        time = span[0] + (at + 0.5) * (span[1] - span[0]) / 800
        rows += [[time, name, *(float(arrays[f"{name}_{end}"][at]) for end in ("low", "mean", "high"))] for name in _strips(about)]
    note = "Pale: from the least to the greatest value of all cores in a pixel's time. Strong: the mean."
    return Made(
        figure.name,
        f"{figure.title}: run {known.get('run') or row}",
        panels,
        "time (s)",
        "",
        notes=[said, note, *modelled],
        header=["time_s", "strip", "least", "mean", "greatest"],
        rows=rows,
        wide=True,
        from_zero=True,
    )


def _strips(about: dict) -> list[str]:
    return ["rate", *(["asleep"] if about["knows_sleep"] else []), *(f"watts{number}" for number in about["packages"])]


_LISTED = [
    *(Figure(each.name, each.title, each.about, needs(each), curves(each)) for each in CURVES),
    Figure(
        "pareto",
        "p99 latency against energy per request, with Pareto fronts",
        "energy and p99 of all settings",
        ("p99_us", "energy_uj", "arm"),
        _pareto,
    ),
    Figure(
        "best-settings",
        "Best setting of each arm under a limit of p99",
        "table of best settings per SLA",
        ("p99_us", "energy_uj", "arm"),
        _best_settings,
    ),
    Figure(
        "energy-map",
        "Energy per request over ITR and frequency",
        "ITR x DVFS grid",
        ("energy_uj", "itr_us", "frequency_ghz"),
        _map("energy_uj"),
    ),
    Figure("latency-map", "p99 latency over ITR and frequency", "ITR x DVFS grid", ("p99_us", "itr_us", "frequency_ghz"), _map("p99_us")),
    Figure(
        "energy-rate",
        "Energy per request against the rate",
        "energy per request by load",
        ("energy_uj", "p99_us", "power_w", "rate_wanted", "arm"),
        _by_rate("energy_uj", False),
    ),
    Figure(
        "power-rate",
        "Power against the rate, with idle and polling",
        "energy proportionality, baselines",
        ("energy_uj", "p99_us", "power_w", "rate_wanted", "arm"),
        _by_rate("power_w", True),
    ),
    Figure("sleep-states", "Time in each sleep state by rate", "residency of C-states by load", ("c0", "rate_wanted"), _sleep_states),
    Figure("latency-cdf", "Distribution of latency", "CDF of latency", ("run", "p99_us", "energy_uj", "arm"), _distribution(False), True),
    Figure(
        "latency-tail",
        "Share of requests above a latency",
        "tail of the latency",
        ("run", "p99_us", "energy_uj", "arm"),
        _distribution(True),
        True,
    ),
    Figure("timeline", "Interrupts, sleep and power over time", "timeline of one run", ("log",), _timeline),
]
FIGURES: dict[str, Figure] = {each.name: each for each in _LISTED}
