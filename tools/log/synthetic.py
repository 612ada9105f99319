# SPDX-License-Identifier: BSL-1.0
"""Makes logs of any length for tests, with energy and residencies, which the emulated CPU does not have.

`Truth` holds the correct figures, which a tool under test must compute from the log.
"""

import dataclasses
from pathlib import Path

import numpy as np

from tools.log import layout, schema
from tools.log.decode import (
    ANCHOR,
    CONFIGURED,
    COUNTERS,
    EVENT_COUNTS,
    EVENTS,
    IDLE,
    INTERRUPT,
    MARK,
    POLICY,
    RESIDENCY,
    SAMPLE,
    SETTINGS,
    START,
    STOP,
    dtype,
)

SCHEMA = schema.parse({})
TYPES = {name: dtype(form) for name, form in SCHEMA.form.items()}
BOOT_ID = "0123456789abcdef"
COUNTER_MASK = (1 << 48) - 1
# Members of a header that describe the image, the machine and the card.
FACTS = {
    "commit": "0123456789ab+",
    "build": "release",
    "compiler": "A compiler 19.1",
    "command_line": "ip=10.0.0.2/24 itr=8us control_token=***",
    "microcode": "0x71a",
    "cpu_signature": "06-2d-07",
    "limits": {"c_state": "c7", "c_state_locked": True, "turbo_off_by_firmware": False, "power_limit_mw": 115000},
    "frequencies_mhz": {"minimum": 1200, "base": 2900, "maximum": 3800},
    "c_states": [
        {"name": "c1", "hint": "0x0", "wake_up_us": 2, "target_us": 4, "source": "table"},
        {"name": "c6", "hint": "0x20", "wake_up_us": 104, "target_us": 312, "source": "measured"},
    ],
    "card": {"name": "82599", "id": "0x10fb", "revision": 1, "queues": 4},
    "link": {"up": True, "mbps": 10000},
    "card_counters_start": {"rx_packets": 10, "rx_missed": 0},
    "card_counters_stop": {"rx_packets": 1010, "rx_missed": 3},
}
# The values of settings at the start, by the setting's number. The settings with a field of their own have the field's value.
STATED = {0: 5, 1: 8, 2: 0, 3: 0, 4: 2, 5: 0, 6: 512, 7: 512, 8: 64, 9: 36, 10: 8, 11: 0, 12: 1, 13: 0, 21: 0}
EVENT_SHARES = (0.002, 0.0005, 0.01)
# Marks of the load, and the share of the run at which each of them is.
MARKS = ((0, 0.0), (1, 0.1), (2, 0.2), (3, 0.8), (4, 0.9))


@dataclasses.dataclass
class Shape:
    """Size and content of a log. `counters`: the counters that its CPU has."""

    cores: int = 2
    packages: int = 1
    records: int = 1000
    tsc_hz: int = 2_000_000_000
    seconds: float = 1.0
    watts: float = 40.0
    counters: tuple[str, ...] = COUNTERS
    sample_every: int = 10
    changes: int = 3  # policy changes, evenly spaced
    idle_records: bool = False
    energy_start: int = (1 << 32) - 1000  # the counter wraps soon
    counter_start: int = COUNTER_MASK - 5000
    seed: int = 1
    run: int = 1
    application: str = "memcached"
    package_watts: tuple[float, ...] = ()  # if given, of each package in place of `watts`
    itr_us: int = 8  # of the first policy; the second has twice as much
    performance: int = 0
    power_limit_mw: int = 0
    events: tuple[str, ...] = ()  # names of chosen events; of the i-th, EVENT_SHARES[i] are counted a tick
    facts: bool = False  # the log has FACTS, STATED and MARKS, as those of this version have


@dataclasses.dataclass
class Truth:
    """The correct figures of a log: by core, and joules by package."""

    interrupts: list[int]
    rx_bytes: list[int]
    control_rx_bytes: list[int]
    instructions: list[int]
    joules: list[float]


def about(shape: Shape, core: int) -> dict:
    return {
        "format": "neap-log",
        "version": 1,
        "boot_id": BOOT_ID,
        "run": shape.run,
        "application": shape.application,
        "neap": "0.1.0",
        "core": core,
        "cores": shape.cores,
        "package": core * shape.packages // shape.cores,
        "packages": shape.packages,
        "cpu": "Synthetic CPU",
        "tsc_hz": shape.tsc_hz,
        "wall_clock_at_boot_ns": 1_700_000_000_000_000_000,
        "tsc_at_boot": 0,
        "energy_unit_exponent": 16 if "package_energy" in shape.counters else None,
        "dram_energy_unit_exponent": 16 if "dram_energy" in shape.counters else None,
        "counters": [*shape.counters, *EVENTS[: len(shape.events)]],
        **({"events": list(shape.events)} if shape.events else {}),
        "sample_period_us": 1000,
        "when_full": "stop",
        "control_core": None,
        **schema.DEFAULTS,
        **(FACTS if shape.facts else {}),
    }


