# SPDX-License-Identifier: BSL-1.0
"""Settings and their changes in few lines: one line for all cores that share a value, and one for each group of cores that differ."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

# Longer texts continue on the next line.
WIDTH = 110
# The members of a row of settings that are values at the start of a run, with their text.
AT_START = {
    "idle": lambda row: f"idle={row['idle']}",
    "itr_us": lambda row: f"itr={row['itr_us']}us",
    "poll_budget_us": lambda row: f"poll_budget={row['poll_budget_us']}us",
    "pstate": lambda row: f"pstate={'none' if row['pstate'] == '0x0' else row['pstate']}",
    "power_limit_mw": lambda row: "power_limit=" + (f"{row['power_limit_mw'] / 1000:g}W" if row["power_limit_mw"] else "none"),
    "turbo": lambda row: f"turbo={row['turbo']}",
}


def change_text(setting: dict) -> str:
    """Returns a changed setting and its value, like 'itr=8us'."""
    if "value" not in setting:
        known = [AT_START[name](setting) for name in ("idle", "itr_us") if setting[name] is not None]
        return f"start: {' '.join(known)}" if known else "start"
    return f"{setting['changed']}={setting['value']}"


def folded(settings: Sequence[dict], cores: Iterable[int], stated: Sequence[dict] = ()) -> list[dict]:
    """Returns rows with `seconds` (of the first core), `cores` as text, `text`, and `generation`. `cores`: those with a log. `stated`: the
    settings at the start, as configuration.describe returns them. Without them, those of the rows of the start are taken."""
    everywhere = sorted(set(cores))
    by_core: dict[int, dict[str, str]] = {}
    for each in stated:
        for core in each["cores"]:
            by_core.setdefault(core, {})[each["setting"]] = f"{each['setting']}={each['value']}"
    found = [*_at_start([row for row in settings if "value" not in row], everywhere, by_core)]
    groups: dict[tuple, list[dict]] = {}
    for row in settings:
        if "value" in row:
            groups.setdefault((row["generation"], change_text(row)), []).append(row)
    found += [_row(rows, text, everywhere) for (_, text), rows in groups.items()]
    return sorted(found, key=lambda row: row["seconds"])


def _at_start(rows: list[dict], everywhere: list[int], stated: Mapping[int, dict[str, str]]) -> list[dict]:
    """Folds the cores' settings at the start: a line with the values that all cores share, then a line for each group that differs."""
    if not rows:
        return []
    texts = [stated.get(row["core"]) or {name: text(row) for name, text in AT_START.items() if row[name] is not None} for row in rows]
    known = list(dict.fromkeys(name for each in texts for name in each))
    shared = [name for name in known if len({each.get(name) for each in texts}) == 1]
    found = [_row(rows, "start: " + " ".join(texts[0][name] for name in shared), everywhere)] if shared else []
    groups: dict[str, list[dict]] = {}
    for row, each in zip(rows, texts):
        groups.setdefault(" ".join(each[name] for name in known if name in each and name not in shared), []).append(row)
    return found + [_row(members, f"start: {text}", everywhere) for text, members in groups.items() if text]


def _row(rows: list[dict], text: str, everywhere: list[int]) -> dict:
    return {
        "seconds": min(row["seconds"] for row in rows),
        "cores": cores_text(sorted({row["core"] for row in rows}), everywhere),
        "text": text,
        "generation": rows[0]["generation"],
    }


def cores_text(cores: Sequence[int], everywhere: Sequence[int]) -> str:
    """Returns 'all cores', 'core 3' or 'cores 0-3,6'."""
    if len(cores) > 1 and list(cores) == list(everywhere):
        return "all cores"
    return f"core{'s' * (len(cores) > 1)} {numbers_text(cores)}"


def numbers_text(cores: Sequence[int]) -> str:
    """Returns '3' or '0-3,6'."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def lines(rows: Sequence[dict]) -> list[str]:
    """Returns the lines of `folded`'s rows, aligned. The settings of a long row continue below its first ones."""
    width = max((len(row["cores"]) for row in rows), default=0)
    said = []
    for row in rows:
        head = f"  {row['seconds']:12.6f} s  {row['cores']:{width}}  "
        text = f"{row['text']}  (generation {row['generation']})"
        if len(text) <= WIDTH:
            said.append(head + text)
        else:
            indent = " " * (len(head) + (len("start: ") if text.startswith("start: ") else 0))
            said += textwrap.wrap(text, len(head) + WIDTH, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False)
    return said
