# SPDX-License-Identifier: BSL-1.0
"""`./neap log csv --study LAYOUT`: a run in the files of the published studies, so that their scripts give its true figures.

The layouts, and what the scripts assume, are in study_layout.py. The settings in the files' names come from the log. Settings that the log
does not know are the user's. A setting of the user that contradicts the log is refused.

Counters are cumulative and do not wrap; 0 means "not sampled in this row". In the layouts `linux` and `ebbrt`:
- A row is an interrupt. Polls and policy changes are added to the next interrupt. Each core has two rows more, at the run's bounds.
- Samples are in rows between which energy grew, because the scripts drop the growth of other rows. A counter that the CPU lacks is 1.
- `tsc` and `ref_cycles` are scaled to the clock that the scripts assume. So their seconds are seconds.
- The energy of a machine with one package is divided evenly between the two packages of which the scripts add the energy.
"""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tools.errors import Failure, UsageError
from tools.foreign import U64_MAX
from tools.log.decode import INTERRUPT, RunLog
from tools.log.load_results import LoadWindow
from tools.log.study_layout import CLOCK_HZ, CORES, EBBRT_SECONDS, LINUX_COLUMNS, PACKAGES, UNITS_PER_JOULE, Layout, Setting, unread
from tools.log.tables import Making
from tools.log.trim import CoreRun, EnergySeries, package_energy, packages, ticks_since, trim

# Maps each column to the idle states whose requests it counts.
ENTRIES = {"c1": ("halt", "c1"), "c1e": ("c1e",), "c3": ("c3",), "c6": ("c6",), "c7": ("c7",)}
COUNTERS = {"instructions": "instructions", "cycles": "cycles", "ref_cycles": "reference_cycles", "llc_miss": "llc_misses"}
SUMMED = {"rx_desc": "rx_descriptors", "rx_bytes": "rx_bytes", "tx_desc": "tx_descriptors", "tx_bytes": "tx_bytes"}
ROWS_AT_ONCE = 100_000
# The maximum length of the application's name in a file's name, which may have 255 bytes.
APPLICATION_LETTERS = 100
UNKNOWN = "nan"
TICKS_MAX = float(1 << 62)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The user's choices. `setting`, `qps`: the parts of the files' names that the log or the load's result may not know."""

    layout: Layout
    setting: Setting | None = None
    qps: str | None = None
    repetition: int = 0


def write(run: RunLog, wanted: Wanted, folder: Path, windows: Sequence[LoadWindow] = ()) -> tuple[list[Path], list[str]]:
    """Writes the files of a run. Returns their paths, and remarks that a reader of the files needs."""
    cores = [trim(core) for core in run.cores]
    layout = wanted.layout
    parts = _name_parts(run, cores, wanted, windows)
    places = _places(cores, layout)
    remarks = unread(layout, parts, wanted.repetition) + _remarks(cores, places, layout)
    energy = {number: package_energy(run, members, "package_energy") for number, members in packages(cores).items()}
    if layout.lists and None in energy.values():
        remarks.append("the CPU has no energy counter, so the published cleaners drop all rows with samples: joules and instructions are 0")
    share = 0.5 if layout.lists and len(energy) == 1 and len(cores) > 1 else 1.0
    bounds = _bounds(cores)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, core in places.items():
            path = folder / layout.core_file.format(core=number, **parts)
            if core is None:
                rows = _placeholder(layout, bounds if number == CORES - 1 else (0, 0))
            else:
                rows = table(core, energy[core.log.package], share, bounds[0], layout)
            _write_rows(path, rows, layout)
            written.append(path)
        if layout.other_files:
            for what, text in (("rdtsc", _rdtsc(places, bounds, layout)), ("out", _out(cores, windows))):
                path = folder / layout.other_files.format(what=what, **parts)
                written.append(_write_text(path, text))
        if layout.packages_file and any(core.log.package != core.log.core % PACKAGES for core in cores):
            text = "".join(f"{core.log.core} {core.log.package}\n" for core in cores)
            written.append(_write_text(folder / layout.packages_file.format(**parts), text))
    except OSError as error:
        raise Failure(f"cannot write to {folder}: {error.strerror}") from None
    return written, remarks


def _write_text(path: Path, text: str) -> Path:
    with Making(path) as making:
        making.write_text(text)
    return path


# ---- the settings in the names ----