def watts_of(shape: Shape, package: int) -> float:
    return shape.package_watts[package] if shape.package_watts else shape.watts


def make(shape: Shape) -> tuple[list[bytes], Truth]:
    """Returns each core's log file, and the figures of the whole log."""
    truth = Truth([], [], [], [], [0.0] * shape.packages)
    files = [_core(shape, core, truth) for core in range(shape.cores)]
    if "package_energy" in shape.counters:
        truth.joules = [round(watts_of(shape, package) * shape.seconds * 65536) / 65536 for package in range(shape.packages)]
    return files, truth


def write(folder: Path, shape: Shape) -> Truth:
    """Makes a log and writes it as core0.log, core1.log, ... to a folder."""
    files, truth = make(shape)
    folder.mkdir(parents=True, exist_ok=True)
    for core, data in enumerate(files):
        (folder / f"core{core}.log").write_bytes(data)
    return truth


def _core(shape: Shape, core: int, truth: Truth) -> bytes:
    random = np.random.default_rng([shape.seed, core])
    begin = 5_000_000_000
    ticks = int(shape.seconds * shape.tsc_hz)
    records = np.zeros(shape.records + 2, TYPES["record"])  # the start record, `shape.records` others, the stop record
    times = np.sort(random.integers(1, ticks, shape.records, dtype=np.uint64))
    records["tsc"] = begin + np.concatenate([[0], times, [ticks]]).astype(np.uint64)
    records["kind"] = INTERRUPT
    records["kind"][0], records["kind"][-1] = START, STOP
    change_at = np.linspace(0, shape.records, shape.changes + 2, dtype=int)[1:-1] if shape.records > shape.changes else np.zeros(0, int)
    records["kind"][change_at] = POLICY
    records["generation"] = 1
    for change in change_at:
        records["generation"][change + 1 :] += 1
    frames = random.poisson(3, len(records)).astype(np.uint32)
    records["rx_frames"] = records["rx_descriptors"] = frames
    records["rx_bytes"] = frames * random.integers(66, 1514, len(records), dtype=np.uint32)
    records["tx_frames"] = frames
    records["tx_descriptors"] = 2 * frames
    records["tx_bytes"] = frames * 200
    records["control_rx_frames"][1::50] = np.minimum(frames[1::50], 1)
    records["control_rx_bytes"] = records["control_rx_frames"] * np.uint32(66)
    interval = np.concatenate([[0], np.diff(records["tsc"])]).astype(np.uint64)
    records["idle_entries"] = 1
    records["idle_ticks"] = interval * np.uint64(6) // np.uint64(10)
    records["idle_state"] = 5
    # The counts of the start record are from before the run.
    records["rx_bytes"][0] = 1_000_000

    sampled = np.zeros(len(records), bool)
    sampled[:: shape.sample_every] = True
    sampled[-1] = True
    events = EVENTS[: len(shape.events)]
    flags = sum(1 << SCHEMA.flags.index(name) for name in (*shape.counters, *events))
    records["flags"] = np.where(sampled, flags, 0)
    elapsed = (records["tsc"] - np.uint64(begin)).astype(np.float64)

    def cumulative(share: float, start: int, mask: int) -> np.ndarray:
        return (np.uint64(start) + np.floor(elapsed * share).astype(np.uint64)) & np.uint64(mask)

    values = {
        "instructions": cumulative(0.6, shape.counter_start, COUNTER_MASK),
        "cycles": cumulative(0.5, shape.counter_start, COUNTER_MASK),
        "reference_cycles": cumulative(0.4, 7, COUNTER_MASK),
        "llc_misses": cumulative(0.001, 3, COUNTER_MASK),
        "dram_energy": cumulative(5 * 65536 / shape.tsc_hz, 11, (1 << 32) - 1),
        **{name: cumulative(share, shape.counter_start, COUNTER_MASK) for name, share in zip(events, EVENT_SHARES)},
        **{name: cumulative(share, 9, (1 << 64) - 1) for name, share in zip(COUNTERS[6:], (0.05, 0.2, 0.3, 0.04, 0.05, 0.1, 0.15))},
    }
    counts = np.round(elapsed / shape.tsc_hz * watts_of(shape, core * shape.packages // shape.cores) * 65536).astype(np.uint64)
    values["package_energy"] = (np.uint64(shape.energy_start) + counts) & np.uint64((1 << 32) - 1)
    entries = _interleave(shape, core, records, sampled, flags, values, change_at)

    if shape.facts:
        entries = _with_facts(entries, core, begin, ticks)
    inside = records[1:]
    truth.interrupts.append(int(np.count_nonzero(inside["kind"] == INTERRUPT)))
    truth.rx_bytes.append(int(inside["rx_bytes"].sum()))
    truth.control_rx_bytes.append(int(inside["control_rx_bytes"].sum()))
    truth.instructions.append(int(np.floor(ticks * 0.6)))
    return layout.build_header(core, len(entries), 0, 0, shape.tsc_hz, about(shape, core)) + entries.tobytes()


def _interleave(shape: Shape, core: int, records, sampled, flags: int, values: dict, change_at) -> np.ndarray:
    """Returns records with the entries that follow them, in the order that the format requires."""
    has_sample, has_residency, has_events = (
        sampled & any(flags >> SCHEMA.flags.index(name) & 1 for name in names) for names in (COUNTERS[:7], COUNTERS[7:], EVENTS)
    )
    has_settings = np.zeros(len(records), bool)
    has_settings[change_at] = True
    has_settings[0] = True
    has_anchor = np.isin(records["kind"], (START, STOP))
    has_idle = np.full(len(records), shape.idle_records)
    has_idle[0] = False
    counts = has_idle.astype(int) + 1 + has_sample + has_residency + has_events + has_settings + has_anchor
    at = np.concatenate([[0], np.cumsum(counts)[:-1]])
    entries = np.zeros(int(counts.sum()), TYPES["record"])

    idle = np.zeros(int(has_idle.sum()), TYPES["idle"])
    idle["tsc"] = records["tsc"][has_idle]
    idle["tsc_asleep"] = idle["tsc"] - records["idle_ticks"][has_idle]
    idle["kind"], idle["idle_state"], idle["cause"], idle["vector"] = IDLE, 5, 1, 64 + core
    entries[at[has_idle]] = idle.view(TYPES["record"])
    at = at + has_idle
    entries[at] = records
    at = at + 1
    for mask, entry_type, kind, names in (
        (has_sample, TYPES["sample"], SAMPLE, COUNTERS[:7]),
        (has_residency, TYPES["residency"], RESIDENCY, COUNTERS[7:]),
        (has_events, TYPES["events"], EVENT_COUNTS, EVENTS),
    ):
        rows = np.zeros(int(mask.sum()), entry_type)
        rows["tsc"], rows["kind"], rows["flags"] = records["tsc"][mask], kind, flags
        for name in names:
            if flags >> SCHEMA.flags.index(name) & 1:
                rows[name] = values[name][mask]
        entries[at[mask]] = rows.view(TYPES["record"])
        at = at + mask
    anchors = np.zeros(int(has_anchor.sum()), TYPES["anchor"])
    anchors["tsc"], anchors["kind"] = records["tsc"][has_anchor], ANCHOR
    anchors["requests"] = [1000, 1000 + shape.records]
    anchors["package"], anchors["run"] = core * shape.packages // shape.cores, shape.run
    entries[at[has_anchor]] = anchors.view(TYPES["record"])
    at = at + has_anchor
    settings = np.zeros(int(has_settings.sum()), TYPES["settings"])
    settings["tsc"], settings["kind"], settings["idle_state"] = records["tsc"][has_settings], SETTINGS, 5
    settings["generation"] = np.arange(1, len(settings) + 1)
    settings["changed"] = [255, *([1] * (len(settings) - 1))]
    settings["itr_us"] = shape.itr_us * settings["generation"]
    settings["performance"], settings["power_limit_mw"] = shape.performance, shape.power_limit_mw
    settings["turbo"] = 2
    entries[at[has_settings]] = settings.view(TYPES["record"])
    return entries


def _with_facts(entries: np.ndarray, core: int, begin: int, ticks: int) -> np.ndarray:
    """Returns a core's entries with one more for each setting behind the settings of the start, and on core 0 with the load's marks."""
    start = int(np.flatnonzero(entries["kind"] == SETTINGS)[0])
    stated = np.repeat(entries[start : start + 1].view(TYPES["settings"]), len(STATED))
    stated["kind"], stated["changed"], stated["card_value"] = CONFIGURED, list(STATED), list(STATED.values())
    entries = np.insert(entries, start + 1, stated.view(TYPES["record"]))
    if core:
        return entries
    marks = np.zeros(len(MARKS), TYPES["mark"])
    marks["kind"], marks["what"] = MARK, [what for what, _ in MARKS]
    marks["tsc"] = [begin + int(ticks * share) for _, share in MARKS]
    # A mark stands before a log record, whose first entry is a Record or an Idle.
    first = np.flatnonzero(np.isin(entries["kind"], (INTERRUPT, POLICY, STOP, IDLE)))
    first = first[np.insert(entries["kind"][first[1:] - 1] != IDLE, 0, True)]
    places = first[np.minimum(np.searchsorted(entries["tsc"][first], marks["tsc"]), len(first) - 1)]
    return np.insert(entries, places, marks.view(TYPES["record"]))
