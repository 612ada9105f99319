# SPDX-License-Identifier: BSL-1.0
"""`./neap tune`: the setting of least power within an SLA, from few trials, on a table or on a machine (docs/study.md)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from threadpoolctl import threadpool_limits

from tools import progress
from tools.errors import Failure, UsageError
from tools.study import runs_table, tune_day, tune_grid, tune_live, tune_report, tune_rows, tune_table
from tools.study.runs_table import Excluded
from tools.study.schema import SET
from tools.study.tune_day import Day, Hour
from tools.study.tune_grid import FREQUENCY, ITR, Axis, Grid
from tools.study.tune_live import Measured, Offered, Plant, Setting
from tools.study.tune_run import Search, search
from tools.study.tune_table import Table, modes
from tools.study.tuner import ENERGY, POWER, Goal

OBJECTIVES = {"power": POWER, "energy": ENERGY}
DEFAULT_ITR, DEFAULT_FREQUENCY = "2:500:2", "1.2:2.9:0.1"
TRIALS_MAX = 500
TABLE_TRIAL_SECONDS = 20.0
SERVICE_PORT = 11211


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of the command that all searches share."""

    slas: tuple[float, ...]
    cost: str
    latency: str
    guard: float
    trials: int
    gain: float
    seconds_max: float | None
    trial_seconds: float

    def goal(self, sla_us: float, repeatable: bool) -> Goal:
        return Goal(sla_us, self.guard, self.trials, self.gain, repeatable)


def tune(
    places: Sequence[str],
    sla: str = "500",
    live: bool = False,
    model: str | None = None,
    cores: int = 1,
    load_target: str | None = None,
    token_file: str | None = None,
    itr: str | None = None,
    frequency: str | None = None,
    axes: Sequence[str] = (),
    objective: str = "power",
    latency: str = "p99_us",
    where: str | None = None,
    guard: float = 1.0,
    trials: int = 30,
    gain: float = 0.05,
    seconds_max: float | None = None,
    preset: str = "etc",
    rate: float = 10_000.0,
    trial_seconds: float | None = None,
    warm_up: float | None = None,
    connections: int = 16,
    day: str | None = None,
    seed: int = 1,
    out: str | None = None,
    as_json: bool = False,
) -> int:
    is_live = live or model is not None
    default_seconds = TABLE_TRIAL_SECONDS if model is None else 0.1
    wanted = Options(
        _slas(sla), OBJECTIVES[objective], latency, guard / 100, trials, gain / 100, seconds_max, trial_seconds or default_seconds
    )
    _check(wanted, guard, gain, trial_seconds, warm_up, rate)
    trace = tune_day.read_trace(Path(day)) if day else []
    if len(wanted.slas) > 1 and not trace:
        raise UsageError("--sla takes one limit without --day", "a day is tuned for each of several limits")
    with threadpool_limits(1):
        if not is_live:
            if itr or frequency or out:
                raise UsageError("--itr, --frequency and --out belong to --live; a table has its own settings", "--where chooses rows")
            return _on_table(places, where, list(axes), wanted, trace, seed, as_json)
        if (len(places) != 1) if model is None else bool(places):
            raise UsageError(
                "--live takes one machine, or --model instead of it", "./neap tune --live 10.0.0.7, or ./neap tune --live --model e5-2690"
            )
        grid = tune_grid.product(_axes(itr, frequency, axes))
        for one in grid.axes:
            for value in one.values:
                tune_live.words({one.name: value})
        load = Offered(preset, rate, wanted.trial_seconds, _warm_up(warm_up, model), connections, latency)
        plants = _plants(places, model, cores, load_target, token_file, load, seed)
        return _on_machine(plants, grid, wanted, load, trace, Path(out) if out else None, as_json)


def _warm_up(given: float | None, model: str | None) -> float:
    return given if given is not None else 1.0 if model is None else 0.02


def _slas(words: str) -> tuple[float, ...]:
    try:
        found = tuple(float(word) for word in words.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < value < math.inf for value in found):
        raise UsageError(f"--sla takes a latency in us, or several with commas between them, not '{words}'")
    return found


def _check(wanted: Options, guard: float, gain: float, trial_seconds: float | None, warm_up: float | None, rate: float) -> None:
    for option, value, low, high in (
        ("--guard", guard, 0.0, 50.0),
        ("--gain", gain, 0.0, 50.0),
        ("--trials", float(wanted.trials), 2.0, float(TRIALS_MAX)),
        ("--trial-seconds", 1.0 if trial_seconds is None else trial_seconds, 1e-3, 3600.0),
        ("--warm-up", warm_up or 0.0, 0.0, 3600.0),
        ("--rate", rate, 1e-3, 1e8),
        ("--seconds-max", 1.0 if wanted.seconds_max is None else wanted.seconds_max, 0.0, 1e7),
    ):
        if not low <= value <= high:
            raise UsageError(f"{option} takes a number from {low:g} to {high:g}, not {value:g}")


