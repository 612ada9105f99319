# SPDX-License-Identifier: BSL-1.0
"""`./neap top APP|HOST[:PORT]`: the activity of each core, once a second, from the `cores` command.

The machine's numbers are cumulative. The table shows differences over the machine's own clock (`now_ns`), so a late answer does not distort
them. Each request costs the machine a received frame, a sent frame and the wake-up of the core that answers. The first line of the table
says so.
"""

import json
import shutil
import sys
import time

from tools import control_client
from tools.errors import Failure, UsageError
from tools.foreign import decimal, is_word, shown
from tools.machine_registry import find_control

SECONDS_MIN, SECONDS_MAX = 0.1, 3600.0
CORES_MAX = 256
FIELDS_MAX = 64
WORD_CHARACTERS_MAX = 64
RATES = ("interrupts", "records", "rx_frames", "rx_bytes", "tx_frames", "tx_bytes", "sleeps", "unwritten")
CLEAR = "\x1b[H\x1b[J"


def top(target: str, *, pid: int | None, token_file: str | None, seconds: float, once: bool, as_json: bool) -> int:
    """Prints tables until interrupted, or with `once` one table over one interval."""
    if not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise UsageError(f"--seconds takes {SECONDS_MIN:g} to {SECONDS_MAX:g}, not {seconds:g}")
    host, port = find_control(target, pid)
    with control_client.Control(host, port, control_client.read_token(token_file)) as connection:
        before = parse(connection.ask("cores"), connection.name)
        while True:
            time.sleep(seconds)
            now = parse(connection.ask("cores"), connection.name)
            rows = [rates(old, new) for old, new in zip(before, now)]
            before = now
            if as_json:
                print(json.dumps({"target": connection.name, "cores": rows}), flush=True)
            else:
                width = shutil.get_terminal_size((140, 40)).columns if sys.stdout.isatty() else 1000
                text = "\n".join(line[:width] for line in table(connection.name, rows, seconds))
                print((CLEAR if sys.stdout.isatty() and not once else "") + text, flush=True)
            if once:
                return 0


def parse(answer: str, name: str) -> list[dict]:
    """Parses 'ok 0 idle=halt itr_us=16 ...; 1 ...' into one dictionary per core. Raises Failure."""
    if not answer.startswith("ok"):
        raise Failure(f"{name} answered '{answer}' to cores")
    rows = []
    try:
        for part in answer.removeprefix("ok").split(";"):
            words = part.split()
            if not words:
                continue
            fields = dict(word.split("=", 1) for word in words[1:])
            if len(rows) == CORES_MAX or len(fields) > FIELDS_MAX or "core" in fields:
                raise ValueError
            rows.append({"core": decimal(words[0], CORES_MAX - 1), **{key: _value(key, value) for key, value in fields.items()}})
            if not isinstance(rows[-1].get("now_ns"), int):
                raise ValueError
    except ValueError:
        rows = []
    if not rows:
        raise Failure(f"{name} gave an answer to cores that this version does not understand")
    return rows


def _value(key: str, text: str) -> int | str:
    """Returns the value of `key`. A counter must be a number; a setting may be a word. Raises ValueError for anything else."""
    if key in (*RATES, "asleep_ns", "now_ns") or text.isdecimal():
        return decimal(text)
    if not is_word(key, WORD_CHARACTERS_MAX) or not is_word(text, WORD_CHARACTERS_MAX):
        raise ValueError
    return text


def rates(before: dict, now: dict) -> dict:
    """Returns increases per second, and the share of time asleep, between two answers. None for a counter that the answers lack."""
    elapsed_ns = now["now_ns"] - before["now_ns"]

    def grown(name: str) -> int | None:
        old, new = before.get(name), now.get(name)
        return max(0, new - old) if isinstance(old, int) and isinstance(new, int) else None

    row = {name: value for name, value in now.items() if name not in (*RATES, "asleep_ns", "now_ns")}
    row["seconds"] = elapsed_ns / 1e9
    for name in RATES:
        grew = grown(name)
        row[f"{name}_per_second"] = None if grew is None or elapsed_ns <= 0 else grew * 1e9 / elapsed_ns
    asleep = grown("asleep_ns")
    if not asleep and not any(grown(name) for name in ("sleeps", "interrupts", "records")):
        asleep = None  # older images count a sleep at its end, so a sleep over the whole interval is missing
    row["asleep_share"] = None if asleep is None or elapsed_ns <= 0 else min(1.0, asleep / elapsed_ns)
    return row


COLUMNS = (
    ("core", "core", 5),
    ("irq/s", "interrupts_per_second", 9),
    ("rx fr/s", "rx_frames_per_second", 9),
    ("rx kB/s", "rx_bytes_per_second", 10),
    ("tx fr/s", "tx_frames_per_second", 9),
    ("tx kB/s", "tx_bytes_per_second", 10),
    ("sleeps/s", "sleeps_per_second", 9),
    ("asleep", "asleep_share", 7),
    ("log/s", "records_per_second", 9),
    ("full/s", "unwritten_per_second", 7),
    ("idle", "idle", 8),
    ("itr us", "itr_us", 7),
    ("poll us", "poll_budget_us", 8),
    ("pstate", "pstate", 10),
    ("limit mW", "power_limit_mw", 9),
    ("turbo", "turbo", 8),
)


def table(name: str, rows: list[dict], seconds: float) -> list[str]:
    lines = [f"{name}: {len(rows)} cores, every {seconds:g} s (each look wakes the core that answers it)"]
    lines.append("".join(f"{title:>{width}}" for title, _, width in COLUMNS))
    return lines + ["".join(f"{_cell(key, row.get(key)):>{width}}" for _, key, width in COLUMNS) for row in rows]


def _cell(key: str, value) -> str:
    if value is None:
        return "-"
    if key == "asleep_share":
        return f"{100 * value:.1f}%"
    if key.endswith("_bytes_per_second"):
        return f"{value / 1000:,.1f}"
    if key.endswith("_per_second"):
        return f"{value:,.0f}"
    return shown(value)
