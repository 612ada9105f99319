# SPDX-License-Identifier: BSL-1.0
"""The page of a comparison: one HTML file with pictures and tables of all arms and workloads. It opens without a network.

A comparison measures several arms (such as Neap, and Linux with static settings) under several workloads. A reader first asks how a figure
differs between arms, and then where the instructions go. So the page has bars of a chosen figure with confidence intervals, first as
ratios to the first arm, the instructions of each arm by layer, and a table of all figures. A choice of cores applies to all of them.

The tables are plain HTML, so they are there without scripts and in print. A content security policy forbids all connections.
"""

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

from tools.errors import UsageError
from tools.log import page_template

HERE = Path(__file__).parent / "page"
SCRIPTS = ("shared.js", "bars.js", "layers.js", "page.js")
SHARED_STYLE = Path(__file__).parent.parent / "log/page/page.css"
# Colours in page.css: --run0 to --run5. Further arms repeat colours.
COLOURS = 6
NOT_KNOWN = "not known"
MEMBERS = ("mean", "low", "high")


def build(table: Mapping) -> str:
    """Returns the page. `table` has the members title, arms, workloads, cells and figures; model, layers, machine_differences, remarks and
    logs MAY be missing. A layer's instructions are the figure "instructions: NAME" of a cell. Raises UsageError for a table without a
    needed member.

    `cells[workload][arm][figure]` has `mean`, and `low` and `high` of its confidence interval. An unknown value is None, or missing."""
    for name in ("title", "arms", "workloads", "cells", "figures"):
        if name not in table:
            raise UsageError(f"the comparison has no {name}", "run ./neap compare again to make its results anew")
    arms, workloads, figures = table["arms"], table["workloads"], table["figures"]
    layers = list(table.get("layers") or ())
    cells = {
        each["name"]: {
            arm["name"]: {name: _cell(value) for name, value in table["cells"].get(each["name"], {}).get(arm["name"], {}).items()}
            for arm in arms
        }
        for each in workloads
    }
    data = {
        "arms": [{"name": arm["name"]} for arm in arms],
        "workloads": [{name: each.get(name) for name in ("name", "about", "unit", "cores")} for each in workloads],
        "figures": [{name: each.get(name) or "" for name in ("name", "title", "unit", "better")} for each in figures],
        "layers": layers,
        "cells": cells,
        "colours": COLOURS,
    }
    replacements = {
        "@HEAD@": _head(table),
        "@LEGEND@": _legend(arms),
        "@TABLES@": "\n".join([*(_workload(each, arms, figures, layers, cells) for each in workloads), _differences(table)]),
    }
    scripts = [HERE / name for name in SCRIPTS]
    return page_template.page(HERE / "page.html", table["title"], replacements, [SHARED_STYLE, HERE / "page.css"], data, scripts)


def _cell(value: object) -> dict[str, float | None]:
    """Returns mean, low and high of a cell. A number without an interval is a mean alone. JSON has no NaN, so NaN is unknown."""
    members = value if isinstance(value, Mapping) else {"mean": value}
    return {name: _finite(members.get(name)) for name in MEMBERS}