def _name_parts(run: RunLog, cores: list[CoreRun], wanted: Wanted, windows: Sequence[LoadWindow]) -> dict[str, str]:
    logged = logged_settings(cores, may_change=not wanted.layout.lists)
    given = wanted.setting
    parts = {}
    for name, option in (("itr", "ITR"), ("dvfs", "DVFS"), ("rapl", "RAPL")):
        asked, known = getattr(given, name) if given else None, logged[name]
        if asked is not None and known is not None and asked.lower() != known:
            raise Failure(f"the log says {option} {known}, not {asked}", "leave --setting out, and the log's settings are taken")
        if asked is None and known is None:
            raise UsageError(f"the log does not know {option}: it changed, or firmware had set it", "--setting ITR_DVFS_RAPL names it")
        parts[name] = known if known is not None else asked
    setting = Setting(**parts)
    application = re.sub(r"[^A-Za-z0-9_.-]", "_", run.about.get("application", "neap"))[:APPLICATION_LETTERS]
    return {
        **parts,
        "setting": str(setting),
        "application": application,
        "repetition": str(wanted.repetition),
        "sleep": logged["sleep"] or "unknown",
        "qps": _qps(wanted, windows),
    }


def logged_settings(cores: list[CoreRun], *, may_change: bool) -> dict[str, str | None]:
    """Returns the settings of a run as the files' names spell them. None: not known. If they differ or change in the run, they count as not
    known, or a Failure is raised."""
    found: dict[str, set[str]] = {name: set() for name in ("itr", "dvfs", "rapl", "sleep")}
    for core in cores:
        for row in core.log.settings:
            if row["changed"] == "start" or core.begin_tsc <= row["tsc"] <= core.end_tsc:
                limit = row["power_limit_mw"]
                words = {"itr": row["itr_us"], "dvfs": row["pstate"], "rapl": limit and f"{limit / 1000:g}", "sleep": row["idle"]}
                for name, word in words.items():
                    # A log of another system lacks some of these settings.
                    found[name] |= {str(word)} if word is not None else set()
    for name, values in found.items():
        if len(values) > 1 and not may_change:
            raise Failure(
                f"the run has {name} {' and '.join(sorted(values))}, but a file of the studies has one setting",
                "record one run for each setting",
            )
    nothing = {"dvfs": "0x0", "rapl": "0"}
    return {name: None if len(values) != 1 or values == {nothing.get(name)} else values.pop() for name, values in found.items()}


def _qps(wanted: Wanted, windows: Sequence[LoadWindow]) -> str:
    offered = f"{windows[-1].offered:g}" if windows and windows[-1].offered is not None else None
    if not wanted.layout.other_files:
        return ""
    if wanted.qps is None and offered is None:
        raise UsageError(f"--study {wanted.layout.name} needs the offered rate for its files' names", "--qps N, or --load FILE")
    if wanted.qps is not None and offered is not None and float(wanted.qps) != windows[-1].offered:
        raise Failure(f"the load's result says {offered} requests/s, not {wanted.qps}", "leave --qps out")
    return wanted.qps if wanted.qps is not None else str(offered)


# ---- cores and bounds ----


def _places(cores: list[CoreRun], layout: Layout) -> dict[int, CoreRun | None]:
    """Returns the core of each file. The cleaners read 16 files, and take core 0 and core 1 for cores of different packages. So the cores
    of two packages get even and odd numbers, and a file without a core is a placeholder."""
    if not layout.lists:
        return {core.log.core: core for core in cores}
    members = list(packages(cores).values())
    if len(cores) > CORES or len(members) > PACKAGES:
        raise Failure(
            f"the run has {len(cores)} cores of {len(members)} packages; the published cleaners read {CORES} cores of {PACKAGES}",
            "--study 8_0x1800_135 writes files of cores alone",
        )
    if len(members) == 1:
        numbered = {number: core for number, core in enumerate(cores)}
    else:
        numbered = {2 * at + which: core for which, of in enumerate(members) for at, core in enumerate(of)}
    if max(numbered) >= CORES:
        raise Failure("one package has more than 8 of the run's cores, which the published cleaners cannot read")
    return {number: numbered.get(number) for number in range(CORES)}


