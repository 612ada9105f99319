# SPDX-License-Identifier: BSL-1.0
"""`./neap log report`: one HTML page that contains its data and scripts, so it opens without a network.

The page shows points, one for each log record, in a panel for each core, with a free choice of axes and colour. Curves over time are below
them. Several runs are overlaid in the same pictures, or are side by side with equal scales (page_runs.py). page_data.py packs the records,
page_series.py makes the curves, and page/*.js draws. The head of the page has a small table of counts. From it the browser draws the first
picture before it has read the records.

A content security policy in the page's head forbids all connections, also by text from a log.
"""

import dataclasses
import html
from collections.abc import Sequence
from pathlib import Path

from tools.errors import UsageError
from tools.foreign import shown
from tools.log import configuration, decode, load_results, page_data, page_runs, page_series, page_template, phases, repeats, summary
from tools.log.about import system_text
from tools.log.decode import KIND_NAMES, RunLog
from tools.log.page_runs import RUNS_MAX
from tools.log.tables import Making
from tools.log.trim import trim

HERE = Path(__file__).parent / "page"
SCRIPTS = ("data.js", "runs.js", "quantities.js", "scales.js", "panels.js", "strips.js", "controls.js", "page.js")
MODELLED = "modelled "
NAME_CHARACTERS_MAX = 60


@dataclasses.dataclass(frozen=True)
class NamedRun:
    """One run of the page. `folders`: where its files are."""

    name: str
    log: RunLog
    folders: list[Path]


def load(places: Sequence[str], names: Sequence[str] = ()) -> list[NamedRun]:
    """Reads the runs that `places` name, grouped as for a summary (repeats.py). `names`: of the runs, in the order of their first places;
    without them, the names of their folders. Raises UsageError for more than RUNS_MAX runs, or another number of names."""
    groups = repeats.group(places)
    if len(groups) > RUNS_MAX:
        raise UsageError(f"the files are of {len(groups)} runs, a page shows at most {RUNS_MAX}", "./neap log report RUN1 RUN2")
    if names and len(names) != len(groups):
        raise UsageError(f"--name names {len(names)} runs, but there are {len(groups)}", "give --name once for each run, in the same order")
    chosen = [shown(name, NAME_CHARACTERS_MAX) for name in names] or [_name_of(members) for members in groups]
    return [NamedRun(name, decode.load(members), _folders(members)) for name, members in zip(chosen, groups)]


def _name_of(places: Sequence[str]) -> str:
    path = Path(places[0]).resolve()
    folder = path if path.is_dir() else path.parent
    return shown(folder.parent.name if folder.name == "log" else folder.name, NAME_CHARACTERS_MAX)


def _folders(places: Sequence[str]) -> list[Path]:
    """Returns the folders of the logs. The logs of DIR may be in DIR/log."""
    found = []
    for path in map(Path, places):
        folder = path if path.is_dir() else path.parent
        found.append(folder / "log" if (folder / "log/core0.log").is_file() and not (folder / "core0.log").is_file() else folder)
    return list(dict.fromkeys(found))


def write(runs: Sequence[NamedRun], out: Path) -> int:
    """Writes the page. Returns its size in bytes. Raises Failure if it cannot be written."""
    page = build(runs)
    with Making(out) as making, open(making, "w", encoding="utf-8") as file:
        file.write(page)
    return len(page)


class _Prepared:
    """A run with everything that the page shows of it."""

    def __init__(self, named: NamedRun):
        self.named = named
        self.log = named.log
        file = load_results.beside(named.folders)
        windows = repeats.windows_in(file, named.log, asked=False)
        self.summary = summary.summarise(named.log, windows or list(named.log.windows))
        self.cores = [trim(core) for core in named.log.cores]
        self.begin, self.seconds = page_series.span_of(self.cores)
        about = named.log.about
        self.load = load_results.curve(file, windows, self.begin, self.cores[0].log.tsc_hz, self.seconds)
        self.window = page_runs.window_of(
            self.summary["configuration"]["marks"], windows, self.begin, self.cores[0].log.tsc_hz, self.seconds
        )
        cpu = about.get("cpu", "")
        self.model = (load_results.model_of(file) or cpu.removeprefix(MODELLED)) if cpu.startswith(MODELLED) else None
        self.title = f"run {self.summary['run']} of {shown(about.get('application') or 'an application')}"
        missing = self.summary["cores"] - len(self.cores)
        if missing > 0 and self.summary["total"]["joules"] is not None:
            self.summary["remarks"].append("energy per interrupt counts only the interrupts of the cores that are there")

    @property
    def heading(self) -> str:
        return f"{self.named.name}: {self.title}" if self.named.name else self.title


