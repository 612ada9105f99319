# SPDX-License-Identifier: BSL-1.0
"""Makes logs as `neap-trace` writes them on Linux, for tests of the readers.

The records are those of a synthetic log of Neap with the same shape, so the correct figures are known. What differs: the header's text, the
form of a Record (with the queue and its present `itr`), the settings, the names of idle states, and the requests, which are not counted.
"""

import dataclasses
from pathlib import Path

import numpy as np

from tools.log import layout, schema, synthetic
from tools.log.decode import CONFIGURED, SETTINGS, START, dtype
from tools.log.synthetic import Shape, Truth

FIELDS = {
    **schema.DEFAULTS["fields"],
    "record": "tsc:u64:ticks kind:u8: idle_state:u8: flags:u16: generation:u32: rx_descriptors:u32: rx_frames:u32: rx_bytes:u32:B "
    "tx_descriptors:u32: tx_frames:u32: tx_bytes:u32:B control_rx_frames:u8: control_tx_frames:u8: queue:u16: control_rx_bytes:u8:B "
    "control_tx_bytes:u8:B itr_us:u16:us reserved:u8x4: idle_entries:u32: idle_ticks:u64:ticks",
}
SETTINGS_TEXTS = {
    "0": "idle:idle_state:choice",
    "1": "itr:itr_us::us:0=off|1=adaptive",
    "2": "governor::choice::performance|powersave|schedutil|ondemand|conservative|userspace|other",
    "3": "epp::choice::default|performance|balance_performance|balance_power|power|other",
    "4": "no_turbo::switch",
    "5": "frequency_max:::kHz",
    "6": "rx_ring",
    "16": "adaptive_itr::switch",
    "17": "idle_governor::choice::menu|teo|ladder|haltpoll|other",
}
IDLE_STATES = ["poll", "c1", "c1e", "c3", "c6", "c7s"]
UNKNOWN = ["requests", "rx_descriptors", "tx_descriptors"]
KERNEL = "6.1.0-56-amd64"
# `itr` of a queue whose moderation is adaptive takes these values.
ADAPTIVE_US = (10, 20, 50)
ADAPTIVE, SCHEDUTIL, PERFORMANCE = 1, 2, 0


@dataclasses.dataclass(frozen=True)
class Arm:
    """How Linux is set up."""

    is_adaptive: bool = False
    governor: int = PERFORMANCE


def about(shape: Shape, core: int) -> dict:
    found = synthetic.about(shape, core)
    for name in ("neap", "control_core"):
        del found[name]
    return {
        **found,
        **{"system": "linux", "tracer": "neap-trace 0.1.0", "kernel": KERNEL, "driver": "ixgbe", "interface": "eth0"},
        "unknown": UNKNOWN,
        "command_line": "console=ttyS0 nokaslr",
        "c_states": [{"name": name, "wake_up_us": 2, "target_us": 2, "source": "cpuidle"} for name in IDLE_STATES],
        "idle_states": IDLE_STATES,
        "fields": FIELDS,
        "settings": SETTINGS_TEXTS,
    }


def make(shape: Shape, arm: Arm | None = None) -> tuple[list[bytes], Truth]:
    """Returns each core's log file, and the figures of the whole log. The synthetic log's changes are changes of `itr`."""
    files, truth = synthetic.make(dataclasses.replace(shape, facts=False))
    truth = dataclasses.replace(truth, control_rx_bytes=[0] * shape.cores)
    return [_core(shape, core, data, arm or Arm()) for core, data in enumerate(files)], truth


def write(folder: Path, shape: Shape, arm: Arm | None = None) -> Truth:
    """Makes a log and writes it as core0.log, core1.log, ... to a folder."""
    files, truth = make(shape, arm)
    folder.mkdir(parents=True, exist_ok=True)
    for core, data in enumerate(files):
        (folder / f"core{core}.log").write_bytes(data)
    return truth


def _core(shape: Shape, core: int, data: bytes, arm: Arm) -> bytes:
    text = about(shape, core)
    of_linux = schema.parse(text)
    entries = np.frombuffer(data[layout.HEADER_BYTES :], synthetic.TYPES["record"]).copy()
    is_record = np.isin(entries["kind"], of_linux.kinds_of("record"))
    records = entries[is_record]
    made = np.zeros(len(records), dtype(of_linux.form["record"]))
    for name in ("tsc", "kind", "idle_state", "flags", "generation", "rx_frames", "rx_bytes", "tx_frames", "tx_bytes"):
        made[name] = records[name]
    for name in ("idle_entries", "idle_ticks"):
        made[name] = records[name]
    made["queue"] = core
    made["itr_us"] = np.resize(ADAPTIVE_US, len(made)) if arm.is_adaptive else shape.itr_us * records["generation"]
    entries[is_record] = made.view(synthetic.TYPES["record"])

    settings = entries[entries["kind"] == SETTINGS].view(dtype(of_linux.form["settings"]))
    settings["poll_budget_us"] = settings["performance"] = settings["power_limit_mw"] = 0
    if arm.is_adaptive:
        settings["itr_us"] = ADAPTIVE
    entries[entries["kind"] == SETTINGS] = settings.view(synthetic.TYPES["record"])
    values = {0: 5, 1: int(settings["itr_us"][0]), 2: arm.governor, 3: 2, 4: 0, 5: 2_900_000, 6: 512, 16: int(arm.is_adaptive), 17: 0}
    stated = np.repeat(settings[:1], len(values))
    stated["kind"], stated["changed"], stated["card_value"] = CONFIGURED, list(values), list(values.values())
    start = int(np.flatnonzero(entries["kind"] == SETTINGS)[0])
    assert entries["kind"][0] == START
    entries = np.insert(entries, start + 1, stated.view(synthetic.TYPES["record"]))
    return layout.build_header(core, len(entries), 0, 0, shape.tsc_hz, text) + entries.tobytes()
