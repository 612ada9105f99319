# SPDX-License-Identifier: BSL-1.0
"""Logs that a test writes entry by entry."""

from pathlib import Path

import numpy as np

from tools.log import layout, synthetic
from tools.log.decode import CONFIGURED, COUNTERS, MARK, SAMPLE, SETTINGS
from tools.log.synthetic import TYPES

HZ = 1_000_000_000


def entry(form: str, **fields) -> bytes:
    made = np.zeros(1, TYPES[form])
    for name, value in fields.items():
        made[name] = value
    return made.tobytes()


def record(kind: int, tsc: int, sampled: dict | None = None, **fields) -> bytes:
    flags = sum(1 << COUNTERS.index(name) for name in sampled or {})
    data = entry("record", kind=kind, tsc=tsc, flags=flags, **fields)
    return data + (entry("sample", kind=SAMPLE, tsc=tsc, flags=flags, **sampled) if sampled else b"")


def write_core(folder: Path, core: int, entries: bytes, cores: int = 2, **about) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = {**synthetic.about(synthetic.Shape(cores=cores, tsc_hz=HZ), core), "package": 0, **about}
    (folder / f"core{core}.log").write_bytes(layout.build_header(core, len(entries) // 64, 0, 0, HZ, text) + entries)


def setting(tsc: int, number: int, value: int, *, generation: int = 1, kind: int = SETTINGS, **fields) -> bytes:
    """Returns a settings entry. `number` is the setting's, 255 at the start; `value` is the card_value."""
    return entry("settings", tsc=tsc, kind=kind, changed=number, card_value=value, generation=generation, **fields)


def configured(tsc: int, values: dict[int, int], **fields) -> bytes:
    """Returns an entry for each setting, by the setting's number."""
    return b"".join(setting(tsc, number, value, kind=CONFIGURED, **fields) for number, value in values.items())


def mark(tsc: int, what: str) -> bytes:
    return entry("mark", tsc=tsc, kind=MARK, what=("preload", "warm_up", "window", "drain", "end").index(what))
