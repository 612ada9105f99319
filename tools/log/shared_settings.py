# SPDX-License-Identifier: BSL-1.0
"""Settings and their changes in few lines: one line for all cores that share a value, and one for each group of cores that differ."""

from collections.abc import Iterable, Sequence

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
        return f"start: idle={setting['idle']} itr={setting['itr_us']}us"
    return f"{setting['changed']}={setting['value']}"


def folded(settings: Sequence[dict], cores: Iterable[int]) -> list[dict]:
    """Returns rows with `seconds` (of the first core), `cores` as text, `text`, and `generation`. `cores`: those with a log."""
    everywhere = sorted(set(cores))
    found = [*_at_start([row for row in settings if "value" not in row], everywhere)]
    groups: dict[tuple, list[dict]] = {}
    for row in settings:
        if "value" in row:
            groups.setdefault((row["generation"], change_text(row)), []).append(row)
    found += [_row(rows, text, everywhere) for (_, text), rows in groups.items()]
    return sorted(found, key=lambda row: row["seconds"])


def _at_start(rows: list[dict], everywhere: list[int]) -> list[dict]:
    """Folds the cores' settings at the start: a line with the values that all cores share, then a line for each group that differs."""
    if not rows:
        return []
    known = [name for name in AT_START if all(row[name] is not None for row in rows)]
    shared = [name for name in known if len({AT_START[name](row) for row in rows}) == 1]
    different = [name for name in known if name not in shared]
    found = [_row(rows, "start: " + " ".join(AT_START[name](rows[0]) for name in shared), everywhere)] if shared else []
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(" ".join(AT_START[name](row) for name in different), []).append(row)
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
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    texts = [str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts]
    return f"core{'s' * (len(cores) > 1)} {','.join(texts)}"


def lines(rows: Sequence[dict]) -> list[str]:
    """Returns the lines of `folded`'s rows, aligned."""
    width = max((len(row["cores"]) for row in rows), default=0)
    return [f"  {row['seconds']:12.6f} s  {row['cores']:{width}}  {row['text']}  (generation {row['generation']})" for row in rows]
