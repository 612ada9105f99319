# SPDX-License-Identifier: BSL-1.0
"""The modelled CPUs: sim/machine/models/NAME.toml, checked and turned into the flat file that the plugin reads.

The rows below are the list of keys. Each has a range, because a number with a wrong unit or a misplaced point would give a plausible run
with wrong results. The plugin checks relations between keys again (sim/machine/cpu_model.cpp).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.errors import Failure

MODELS = Path(__file__).resolve().parents[2] / "sim/machine/models"

STATES = ("C1", "C1E", "C3", "C6", "C7")
TURBO_RATIOS_MAX = 64
BRAND_CHARACTERS_MAX = 47  # CPUID leaves 80000002h to 80000004h hold 48 bytes with a zero


@dataclass(frozen=True)
class Number:
    low: float
    high: float
    whole: bool = False

    def check(self, value: object) -> str:
        """Empty for a value in range, otherwise what is expected."""
        kinds = (int,) if self.whole else (int, float)
        if isinstance(value, kinds) and not isinstance(value, bool) and self.low <= value <= self.high:
            return ""
        return f"{'a whole number' if self.whole else 'a number'} from {self.low:g} to {self.high:g}"


def whole(low: int, high: int) -> Number:
    return Number(low, high, whole=True)


LATENCY_US = Number(0, 10_000)
CORE_DYNAMIC = Number(0, 100)
CORE_LEAKAGE = Number(0, 100)
WATTS = Number(0, 2000)
RATIO = whole(1, 100)

NUMBERS: dict[str, Number] = {
    "identity.family": whole(6, 6),
    "identity.model": whole(1, 255),
    "identity.stepping": whole(0, 15),
    "identity.package_cores": whole(1, 64),
    "smt.threads": whole(1, 2),
    "smt.thread_speed": Number(0.1, 1),
    "smt.general_counters": whole(1, 8),
    "pace.cycles_per_instruction": Number(0.1, 20),
    "pace.unscaled_ps_per_instruction": Number(0, 10_000),
    "pace.pause_cycles": whole(1, 1000),
    "frequency.min_ratio": RATIO,
    "frequency.efficient_ratio": RATIO,
    "frequency.base_ratio": RATIO,
    "frequency.min_volts": Number(0.3, 2),
    "frequency.max_volts": Number(0.3, 2),
    "sleep.package_exit_latency_us": LATENCY_US,
    "energy.core_dynamic_w_per_v2_ghz": CORE_DYNAMIC,
    "energy.core_leakage_w_per_v": CORE_LEAKAGE,
    "energy.uncore_PC0_w": WATTS,
    "energy.uncore_PC2_w": WATTS,
    "energy.uncore_PC3_w": WATTS,
    "energy.uncore_PC6_w": WATTS,
    "energy.uncore_PC7_w": WATTS,
    "energy.uncore_dynamic_w_per_v2_ghz": CORE_DYNAMIC,
    "energy.dram_idle_w": WATTS,
    "energy.dram_w_per_active_core": WATTS,
    "energy.tdp_w": WATTS,
    "energy.power_min_w": WATTS,
    "energy.power_max_w": WATTS,
    "energy.unit_exponent": whole(8, 20),
    "energy.dram_unit_exponent": whole(8, 20),
    "counters.general": whole(1, 8),
}
SLEEP_NUMBERS: dict[str, Number] = {
    "hint": whole(0, 0xEF),
    "exit_latency_us": LATENCY_US,
    "target_residency_us": LATENCY_US,
    "dynamic_w_per_v2_ghz": CORE_DYNAMIC,
    "leakage_w_per_v": CORE_LEAKAGE,
}
FLAGS = ("frequency.per_core", "frequency.hwp")
TEXTS = ("identity.name", "identity.brand", "identity.qemu_cpu")
LISTS = ("identity.qemu_features", "frequency.turbo_ratios")
# For QEMU's command line only.
NOT_FOR_PLUGIN = ("identity.brand", "identity.qemu_cpu", "identity.qemu_features")


@dataclass(frozen=True)
class CpuModel:
    """A checked model. `values` has the keys in dotted form."""

    values: dict[str, Any]

    @property
    def name(self) -> str:
        return self.values["identity.name"]

    @property
    def threads(self) -> int:
        """The threads of each core."""
        return self.values["smt.threads"]

    @property
    def brand(self) -> str:
        return self.values["identity.brand"]

    def qemu_cpu(self) -> str:
        """The value of QEMU's -cpu: a CPU of QEMU's that has the instructions, with this model's identity."""
        of = self.values
        words = [of["identity.qemu_cpu"], "vendor=GenuineIntel", "-hypervisor", "+monitor"]
        words += [f"{key}={of[f'identity.{key}']}" for key in ("family", "model", "stepping")]
        words += [f"model-id={self.brand}", *of["identity.qemu_features"]]
        return ",".join(words)

    def flat(self) -> str:
        """The text of the file that the plugin reads."""
        return "".join(f"{key} = {_flat(value)}\n" for key, value in sorted(self.values.items()) if key not in NOT_FOR_PLUGIN)


