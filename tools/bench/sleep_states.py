# SPDX-License-Identifier: BSL-1.0
"""`./neap bench sleep-states`: memcached in every idle state at three rates, on two modelled CPUs.

A deeper state saves more power and needs longer to wake up, so at some rate it costs latency and even energy. `poll` and `monitor` avoid
interrupts. Each row is a run in virtual time (docs/model-machine.md): the figures compare states, they are not those of a machine.

In each run every sleep record of Neap's log is compared with the sleep that the modelled CPU had (tools/model/sleeps.py): state, cause and
number. A difference ends the benchmark with a sentence that names the record.
"""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools import build
from tools.bench import modelled
from tools.bench.rows import Row, aligned
from tools.errors import Failure
from tools.model import cpu_model, experiment, plugin, sleeps

MODELS = ("e5-2690", "xeon-6430")
# Requests per second, and the window in ms: a request finds a core asleep for 1 ms, for 100 us, or hardly at all.
WINDOWS_MS = {2_000: 200.0, 20_000: 50.0, 200_000: 20.0}
CORES = 2
# All entries of a run's log, of which one is a sleep.
LOG_WORDS = ("log=256K", "log_idle=on")
C_STATES = ("C0", "C1", "C1E", "C3", "C6", "C7")
FIGURES = ("p50_us", "p99_us", "watts", "uj_per_request", "wakeups")


@dataclasses.dataclass(frozen=True)
class Setting:
    model: str
    rate: int
    idle: str
    words: tuple[str, ...] = ()  # of the command line, besides `idle=`

    @property
    def name(self) -> str:
        return f"{self.model}.rate_{self.rate}.{self.idle}"


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run. `figures`: those of `Result.row` (tools/model/results.py). `shares`: of the cores' time in each state; the rest went into
    wake-ups. `compared`: the records that agreed."""

    figures: Mapping[str, float]
    shares: Mapping[str, float]
    compared: sleeps.Compared


def idle_states(cpu: cpu_model.CpuModel) -> list[str]:
    """Neap's idle states on this CPU, from the one with the quickest answer to the deepest; last the one that chooses among them."""
    deeper = [idle for idle in ("c1", "c1e", "c3", "c6", "c7") if f"sleep.{sleeps.C_STATES[idle]}.hint" in cpu.values]
    return ["poll", "monitor", "halt", *deeper, "menu"]


def settings() -> list[Setting]:
    return [Setting(model, rate, idle) for model in MODELS for rate in WINDOWS_MS for idle in idle_states(cpu_model.load(model))]


def run(wanted: Setting, image: Path, window_ms: float) -> Cell:
    """Runs memcached in one idle state. Raises Failure if the log's sleeps are not the CPU's, or if a request failed."""
    words = [f"idle={wanted.idle}", *wanted.words, *LOG_WORDS]
    settled = experiment.Experiment(wanted.model, rate=wanted.rate, window_ms=window_ms, cores=CORES, arguments=words, trace=True)
    cpu = cpu_model.load(wanted.model)
    with tempfile.TemporaryDirectory(prefix="neap-model-") as scratch:
        out = Path(scratch)
        result = experiment.run(settled, image, out)
        logs = [sleeps.read_records(path, cpu) for path in sorted((out / experiment.LOG).glob("core*.log"))]
        compared = sleeps.compare(logs, sleeps.read_trace(out / experiment.TRACE), plugin.snapshots(out), wanted.idle)
    row = result.row()
    if result.world["failed"] or not result.answered:
        raise Failure(f"{wanted.name}: {result.world['failed']} requests failed, {result.answered} were answered")
    if len(logs) != CORES or compared.sleeps != row["wakeups"]:
        raise Failure(f"{wanted.name}: {compared.sleeps} sleeps of the window have a record, and the cores woke {row['wakeups']} times")
    time_ns = result.window_ns * CORES
    shares = {"C0": row["c0_share"]}
    for core in result.cores:
        for state, spent_ns in core.residency_ns.items():
            shares[state] = shares.get(state, 0.0) + spent_ns / time_ns
    return Cell(row, shares, compared)


def rows() -> list[Row]:
    modelled.prepare("memcached")
    image = build.image("memcached")
    wanted = settings()
    cells = modelled.run_each(wanted, lambda one: run(one, image, WINDOWS_MS[one.rate]))
    return [row for setting, cell in zip(wanted, cells) for row in rows_of(setting, cell)]


UNITS = {"p50_us": "us", "p99_us": "us", "watts": "W", "uj_per_request": "uJ a request", "wakeups": "wake-ups"}


def rows_of(setting: Setting, cell: Cell) -> list[Row]:
    found = [Row(f"{setting.name}.{name}", f"{UNITS[name]}, modelled", cell.figures[name]) for name in FIGURES]
    found += [Row(f"{setting.name}.share.{state}", "of the time, modelled", share) for state, share in cell.shares.items()]
    for cause in sleeps.CAUSES:
        found.append(Row(f"{setting.name}.ended_by.{cause}", "sleeps of the window", float(cell.compared.causes.get(cause, 0))))
    return [*found, Row(f"{setting.name}.records", "sleep records that agree with the modelled CPU", float(cell.compared.records))]


def show(found: Sequence[Row]) -> str:
    """A table for each CPU and rate."""
    values = {row.name: row.value for row in found}
    parts = [f"memcached (ETC) in each idle state, {CORES} cores, virtual time: modelled, not measured"]
    for model in MODELS:
        states = [state for state in C_STATES if state == "C0" or f"sleep.{state}.hint" in cpu_model.load(model).values]
        for rate, window_ms in WINDOWS_MS.items():
            heads = ("p50 us", "p99 us", "watts", "uJ/request", "wake-ups", *(f"{state} %" for state in states), "waking %")
            cells: list[tuple[str, ...]] = [("idle", *heads, *sleeps.CAUSES, "records")]
            for idle in idle_states(cpu_model.load(model)):
                name = Setting(model, rate, idle).name
                shares = [values.get(f"{name}.share.{state}") or 0.0 for state in states]
                shown = [f"{values[f'{name}.{figure}']:.5g}" for figure in FIGURES]
                shown += [f"{100 * share:.1f}" for share in (*shares, max(0.0, 1 - sum(shares)))]
                shown += [f"{values[f'{name}.ended_by.{cause}']:.0f}" for cause in sleeps.CAUSES]
                cells.append((idle, *shown, f"{values[f'{name}.records']:.0f}"))
            parts += ["", f"modelled {model}, {rate} requests/s, {window_ms:g} ms", aligned(cells)]
    checked = sum(row.value or 0 for row in found if row.name.endswith(".records"))
    parts += ["", "interrupt, timer, wake_up, memory: sleeps of the window by the cause in Neap's log."]
    parts.append(f"{checked:.0f} sleep records have the state and the cause of the modelled CPU's sleep; none is missing.")
    return "\n".join(parts)