def _finite(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None  # type: ignore[arg-type,return-value]


def _head(table: Mapping) -> str:
    parts = []
    if table.get("model"):
        name = html.escape(str(table["model"]))
        parts.append(f'<p><span class="modelled">modelled ({name})</span> No time, power or energy on this page is of a real machine.</p>')
    parts += [f'<p class="note">{html.escape(str(each))}</p>' for each in table.get("remarks") or ()]
    if link := table.get("logs"):
        parts.append(f'<p><a href="{html.escape(_relative(str(link)))}">The logs of these runs, over time</a></p>')
    return "\n".join(parts)


def _relative(link: str) -> str:
    """Returns a link to a file beside the page. Raises UsageError for any other address."""
    if urlsplit(link).scheme or link.startswith(("/", "\\")):
        raise UsageError(f"the link to the logs must be relative to the page, '{link}' is not")
    return quote(f"./{link}", safe="/#.")


def _legend(arms: Sequence[Mapping]) -> str:
    rows = "".join(
        f'<tr><td><svg class="key" viewBox="0 0 38 14" aria-hidden="true"></svg></td>'
        f"<td><strong>{html.escape(arm['name'])}</strong></td><td>{html.escape(arm.get('about') or '')}</td></tr>"
        for arm in arms
    )
    return f'<table class="arms">{rows}</table>'


def _workload(each: Mapping, arms: Sequence[Mapping], figures: Sequence[Mapping], layers: Sequence[str], cells: Mapping) -> str:
    """Returns the figures of one workload: a row for each figure, a column for each arm, then ratios to the first arm."""
    names = [arm["name"] for arm in arms]
    of = [cells[each["name"]][name] for name in names]
    ratio_heads = [f"{name} / {names[0]}" for name in names[1:]]
    head = "".join(f"<th>{html.escape(text)}</th>" for text in ("figure", *names, *ratio_heads))
    unit = each.get("unit") or "unit"
    listed = [(row["name"], _title(row, unit), row.get("better")) for row in figures]
    listed += [(f"instructions: {layer}", f"instructions a {unit}, {layer}", "low") for layer in layers]
    rows = []
    for name, title, better in listed:
        found = [cell.get(name) for cell in of]
        if not any(value and value["mean"] is not None for value in found):
            continue
        best = _best(found, better)
        body = [f"<td{' class=better' if at == best else ''}>{_value(value)}</td>" for at, value in enumerate(found)]
        body += [_ratio(found[0], value) for value in found[1:]]
        rows.append(f"<tr><td>{html.escape(title)}</td>{''.join(body)}</tr>")
    cores = each.get("cores")
    # Scripts hide the tables of other numbers of cores than the chosen one.
    chosen = f' data-cores="{html.escape(str(cores))}"' if cores else ""
    facts = [each.get("about") or "", f"{cores} core{'s' * (cores != 1)}" if cores else ""]
    about = html.escape("; ".join(filter(None, facts)))
    content = f'<table class="values"><tr>{head}</tr>{"".join(rows)}</table>' if rows else f"<p>{NOT_KNOWN}</p>"
    note = "Bold: best of the arms."
    if any(value and _has_interval(value) for cell in of for value in cell.values()):
        note = f"The interval is the 95 % confidence interval of the mean. {note} In brackets: ratios whose intervals overlap."
    return (
        f'<details class="tables" open{chosen}><summary>{html.escape(each["name"])}</summary>'
        f'<p>{about}</p>{content}<p class="hint">{note}</p></details>'
    )


def _title(figure: Mapping, counted: str) -> str:
    """Returns a figure's title with its unit. In a unit such as "a @", the sign stands for what the workload counts."""
    unit = (figure.get("unit") or "").replace("@", counted)
    return f"{figure['title']} ({unit})" if unit else figure["title"]


def _best(found: Sequence[dict | None], better: str | None) -> int | None:
    """Returns the number of the arm with the best value; None if values are missing or equal, or if no direction is better."""
    values = [value["mean"] if value else None for value in found]
    if better not in ("low", "high") or None in values or len(set(values)) < 2:
        return None
    return values.index((min if better == "low" else max)(values))


def _value(value: dict | None) -> str:
    if value is None or value["mean"] is None:
        return NOT_KNOWN
    text = number_text(value["mean"])
    if not _has_interval(value):
        return text
    return f"{text} <small>({number_text(value['low'])} to {number_text(value['high'])})</small>"


def _has_interval(value: dict) -> bool:
    return value["low"] is not None and value["high"] is not None and value["low"] != value["high"]


def _ratio(first: dict | None, value: dict | None) -> str:
    if not first or not value or not first["mean"] or value["mean"] is None:
        return "<td>-</td>"
    text = f"{value['mean'] / first['mean']:.3g}"
    return f'<td class="close">({text})</td>' if _overlap(first, value) else f"<td>{text}</td>"


def _overlap(first: dict, value: dict) -> bool:
    """True if the two confidence intervals have a common value. Two exact counts do not overlap."""
    if None in (first["low"], first["high"], value["low"], value["high"]):
        return False
    return (
        first["low"] <= value["high"] and value["low"] <= first["high"] and (first["low"], value["low"]) != (first["high"], value["high"])
    )


def number_text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _differences(table: Mapping) -> str:
    """Returns the facts in which the arms' machines differ. A difference is a text, or an object with a name and a value for each arm."""
    found = table.get("machine_differences") or ()
    if not found:
        return ""
    rows = []
    for each in found:
        if isinstance(each, Mapping):
            texts = [str(value) for value in each.values()]
        elif isinstance(each, str):
            texts = [each]
        else:
            texts = [str(value) for value in each]
        rows.append("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in texts) + "</tr>")
    table_text = f'<table class="configuration">{"".join(rows)}</table>'
    return f'<details class="tables"><summary>Differences of the machines</summary>{table_text}</details>'