def _axes(itr: str | None, frequency: str | None, further: Sequence[str]) -> list[Axis]:
    found = []
    for option, name, text in (("--itr", ITR, itr or DEFAULT_ITR), ("--frequency", FREQUENCY, frequency or DEFAULT_FREQUENCY)):
        if text != "none":
            values = tune_grid.parse_values(option, text)
            if not all(isinstance(value, (int, float)) and value >= 0 for value in values):
                raise UsageError(f"{option} takes numbers, not '{text}'", "`none` leaves the setting as it is")
            found.append(tune_grid.axis(name, values))
    for each in further:
        name, equals, values = each.partition("=")
        if not equals or not name:
            raise UsageError(f"--axis takes NAME=VALUES, not '{each}'", "the safest value first: --axis idle=halt,c6")
        column = name if name in ("idle", "rapl_w") else f"{SET}{name}"
        found.append(tune_grid.axis(column, tune_grid.parse_values(f"--axis {name}", values)))
    if not found:
        raise UsageError("there is no axis to tune", "--itr, --frequency or --axis NAME=VALUES")
    return found


# ---- tables ----


def _on_table(
    places: Sequence[str], where: str | None, axes: Sequence[str], wanted: Options, trace: Sequence[Hour], seed: int, as_json: bool
) -> int:
    if not places:
        raise UsageError("tune takes a study's folder, a table, or --live with a machine", "./neap tune mystudy --sla 500")
    columns = [each if each in tune_grid.DESCENDING or each in (ITR, "idle") or each.startswith(SET) else f"{SET}{each}" for each in axes]
    runs = runs_table.read(places, where)
    if trace:
        return _table_day(runs, columns, wanted, trace, seed, as_json)
    table, excluded = tune_table.from_runs(runs, wanted.latency, wanted.cost, columns or None, seed)
    best = table.optimum(wanted.slas[0])
    found = _search_table(table, wanted, wanted.slas[0])
    report = tune_report.Report(table.source, wanted.latency, wanted.cost)
    if as_json:
        print(tune_report.json_text(report, found, best, excluded))
    else:
        print(tune_report.text(report, found, best, excluded))
    return 0 if found.best is not None else 1


def _search_table(table: Table, wanted: Options, sla_us: float) -> Search:
    def measure(setting: Setting, _safe: Setting) -> Measured:
        place = table.grid.place([one.values.index(setting[one.name]) for one in table.grid.axes])
        latency_us, cost = table.measure(place)
        power_w = cost if wanted.cost == POWER else None
        energy_j = (power_w or 0.0) * wanted.trial_seconds
        return Measured(latency_us, power_w, cost if wanted.cost == ENERGY else None, energy_j, wanted.trial_seconds)

    return search(table.grid, wanted.goal(sla_us, table.has_repeats), measure, wanted.cost, seconds_max=wanted.seconds_max)


def _table_day(runs: runs_table.Runs, axes: Sequence[str], wanted: Options, trace: Sequence[Hour], seed: int, as_json: bool) -> int:
    if wanted.cost != POWER:
        raise UsageError("--day counts energy, so it tunes the power", "leave --objective out")
    runs.require("rate_wanted")
    tables: dict[float, Table] = {}
    excluded: list[Excluded] = []
    for key, part in runs.groups(["rate_wanted"]):
        if key["rate_wanted"] is not None:
            tables[float(key["rate_wanted"])], more = tune_table.from_runs(part, wanted.latency, wanted.cost, axes or None, seed)
            excluded += more
    nearest = {hour.hour: min(tables, key=lambda rate: abs(rate - hour.rate)) for hour in trace}
    days: list[Day] = []
    for sla_us in wanted.slas:
        static = tune_report.static_of([tables[nearest[hour.hour]] for hour in trace], sla_us)
        for mode, free in modes(next(iter(tables.values())).grid).items():
            parts = {rate: _part(table, free) for rate, table in tables.items()}

            def searched(hour: Hour, parts: Mapping[float, Table] = parts, sla_us: float = sla_us) -> Search:
                return _search_table(parts[nearest[hour.hour]], wanted, sla_us)

            found = tune_day.day(trace, sla_us, mode, searched, tune_day.HOUR_SECONDS)
            if static is not None:
                found = dataclasses.replace(found, static_j=static[1] * tune_day.HOUR_SECONDS, static_setting=tune_grid.shown(static[0]))
            days.append(found)
    print(tune_report.day_json(days, nearest) if as_json else tune_report.day_text(days, nearest, excluded))
    return 0


