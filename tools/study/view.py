# SPDX-License-Identifier: BSL-1.0
"""`./neap view`: a page over all runs of a study, ready figures, and datasets in the published layout.

Without --figure and --out it serves the page until Ctrl-C, to this host only. Ready figures and tables need no server and no browser.
"""

import html
from collections.abc import Sequence
from pathlib import Path

from tools import progress
from tools.errors import Failure, UsageError
from tools.log import page_template
from tools.log.tables import Making
from tools.study import dataset, view_figures, view_filter, view_svg, view_table
from tools.study.view_data import Options
from tools.study.view_picture import Made
from tools.study.view_source import Source

HERE = Path(__file__).parent / "page"
TABLE_ROWS_MAX = 2000


def view(
    places: Sequence[str],
    figure: str | None = None,
    figures: bool = False,
    out: str | None = None,
    where: Sequence[str] = (),
    run: str | None = None,
    slas: Sequence[float] = (),
    layout: str | None = None,
    port: int = 0,
) -> int:
    """Executes the command. Returns the launcher's exit status."""
    if figures:
        print(view_figures.listing())
        return 0
    if not 0 <= port <= 65535:
        raise UsageError("--port takes a number from 0 to 65535")
    if any(not 0 < each < 1e9 for each in slas):
        raise UsageError("--sla takes microseconds, more than 0")
    if figure is None and (where or run or slas):
        raise UsageError("--where, --run and --sla belong to --figure", "the page has filters of its own")
    if (figure or layout) and out is None:
        raise UsageError("--out is missing", "--out FILE.svg, .html or .csv; with --layout a folder")
    if figure and layout:
        raise UsageError("--figure and --layout exclude each other")
    if figure is not None and figure not in view_figures.FIGURES:
        raise UsageError(f"there is no figure '{figure}'", "./neap view --figures lists them")
    source = Source(places)
    for note in source.notes:
        progress.say(f"neap: note: {note}")
    if layout is not None:
        return _write_published(source, layout, Path(str(out)))
    if out is not None and figure is None:
        progress.say(f"neap: {out}: {view_table.write(source, Path(out))} runs")
        return 0
    if figure is not None:
        made = view_figures.make(source, figure, Options(tuple(view_filter.parse_words(where)), _row_of(source, run), tuple(slas)))
        write_figure(made, Path(str(out)))
        progress.say(f"neap: {out}")
        return 0
    return _serve(source, port)


def _row_of(source: Source, run: str | None) -> int | None:
    if run is None:
        return None
    found = source.all("SELECT rowid FROM runs WHERE run = ?", [run]) if "run" in source.columns else []
    if not found:
        raise UsageError(f"the study has no run {run}", "the column `run` has their names")
    return found[0][0]


def _write_published(source: Source, layout: str, folder: Path) -> int:
    count, remarks = dataset.write(source, layout, folder)
    for remark in remarks:
        progress.say(f"neap: note: {remark}")
    progress.say(f"neap: {folder}: {count} runs in the layout {layout}")
    return 0


def _serve(source: Source, port: int) -> int:
    from tools.study import view_server

    with view_server.Server(source, port) as server:
        print(f"{source.count:,} runs: open {server.address} in a browser of this host; Ctrl-C ends", flush=True)
        server.serve_forever()
    return 0


def write_figure(made: Made, out: Path) -> None:
    """Writes a figure as SVG, as a page with the figure and its numbers, or as CSV. Raises UsageError for another name."""
    texts = {".svg": lambda: view_svg.draw(made), ".csv": made.csv, ".html": lambda: page(made)}
    if out.suffix not in texts:
        raise UsageError(f"--out names a .svg, .html or .csv file, not '{out.name}'")
    text = texts[out.suffix]()
    if not out.parent.is_dir():
        raise Failure(f"there is no folder {out.parent}")
    with Making(out) as making:
        making.write_text(text, encoding="utf-8")


def page(made: Made) -> str:
    """Returns one HTML page with a figure and a table of its numbers. It has no scripts and needs no network."""
    cells = [[_cell(value) for value in row] for row in made.rows[:TABLE_ROWS_MAX]]
    rows = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in cells)
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in made.header)
    more = (
        f"<p>The first {TABLE_ROWS_MAX} of {len(made.rows):,} rows; --out FILE.csv has all.</p>" if len(made.rows) > TABLE_ROWS_MAX else ""
    )
    replacements = {
        page_template.TITLE: html.escape(made.title),
        "@STYLE@": (HERE / "figure.css").read_text(),
        "@FIGURE@": view_svg.draw(made),
        "@TABLE@": f"{more}<table><tr>{head}</tr>\n{rows}</table>",
    }
    return page_template.fill((HERE / "figure.html").read_text(), replacements)


def _cell(value: object) -> str:
    if value is None:
        return view_filter.NOT_SET
    return html.escape(f"{value:.6g}" if isinstance(value, float) else str(value))
