# SPDX-License-Identifier: BSL-1.0
"""The files of the published studies: names, columns, and what the studies' scripts ("cleaners") assume.

Three layouts exist. `linux` and `ebbrt` are those that the cleaners of memcached read on the two systems: 16 files of one core each, a file
with the run's bounds (`rdtsc`) and the load generator's table (`out`). `log` is that of the dissertation's listing: files of cores alone.

The cleaners fix several numbers. A TSC makes 2,899,999,000 ticks a second, energy counts in 15.26 uJ, and there are 16 cores, of which core
0 gives the energy of one package and core 1 that of the other. They drop each row in which one of five counters is 0, or in which energy
did not grow, with all its growth. They read only files whose names have settings from their lists. The EbbRT cleaner reads 20 s.
"""

import dataclasses
import re

from tools.errors import UsageError

CLOCK_HZ = 2_899_999_000
CORES = 16
PACKAGES = 2
EBBRT_SECONDS = 20.0
UNITS_PER_JOULE = 65536

LINUX_COLUMNS = tuple("i rx_desc rx_bytes tx_desc tx_bytes instructions cycles ref_cycles llc_miss c1 c1e c3 c6 c7 joules tsc".split())
EBBRT_COLUMNS = tuple("i rx_desc rx_bytes tx_desc tx_bytes instructions cycles ref_cycles llc_miss c3 c6 c7 joules tsc".split())
# Columns of published files by their number. Older Linux files have c0; the first EbbRT files have neither reference cycles nor states.
COLUMNS_BY_NUMBER = {
    17: (*LINUX_COLUMNS[:9], "c0", *LINUX_COLUMNS[9:]),
    16: LINUX_COLUMNS,
    14: EBBRT_COLUMNS,
    10: tuple("i rx_desc rx_bytes tx_desc tx_bytes instructions cycles llc_miss joules tsc".split()),
}
# Column sets in which c3 to c7 count the entries since the last sample. In the others they are cumulative.
ENTRIES_IN_INTERVAL = (EBBRT_COLUMNS,)
_PART = r"[0-9A-Za-z.]{1,20}"
SETTING = re.compile(rf"({_PART})_({_PART})_({_PART})")


@dataclasses.dataclass(frozen=True)
class Setting:
    """The settings in the files' names. `itr` in microseconds, `dvfs` the value written to PERF_CTL, `rapl` in watts."""

    itr: str
    dvfs: str
    rapl: str

    def __str__(self) -> str:
        return f"{self.itr}_{self.dvfs}_{self.rapl}"


@dataclasses.dataclass(frozen=True)
class Layout:
    """One layout. `lists`: the values that its cleaner looks for, by the part of the name; other files are not read by it."""

    name: str
    columns: tuple[str, ...]
    core_file: str
    other_files: str
    cumulative_states: bool
    heading: bool
    lists: dict[str, tuple[str, ...]]
    # Lines of a core and its package. No published file; written if the packages do not alternate, which readers assume without it.
    packages_file: str = ""


_DVFS = tuple("0xd00 0xf00 0x1100 0x1200 0x1300 0x1400 0x1500 0x1700 0x1800 0x1900 0x1a00 0x1b00 0x1c00 0x1d00".split())
_RAPL = ("135", "95", "75", "55")
LAYOUTS = {
    "linux": Layout(
        name="linux",
        columns=LINUX_COLUMNS,
        core_file="linux.mcd.dmesg.{repetition}_{core}_{setting}_{qps}",
        other_files="linux.mcd.{what}.{repetition}_{setting}_{qps}",
        cumulative_states=True,
        heading=False,
        lists={
            "itr": tuple("1 2 4 8 10 20 30 40 50 100 200 300 350 400".split()),
            "dvfs": (*_DVFS, "0xffff"),
            "rapl": _RAPL,
            "qps": tuple("40000 75000 200000 400000 600000 750000".split()),
        },
    ),
    "ebbrt": Layout(
        name="ebbrt",
        columns=EBBRT_COLUMNS,
        core_file="ebbrt_dmesg.{repetition}_{core}_{setting}_{qps}_{sleep}.csv",
        other_files="ebbrt_{what}.{repetition}_{setting}_{qps}_{sleep}",
        cumulative_states=False,
        heading=True,
        lists={
            "itr": tuple("0 2 4 10 20 30 40 50 100 150 200 300 400 666".split()),
            "dvfs": _DVFS,
            "rapl": _RAPL,
            "qps": tuple("40000 50000 75000 100000 200000 400000 600000 1000000 1500000".split()),
            "sleep": ("c1", "c1e", "c3", "c6", "c7"),
        },
    ),
    "log": Layout(
        name="log",
        columns=LINUX_COLUMNS,
        core_file="{application}.log.{repetition}_{core}_{setting}",
        other_files="",
        cumulative_states=True,
        heading=False,
        lists={},
        packages_file="{application}.log.packages.{repetition}_{setting}",
    ),
}
REPETITIONS = 10


def parse_setting(text: str, option: str) -> Setting:
    """Returns the settings in a text like '8_0x1800_135'. Raises UsageError for any other text."""
    match = SETTING.fullmatch(text)
    if not match:
        raise UsageError(f"{option} takes ITR_DVFS_RAPL, like 8_0x1800_135, not '{text}'")
    return Setting(*match.groups())


def parse_study(text: str) -> tuple[Layout, Setting | None]:
    """Returns the layout that --study names. A setting in place of a layout means the layout `log`. Raises UsageError."""
    if text in LAYOUTS:
        return LAYOUTS[text], None
    if not SETTING.fullmatch(text):
        raise UsageError(f"--study takes ITR_DVFS_RAPL, like 8_0x1800_135, or one of {', '.join(LAYOUTS)}, not '{text}'")
    return LAYOUTS["log"], parse_setting(text, "--study")


def unread(layout: Layout, parts: dict[str, str], repetition: int) -> list[str]:
    """Returns remarks on parts of the files' names that the layout's cleaner does not look for."""
    said = [
        f"the published {layout.name} cleaner looks for {name} {', '.join(known)}; it does not read files of {parts[name]}"
        for name, known in layout.lists.items()
        if parts[name] not in known
    ]
    if layout.lists and repetition >= REPETITIONS:
        said.append(f"the published {layout.name} cleaner looks for repetitions 0 to {REPETITIONS - 1}")
    return said