def _part(table: Table, free: str | None) -> Table:
    """The table with one free axis. The other axes have their safest values."""
    if free is None:
        return table
    return table.only(free, {one.name: one.values[0] for one in table.grid.axes})


# ---- machines ----


def _plants(
    places: Sequence[str],
    model: str | None,
    cores: int,
    load_target: str | None,
    token_file: str | None,
    load: Offered,
    seed: int,
) -> Callable[[float], Plant]:
    """Makes the plant of a rate."""
    if model is not None:
        return functools.cache(lambda rate: tune_live.ModelPlant(model, cores, dataclasses.replace(load, rate=rate), seed))
    from tools import control_client, machine, machine_registry
    from tools.load import service_port

    address = machine_registry.find_control(places[0])
    running = machine_registry.find(places[0])
    target = load_target or (f"{machine.LOOPBACK}:{service_port(running)}" if running else f"{address[0]}:{SERVICE_PORT}")
    token = control_client.read_token(token_file)

    def made(rate: float) -> Plant:
        step = tune_live.LoadStep(target, address, token_file, dataclasses.replace(load, rate=rate))
        return tune_live.RealPlant(address, token, step, load.seconds, load.warm_up)

    return functools.cache(made)


def _on_machine(
    plants: Callable[[float], Plant],
    grid: Grid,
    wanted: Options,
    load: Offered,
    trace: Sequence[Hour],
    out: Path | None,
    as_json: bool,
) -> int:
    rows = tune_rows.Rows(out, load)
    try:
        if trace:
            return _machine_day(plants, grid, wanted, trace, rows, as_json)
        found, parked = tune_plant(plants(load.rate), grid, wanted, wanted.slas[0], rows, load.rate, quiet=as_json)
    finally:
        rows.write()
    report = tune_report.Report(
        "the modelled machine" if plants(load.rate).modelled else "the machine", wanted.latency, wanted.cost, parked
    )
    print(tune_report.json_text(report, found, None, []) if as_json else tune_report.text(report, found, None, [], with_trials=False))
    return 0 if found.best is not None else 1


def tune_plant(
    plant: Plant, grid: Grid, wanted: Options, sla_us: float, rows: tune_rows.Rows, rate: float, *, quiet: bool = False
) -> tuple[Search, str]:
    """Searches on a machine, and leaves it at the best setting, or at the safest one. Prints each trial when it ends. Returns the search
    and a sentence about the machine's setting."""
    if not quiet:
        print(tune_report.trial_head(wanted.cost), flush=True)

    def ended(trial, one: Measured) -> None:
        rows.add(grid.setting(trial.place), one, rate, plant.modelled)
        if not quiet:
            print(tune_report.trial_line(grid, trial, one, wanted.cost), flush=True)

    def measure(setting: Setting, safe: Setting) -> Measured:
        return plant.measure(setting, safe, sla_us)

    found = search(grid, wanted.goal(sla_us, plant.repeatable), measure, wanted.cost, ended, wanted.seconds_max)
    return found, plant.park(found.setting or grid.setting(grid.place([0] * len(grid.axes))))


def _machine_day(
    plants: Callable[[float], Plant], grid: Grid, wanted: Options, trace: Sequence[Hour], rows: tune_rows.Rows, as_json: bool
) -> int:
    days = []
    for sla_us in wanted.slas:
        for mode, free in modes(grid).items():
            part = grid if free is None else grid.only(free, {one.name: one.values[0] for one in grid.axes})

            def searched(hour: Hour, part: Grid = part, sla_us: float = sla_us, mode: str = mode) -> Search:
                progress.say(f"neap: SLA {sla_us:g} us, {mode}, hour {hour.hour:g}, {hour.rate:g} requests/s")
                return tune_plant(plants(hour.rate), part, wanted, sla_us, rows, hour.rate, quiet=True)[0]

            days.append(tune_day.day(trace, sla_us, mode, searched, tune_day.HOUR_SECONDS))
    print(tune_report.day_json(days, {}) if as_json else tune_report.day_text(days, {}, []))
    if all(hour.search.best is None for one in days for hour in one.hours):
        raise Failure(days[-1].hours[-1].search.refusal())
    return 0