def names() -> list[str]:
    return sorted(path.stem for path in MODELS.glob("*.toml"))


def load(name: str, *, smt: bool = False) -> CpuModel:
    """The model of this name, or of this file (NAME ends in .toml). Raises Failure with one sentence. Without `smt`, firmware turned the
    second threads off."""
    path = Path(name) if name.endswith(".toml") else MODELS / f"{name}.toml"
    if not path.is_file():
        raise Failure(f"there is no CPU model '{name}'", f"models: {' '.join(names())}; or the path of a .toml file")
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"{path.name} is no TOML: {error}") from None
    values = dict(_dotted(content))
    if problem := next(_problems(values), None):
        raise Failure(f"{path.name}: {problem}")
    if smt and values["smt.threads"] == 1:
        raise Failure(f"the CPU model '{values['identity.name']}' has one thread for each core", "leave --smt out")
    if not smt:
        values["smt.threads"] = 1
    return CpuModel(values)


def _dotted(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _problems(values: dict[str, Any]) -> Iterator[str]:
    numbers = NUMBERS | {f"sleep.{state}.{key}": number for state in _states(values) for key, number in SLEEP_NUMBERS.items()}
    known = {*numbers, *FLAGS, *TEXTS, *LISTS}
    for key in values:
        if key not in known:
            yield f"unknown key {key}"
    for key in sorted(known):
        if key not in values:
            yield f"{key} is missing"
    for key, number in numbers.items():
        if expected := number.check(values[key]):
            yield f"{key} takes {expected}, not {values[key]!r}"
    for key in FLAGS:
        if not isinstance(values[key], bool):
            yield f"{key} takes true or false, not {values[key]!r}"
    for key in TEXTS:
        if not isinstance(values[key], str) or not values[key] or "," in values[key]:
            yield f"{key} takes a text without commas, not {values[key]!r}"
    if len(values["identity.brand"]) > BRAND_CHARACTERS_MAX:
        yield f"identity.brand has more than {BRAND_CHARACTERS_MAX} characters"
    features = values["identity.qemu_features"]
    if not isinstance(features, list) or not all(isinstance(word, str) and word[:1] in ("+", "-") for word in features):
        yield "identity.qemu_features takes words that begin with + or -"
    yield from _problems_of_ratios(values)
    yield from _problems_of_states(values)


def _states(values: dict[str, Any]) -> list[str]:
    return [state for state in STATES if any(key.startswith(f"sleep.{state}.") for key in values)]


def _problems_of_ratios(values: dict[str, Any]) -> Iterator[str]:
    turbo = values["frequency.turbo_ratios"]
    if not isinstance(turbo, list) or not 1 <= len(turbo) <= TURBO_RATIOS_MAX or any(RATIO.check(ratio) for ratio in turbo):
        yield f"frequency.turbo_ratios takes 1 to {TURBO_RATIOS_MAX} whole numbers from {RATIO.low:g} to {RATIO.high:g}"
    elif turbo != sorted(turbo, reverse=True) or turbo[-1] < values["frequency.base_ratio"]:
        yield "frequency.turbo_ratios must fall, down to frequency.base_ratio at most"
    if not values["frequency.min_ratio"] <= values["frequency.efficient_ratio"] <= values["frequency.base_ratio"]:
        yield "frequency.min_ratio, efficient_ratio and base_ratio must rise in this order"
    if values["frequency.min_volts"] > values["frequency.max_volts"]:
        yield "frequency.min_volts is above frequency.max_volts"


def _problems_of_states(values: dict[str, Any]) -> Iterator[str]:
    states = _states(values)
    if "C1" not in states:
        yield "sleep.C1 is missing: HLT needs it"
    for key in ("hint", "exit_latency_us"):
        numbers = [values[f"sleep.{state}.{key}"] for state in states]
        if numbers != sorted(numbers):
            yield f"sleep.*.{key} must rise from state to state"


def _flat(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return " ".join(str(one) for one in value)
    return str(value)