def build(runs: Sequence[NamedRun]) -> str:
    prepared = [_Prepared(run) for run in runs]
    bounds = [found for each in prepared if (found := page_series.interval_bounds(each.cores))]
    interval_bounds = (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None
    zero, zeros = page_runs.time_axis([each.window for each in prepared], [each.seconds for each in prepared])
    # The bounds of the page's time, for the first picture.
    span = min(-at for at in zeros), max(each.seconds - at for each, at in zip(prepared, zeros))
    steps = page_data.steps([core for each in prepared for core in each.cores])
    texts: list[str] = []
    data = {
        "runs": [_run(each, number, (zeros[number], *span), interval_bounds, steps, texts) for number, each in enumerate(prepared)],
        "zero": zero,
        "interval_bounds": interval_bounds,
        "first_cells": page_series.FIRST_CELLS,
    }
    titles = [each.title for each in prepared] if len(prepared) == 1 else [each.heading for each in prepared]
    replacements = {
        "@HEAD@": _head(prepared),
        "@TABLES@": "\n".join(_tables(each, len(prepared) > 1) for each in prepared),
        "@COLUMNS@": "\n".join(texts),
    }
    scripts = [HERE / name for name in SCRIPTS]
    return page_template.page(HERE / "page.html", " and ".join(titles), replacements, [HERE / "page.css"], data, scripts)


def _run(
    each: _Prepared,
    number: int,
    axis: tuple[float, float, float],
    interval_bounds: tuple[float, float] | None,
    steps: tuple[int, int],
    texts: list[str],
) -> dict:
    """Returns a run's part of the page's JSON, and appends the packed columns to `texts`. `axis`: the run's second that is second 0 of the
    page, and the bounds of the page's time."""
    shared = page_data.Packages(each.log, each.cores)
    marks = page_series.policy_marks(each.summary["settings"])
    marks = sorted([*marks, *page_series.load_marks(each.summary["configuration"]["marks"], each.seconds)], key=lambda mark: mark["x"])
    if len(marks) > page_series.MARKS_MAX:
        each.summary["remarks"].append(
            f"{len(marks)} policy changes and marks of the load; the first {page_series.MARKS_MAX} are marked in the plots"
        )
    if any(len(core.log.settings) > page_data.SETTINGS_MAX for core in each.cores):
        each.summary["remarks"].append(f"the axes know the first {page_data.SETTINGS_MAX} changes of settings of each core")
    cores = []
    zero, low, high = axis
    # The axis may begin before the run.
    left = (each.begin + round((zero + low) * each.cores[0].log.tsc_hz)) % (1 << 64)
    for core in each.cores:
        density = page_series.first_density(core, left, high - low, interval_bounds)
        first_about, first_text = page_data.pack(density, deflated=False)
        records = page_data.core_columns(core, each.begin, steps[0])
        stretches = page_data.stretch_columns(core, shared, each.begin, steps[1])
        cores.append({**records.about, **stretches.about, "first_about": first_about, "first_text": first_text})
        for name, text in {**records.texts, **stretches.texts}.items():
            texts.append(f'<script type="text/plain" id="column-{number}-{core.log.core}-{name}">{text}</script>')
    schema = each.log.cores[0].schema
    return {
        "name": each.heading,
        "short": page_runs.name_of(each),
        "window": each.window,
        "dash": page_runs.DASHES[number],
        "marker": page_runs.MARKERS[number],
        "model": each.model,
        "seconds": each.seconds,
        "tsc_hz": each.cores[0].log.tsc_hz,
        "energy_unit": each.log.energy_unit("package_energy"),
        "dram_energy_unit": each.log.energy_unit("dram_energy"),
        "unknown": list(each.log.unknown),
        "events": list(each.log.events.items()),
        "idle_states": list(schema.idle_states),
        "kinds": [KIND_NAMES.get(kind, str(kind)) for kind in range(max(KIND_NAMES) + 1)],
        "marks": marks[: page_series.MARKS_MAX],
        "latency": {"windows": each.load.windows, "note": each.load.note},
        "packages": page_series.by_package(each.log, each.cores, each.begin, shared),
        "over_time": page_series.cores_over_time(each.cores, each.begin, each.seconds, each.log.unknown),
        "cores": cores,
    }


# ---- text ----


def _head(prepared: Sequence[_Prepared]) -> str:
    parts = ['<div class="heads">']
    for each in prepared:
        parts.append('<div class="head">')
        lines = [html.escape(line) for line in summary.head(each.summary)]
        if len(prepared) > 1:
            parts.append(f"<h2>{html.escape(each.heading)}</h2>")
            parts.append(f"<p>{html.escape(shown(system_text(each.log.about)))}</p>")
        if each.model is not None:
            parts.append(
                f'<p><span class="modelled">modelled ({html.escape(shown(each.model))})</span> No figure is of a real machine.</p>'
            )
        parts += [f"<p>{line}</p>" for line in lines]
        if each.summary["total"]["joules"] is None:
            parts.append("<p>This CPU has no energy counter: energy and power are not drawn.</p>")
        parts += [f'<p class="remark">{html.escape(remark)}</p>' for remark in each.summary["remarks"]]
        parts.append("</div>")
    parts.append("</div>")
    if len(prepared) > 1:
        parts += [page_runs.comparison(prepared, _table), page_runs.legend(prepared)]
    return "\n".join(parts)


def _tables(each: _Prepared, is_named: bool) -> str:
    name = f" of {html.escape(each.heading)}" if is_named else ""
    of_cores = _table([name for name, _ in summary.CORE_COLUMNS], _cells(each.summary["cores_detail"], summary.CORE_COLUMNS))
    of_packages = _table([name for name, _ in summary.PACKAGE_COLUMNS], _cells(each.summary["packages"], summary.PACKAGE_COLUMNS))
    changes = [(f"{row['seconds']:.6f}", row["generation"], row["cores"], row["text"]) for row in summary.shared_settings(each.summary)]
    of_settings = _table(("seconds", "generation", "cores", "set"), changes[: page_data.SETTINGS_MAX])
    of_settings = of_settings.replace("<table>", '<table class="settings">')
    # What each setting cost and brought is the page's main answer, so it is not folded.
    return "\n".join(
        f'<details class="tables"{" open" if is_open else ""}><summary>{title}{name}</summary>\n{content}\n</details>'
        for title, content, is_open in (
            ("Figures by phase, between changes of settings", _phases(each), len(phases.chosen(each.summary)) > 1),
            ("Figures by core and package", of_cores + of_packages, False),
            ("Where the time went, by core", _shares(each), False),
            ("Configuration", _configuration(each), False),
            ("Settings", of_settings, False),
        )
    )


def _configuration(each: _Prepared) -> str:
    """Returns tables of the configuration: members of the header, settings at the start, growth of the card's counters."""
    found = each.summary["configuration"]
    members = [(name, configuration.member_text(value)) for name, value in found["header"].items()]
    members += [("load", configuration.load_text(found["load"]))] if found["load"] else []
    members += [(f"mark of the load at {row['seconds']:.6f} s", row["what"]) for row in found["marks"][: page_data.SETTINGS_MAX]]
    cores = [core.log.core for core in each.cores]
    tables = [_table(("header", "value"), members), _table(("at the start", "value", "cores"), configuration.start_rows(found, cores))]
    if found["card_counters"]:
        counters = [(name, "was reset" if value is None else f"{value:,}") for name, value in found["card_counters"].items()]
        tables.append(_table(("counter of the card", "in the run"), counters))
    return "\n".join(tables).replace("<table>", '<table class="configuration">')


def _phases(each: _Prepared) -> str:
    text = "\n".join(phases.lines(each.summary)).strip()
    return f"<pre>{html.escape(text)}</pre>" if text else "<p>No record in this run.</p>"


def _shares(each: _Prepared) -> str:
    """Returns a bar for each core: shares of the time asleep by requested state, in checks without work, and at work."""
    rows = [row for row in each.summary["cores_detail"] if row["idle_share_by_state"] is not None]
    if not rows:
        return "<p>The files do not have the time asleep.</p>"
    names = list(dict.fromkeys(name for row in rows for name in row["idle_share_by_state"]))
    colours = ("#16205c", "#2b6fb0", "#3199c4", "#5cc0c0", "#9fdcb8", "#b0579a", "#e08a00")
    of_name = {name: colours[number % len(colours)] for number, name in enumerate(names)}

    def text(name: str) -> str:
        return html.escape("checks without work" if name == "poll" else f"asleep, {name} asked for")

    keys = "".join(f'<span><span class="key" style="background:{colour}"></span>{text(name)}</span> ' for name, colour in of_name.items())
    parts = [f'<p class="legend">{keys}<span>rest: at work</span></p>', '<div class="shares">']
    for row in rows:
        shares = row["idle_share_by_state"]
        bars = "".join(
            f'<span style="width:{min(1.0, share):.2%};background:{of_name[name]}" title="{text(name)} {share:.1%}"></span>'
            for name, share in shares.items()
        )
        parts.append(f'<span>core {row["core"]}, at work {max(0.0, 1 - sum(shares.values())):.1%}</span><span class="bar">{bars}</span>')
    return "".join(parts) + "</div>"


def _cells(rows: list[dict], columns: tuple) -> list[tuple]:
    return [tuple(cell(row) for _, cell in columns) for row in rows]


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
