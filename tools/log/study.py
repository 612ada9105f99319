# SPDX-License-Identifier: BSL-1.0
"""`./neap log csv --study ITR_DVFS_RAPL`: one file per core, in the format that the published studies' scripts read.

The columns are `i rx_desc rx_bytes tx_desc tx_bytes instructions cycles ref_cycles llc_miss c1 c1e c3 c6 c7 joules tsc`, separated by
spaces, without a line of names. Files are named `APPLICATION.log.i_Core_ITR_DVFS_RAPL`. As in the studies, 0 in a counter's column means
that the counter was not sampled in this row. Here 0 also means that the CPU lacks the counter. Counters are cumulative. c1 to c7 count how
often each idle state was requested (HLT counts as c1). c1 to c7 are also 0 in a row without sampled counters. `joules` are counts of 15.26
uJ (2^-16 J), whatever the CPU's own unit, and do not wrap.
"""

import re
from pathlib import Path

import numpy as np

from tools.errors import Failure, UsageError
from tools.log.decode import RunLog
from tools.log.tables import Making
from tools.log.trim import CoreRun, EnergySeries, package_energy, packages, trim

COLUMNS = tuple("i rx_desc rx_bytes tx_desc tx_bytes instructions cycles ref_cycles llc_miss c1 c1e c3 c6 c7 joules tsc".split())
# Maps each column to the idle states whose requests it counts.
ENTRIES = {"c1": ("halt", "c1"), "c1e": ("c1e",), "c3": ("c3",), "c6": ("c6",), "c7": ("c7",)}
COUNTERS = {"instructions": "instructions", "cycles": "cycles", "ref_cycles": "reference_cycles", "llc_miss": "llc_misses"}
UNITS_PER_JOULE = 65536
NAME = re.compile(r"[0-9A-Za-z.]{1,20}_[0-9A-Za-z.]{1,20}_[0-9A-Za-z.]{1,20}")
ROWS_AT_ONCE = 100_000
# The maximum length of the application's name in a file's name, which may have 255 bytes.
APPLICATION_LETTERS = 100


def check_name(text: str) -> str:
    """Returns a name like '8_0x1800_135'. Raises UsageError for any other text."""
    if not NAME.fullmatch(text):
        raise UsageError(f"--study takes ITR_DVFS_RAPL, like 8_0x1800_135, not '{text}'")
    return text


def write(run: RunLog, name: str, repetition: int, folder: Path) -> list[Path]:
    """Writes one file per core. `name`: the settings in the files' names, as the user gave them."""
    cores = [trim(core) for core in run.cores]
    energy = {number: package_energy(run, members, "package_energy") for number, members in packages(cores).items()}
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for core in cores:
            application = re.sub(r"[^A-Za-z0-9_.-]", "_", run.about.get("application", "neap"))[:APPLICATION_LETTERS]
            path = folder / f"{application}.log.{repetition}_{core.log.core}_{name}"
            rows = table(core, energy[core.log.package])
            with Making(path) as making, open(making, "w") as out:
                for at in range(0, len(rows), ROWS_AT_ONCE):
                    out.writelines(" ".join(map(str, row)) + "\n" for row in rows[at : at + ROWS_AT_ONCE].tolist())
            written.append(path)
    except OSError as error:
        raise Failure(f"cannot write to {folder}: {error.strerror}") from None
    return written


def table(core: CoreRun, energy: EnergySeries | None) -> np.ndarray:
    """Returns the rows of one core as unsigned integers, in COLUMNS' order."""
    records = core.records
    columns = {name: np.zeros(len(records), np.uint64) for name in COLUMNS}
    columns["i"] = np.arange(len(records), dtype=np.uint64)
    columns["tsc"] = records["tsc"]
    for name, field in (("rx_desc", "rx_descriptors"), ("rx_bytes", "rx_bytes"), ("tx_desc", "tx_descriptors"), ("tx_bytes", "tx_bytes")):
        columns[name] = records[field].astype(np.uint64)
    sampled = np.zeros(len(records), bool)
    for name, counter in COUNTERS.items():
        found = core.counter(counter)
        columns[name][found.present] = found.values[found.present]
        sampled |= found.present
    if energy is not None:
        present = core.counter("package_energy").present
        sampled |= present
        at = np.searchsorted(energy.tsc, records["tsc"][present])
        counts = np.round(energy.joules[np.minimum(at, len(energy.joules) - 1)] * UNITS_PER_JOULE).astype(np.uint64)
        # The counts begin with 1, because 0 means that nothing was sampled.
        columns["joules"][present] = counts + np.uint64(1)
    idle_states = core.log.schema.idle_states
    for name, names in ENTRIES.items():
        states = [state for state, idle_name in enumerate(idle_states) if idle_name in names]
        entries = np.cumsum(np.where(np.isin(records["idle_state"], states), records["idle_entries"], 0).astype(np.uint64))
        columns[name][sampled] = entries[sampled]
    return (
        np.column_stack([columns[name].astype(np.uint64) for name in COLUMNS]) if len(records) else np.zeros((0, len(COLUMNS)), np.uint64)
    )