def _remarks(cores: list[CoreRun], places: dict[int, CoreRun | None], layout: Layout) -> list[str]:
    if not layout.lists:
        return []
    said = []
    moved = [f"{core.log.core} in {number}" for number, core in places.items() if core and core.log.core != number]
    if moved:
        said.append(f"cores are in files of other numbers, which the cleaners take for alternating packages: {', '.join(moved)}")
    begin, end = _bounds(cores)
    if layout.name == "ebbrt" and (end - begin) / CLOCK_HZ > EBBRT_SECONDS:
        said.append(f"the run has {(end - begin) / CLOCK_HZ:.1f} s, of which the published ebbrt cleaner reads {EBBRT_SECONDS:g}")
    polls = sum(int(np.count_nonzero(core.inside["kind"] != INTERRUPT)) for core in cores)
    interrupts = sum(int(np.count_nonzero(core.inside["kind"] == INTERRUPT)) for core in cores)
    if polls > interrupts:
        said.append(f"{polls:,} records without an interrupt are in the rows of {interrupts:,} interrupts, because a row is an interrupt")
    return said


def _bounds(cores: list[CoreRun]) -> tuple[int, int]:
    """Returns the run's begin and end on the scaled clock. All cores have the same, so that no core loses the row of its start. If a
    damaged log ends before it begins, both are the begin."""
    there = [core for core in cores if len(core.records)]
    if not there:
        raise Failure("the log has no records", "start, load and stop the machine's log first")
    begin, end = min(core.begin_tsc for core in there), max(core.end_tsc for core in there)
    ticks = scaled(np.array([end - begin]), there[0].log.tsc_hz)[0].item()
    return begin, min(begin + max(ticks, 0), U64_MAX)


def scaled(ticks: np.ndarray, hz: int) -> np.ndarray:
    """Returns ticks of a clock of `hz` as ticks of the clock that the cleaners assume. Ticks of a damaged log are limited to 2^62."""
    return np.clip(np.round(ticks.astype(np.float64) * (CLOCK_HZ / hz)), -TICKS_MAX, TICKS_MAX).astype(np.int64)


# ---- rows ----


def table(core: CoreRun, energy: EnergySeries | None, share: float, begin: int, layout: Layout) -> np.ndarray:
    """Returns the rows of one core as unsigned integers, in the layout's order of columns."""
    records = core.records
    if not len(records):
        return _placeholder(layout, (0, 0))
    columns = _columns(core, energy, share, bool(layout.lists))
    if layout.lists:
        columns = _interrupts(columns, records["kind"], core.log.tsc_hz, begin, layout)
    columns["i"] = np.arange(len(columns["tsc"]), dtype=np.uint64)
    return np.column_stack([columns[name].astype(np.uint64) for name in layout.columns])


def _columns(core: CoreRun, energy: EnergySeries | None, share: float, for_cleaners: bool) -> dict[str, np.ndarray]:
    """Returns the columns with a row for each record. c1 to c7 are cumulative in all rows here."""
    records = core.records
    columns = {name: np.zeros(len(records), np.uint64) for name in LINUX_COLUMNS}
    columns["tsc"] = records["tsc"]
    for name, field in SUMMED.items():
        columns[name] = records[field].astype(np.uint64)
    sampled = np.zeros(len(records), bool)
    absent = []
    for name, counter in COUNTERS.items():
        at, grown = core.sampled(counter)
        if not len(at):
            absent.append(name)
            continue
        if for_cleaners and name == "ref_cycles":
            grown = scaled(grown, core.log.tsc_hz).astype(np.uint64)
        # A sample of 0 would mean that nothing was sampled, so a counter that begins with 0 begins with 1.
        columns[name][at] = max(1, int(core.counter(counter).values[at[0]])) + grown
        sampled[at] = True
    if energy is not None:
        present = core.counter("package_energy").present
        sampled |= present
        at = np.searchsorted(energy.tsc, records["tsc"][present])
        joules = energy.joules[np.minimum(at, len(energy.joules) - 1)]
        # The counts begin with 1, because 0 means that nothing was sampled.
        columns["joules"][present] = np.round(np.maximum(joules, 0) * share * UNITS_PER_JOULE).astype(np.uint64) + np.uint64(1)
    for name in absent if for_cleaners else ():
        columns[name][sampled] = 1
    for name, names in ENTRIES.items():
        states = [state for state, idle_name in enumerate(core.log.schema.idle_states) if idle_name in names]
        entries = np.cumsum(np.where(np.isin(records["idle_state"], states), records["idle_entries"], 0).astype(np.uint64))
        columns[name] = entries if for_cleaners else np.where(sampled, entries, 0)
    return columns


def _interrupts(columns: dict[str, np.ndarray], kinds: np.ndarray, hz: int, begin: int, layout: Layout) -> dict[str, np.ndarray]:
    """Returns one row for each interrupt, the first record and the last, with samples only where energy grew."""
    kept = kinds == INTERRUPT
    kept[[0, -1]] = True
    at = np.flatnonzero(kept)
    found = {name: values[at] for name, values in columns.items()}
    for name in SUMMED:
        found[name] = np.add.reduceat(columns[name], np.concatenate([[0], at[:-1] + 1]))
    found["tsc"] = np.uint64(begin) + scaled(ticks_since(columns["tsc"][at], begin), hz).astype(np.uint64)
    chosen = _samples(found)
    for name in (*COUNTERS, "joules"):
        found[name] = np.where(chosen, found[name], 0)
    for name in ENTRIES:
        if layout.cumulative_states:
            found[name] = np.where(chosen, found[name], 0)
        else:
            # The EbbRT cleaner adds the counts of the rows with samples, except the first.
            counts = np.zeros(len(at), np.uint64)
            counts[chosen] = np.diff(found[name][chosen], prepend=found[name][chosen][:1])
            found[name] = counts
    if not layout.cumulative_states:
        # The EbbRT cleaner drops each file's first row, with the samples that it may have.
        found = {name: np.concatenate([[0 if name != "tsc" else values[0]], values]).astype(np.uint64) for name, values in found.items()}
    return found


def _samples(rows: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the rows that keep their samples: all counters were sampled, and energy grew since the row before. The first and the last row
    with samples are among them, so that no growth is lost."""
    chosen = np.zeros(len(rows["tsc"]), bool)
    complete = np.flatnonzero(np.all([rows[name] > 0 for name in COUNTERS], axis=0))
    joules = rows["joules"][complete].astype(np.int64)
    if not joules.any():
        chosen[complete] = True
        return chosen
    complete, joules = complete[joules > 0], joules[joules > 0]
    highest = np.maximum.accumulate(np.concatenate([[0], joules[:-1]]))
    kept = list(np.flatnonzero(joules > highest))
    last = len(joules) - 1
    while len(kept) > 1 and kept[-1] != last and joules[kept[-1]] >= joules[last]:
        kept.pop()
    if kept[-1] != last:
        kept.append(last)
    chosen[complete[kept]] = True
    return chosen


def _placeholder(layout: Layout, bounds: tuple[int, int]) -> np.ndarray:
    """Returns the rows of a file without a core. The cleaners fail without a row. The EbbRT cleaner takes the run's time from core 15, so
    that file has the bounds. Its second row counts as an interrupt."""
    times = bounds if layout.name == "ebbrt" and bounds[0] else (0,)
    rows = np.zeros((len(times), len(layout.columns)), np.uint64)
    rows[:, layout.columns.index("tsc")] = times
    return rows


def _write_rows(path: Path, rows: np.ndarray, layout: Layout) -> None:
    with Making(path) as making, open(making, "w") as out:
        if layout.heading:
            # The studies' converter prints a line of its own first, which the cleaner skips.
            out.write(f"numbytes=0 num_entries={len(rows)}\n")
        for at in range(0, len(rows), ROWS_AT_ONCE):
            out.writelines(" ".join(map(str, row)) + "\n" for row in rows[at : at + ROWS_AT_ONCE].tolist())


# ---- the other files ----


def _rdtsc(places: dict[int, CoreRun | None], bounds: tuple[int, int], layout: Layout) -> str:
    begin, end = bounds
    if layout.name == "ebbrt":
        return f"{begin} {end}\n"
    return "".join(f"{number} {number} {begin} {end}\n" for number, core in places.items() if core is not None)


def _out(cores: list[CoreRun], windows: Sequence[LoadWindow]) -> str:
    """Returns the load generator's table. An unknown value is "nan", which the cleaners read as a number."""
    latency = windows[-1].latency_us if windows else {}
    names = ("mean", "deviation", "min", "p5", "p10", "p50", "p90", "p95", "p99")
    values = [f"{latency[name]:.1f}" if name in latency else UNKNOWN for name in names]
    lines = ["#type avg std min 5th 10th 50th 90th 95th 99th", " ".join(["read", *values])]
    begin = min(core.begin_tsc for core in cores if len(core.records))
    seconds = (max(core.end_tsc for core in cores) - begin) / cores[0].log.tsc_hz
    counts = [core.requests() for core in cores]
    requests = sum(count for count in counts if count is not None) if None not in counts else None
    if windows:
        requests, seconds = windows[-1].requests, (windows[-1].end_tsc - windows[-1].begin_tsc) / cores[0].log.tsc_hz
    if requests is not None and seconds > 0:
        lines.append(f"Total QPS = {requests / seconds:.1f} ({requests} / {seconds:.1f}s)")
    return "\n".join(lines) + "\n"
