# SPDX-License-Identifier: BSL-1.0
"""The settings that a study may sweep: their names in a study's file, and the words of each system that mean them.

Four settings have a unit in their name and a column of their own: itr_us, frequency_ghz (or pstate), idle, rapl_w. Each other name is that
of the setting itself (docs/policy.md). A word is `NAME=VALUE` as on the command line; a real machine gets it over control as `NAME,VALUE`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from tools.errors import UsageError
from tools.foreign import shown
from tools.model import linux
from tools.model.cpu_model import CpuModel
from tools.toml_tables import is_number

Value = float | int | str
NEAP = "neap"
# By the name in a study's file, the name of the word. `governor` is Linux's word for a frequency that the kernel chooses.
WORDS = {"itr_us": "itr", "frequency_ghz": "pstate", "pstate": "pstate", "rapl_w": "power_limit"}
WORD = re.compile(r"[a-z][a-z0-9_]{0,31}=[A-Za-z0-9_.:,/+@-]{1,120}")
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
# RSC waits up to 4 us for further segments, so the card refuses it with a shorter interval (docs/policy.md).
RSC_ITR_US_MIN = 6
ITR_US_MAX = 1024


@dataclasses.dataclass(frozen=True)
class Kind:
    """The values of a setting: names, a range of whole numbers, or a text that the machine checks."""

    names: tuple[str, ...] = ()
    low: int = 0
    high: int = -1
    pattern: str = ""

    def expected(self, value: Value) -> str:
        """Returns what the setting takes; empty if the value is that."""
        text = str(value)
        if text in self.names:
            return ""
        if self.high >= self.low and is_number(value, self.low, self.high):
            return ""
        if self.pattern and re.fullmatch(self.pattern, text):
            return ""
        parts = [f"{self.low} to {self.high}"] if self.high >= self.low else []
        parts += [" ".join(self.names)] if self.names else []
        return " or ".join(parts) or f"a text like {self.pattern}"


SWITCH = Kind(("on", "off"))
RING = Kind(tuple(str(64 << shift) for shift in range(7)))
DURATION = Kind(pattern=r"[0-9]{1,7}(us|ms)")
# docs/policy.md has the meanings; a test compares the names with that table.
NEAP_SETTINGS: Mapping[str, Kind] = {
    "idle": Kind(("halt", "c1", "c1e", "c3", "c6", "c7", "poll", "monitor", "menu", "deepest")),
    "itr": DURATION,
    "poll_budget": DURATION,
    "pstate": Kind(("off",), pattern=r"[1-9][0-9]?|[0-9.]{1,6}[MG]Hz|0x[0-9a-f]{1,4}"),
    "epp": Kind(("performance", "balance_performance", "balance_power", "power", "off"), 0, 255),
    "power_limit": Kind(("off",), pattern=r"[0-9]{1,4}(\.[0-9]{1,3})?W?"),
    "turbo": SWITCH,
    "adaptive_poll": DURATION,
    "monitor_state": Kind(("c1", "c1e", "c3", "c6", "c7", "deepest")),
    "tso": Kind(("off", "copy", "chain")),
    "tcp_congestion": Kind(("cubic", "reno", "dctcp")),
    "tcp_ecn": SWITCH,
    "tcp_pacing": SWITCH,
    "tcp_rto_min": DURATION,
    "tcp_keep_alive": Kind(("off",), 1, 1_000_000),
    "tcp_zero_window": Kind(("off",), 1, 1_000_000),
    "tcp_receive": Kind((), 64, 65_536),
    "tcp_send": Kind((), 64, 65_536),
    "rx_ring": RING,
    "tx_ring": RING,
    "rx_budget": Kind((), 1, 4096),
    "tx_interrupt": SWITCH,
    "pthresh": Kind((), 0, 127),
    "hthresh": Kind((), 0, 127),
    "wthresh": Kind((), 0, 8),
    "head_write_back": SWITCH,
    "rsc": SWITCH,
    "promiscuous": SWITCH,
    "preset": Kind(("study", "default")),
    "steer": Kind(pattern=r"(udp|tcp):[0-9]{1,5}|off"),
    "flow_control": Kind(("off", "receive", "transmit", "both")),
    "dca": SWITCH,
    "vlan": Kind(("off",), 1, 4094),
}


def names_of(system: str) -> list[str]:
    """Returns the names of the settings that a study of this system may sweep."""
    if system == NEAP:
        own = ["itr_us", "frequency_ghz", "pstate", "rapl_w"]
        return [*own, *(name for name in NEAP_SETTINGS if name not in ("itr", "power_limit", *own))]
    return ["itr_us", "frequency_ghz", "pstate", "idle"]


def word(name: str, value: Value, system: str, cpu: CpuModel | None) -> str:
    """Returns the word of a setting. `cpu`: the modelled CPU. Raises UsageError for a value that the system does not take."""
    if name not in names_of(system):
        raise UsageError(f"{name} is no setting of {system}; write one of {', '.join(names_of(system))}")
    if name == "itr_us":
        return _itr(value, system)
    if name in ("frequency_ghz", "pstate"):
        return _frequency(name, value, system, cpu)
    if name == "rapl_w":
        low, high = (cpu.values["energy.power_min_w"], cpu.values["energy.power_max_w"]) if cpu else (1, 10_000)
        if isinstance(value, str) or not low <= value <= high:
            raise UsageError(f"rapl_w takes {low:g} to {high:g} watts{f' on {cpu.name}' if cpu else ''}, not {_shown(value)}")
        return f"power_limit={value:.15g}W"
    if system != NEAP:
        linux.settings([f"{name}={value}"])
    else:
        _check(name, value, cpu)
    return f"{name}={value}"


def _check(name: str, value: Value, cpu: CpuModel | None) -> None:
    """Raises UsageError for a value that Neap's setting does not take, on the modelled CPU or on any machine."""
    if expected := NEAP_SETTINGS[name].expected(value):
        raise UsageError(f"{name} takes {expected}, not {_shown(value)}")
    if name == "dca" and value == "on" and cpu is not None:
        raise UsageError("dca=on needs a CPU and a chipset with direct cache access, which no modelled machine has; sweep it on a real one")


def _itr(value: Value, system: str) -> str:
    if value == "adaptive" and system != NEAP:
        return "itr=adaptive"
    low, high = (0, ITR_US_MAX) if system == NEAP else (2, linux.ITR_US_MAX)
    if not is_number(value, low, high):
        raise UsageError(f"itr_us takes {low} to {high}{'' if system == NEAP else ' or adaptive'} on {system}, not {_shown(value)}")
    return f"itr={value}us"


def _frequency(name: str, value: Value, system: str, cpu: CpuModel | None) -> str:
    chosen = ("off",) if system == NEAP else linux.GOVERNORS
    if value in chosen:
        return "pstate=off" if system == NEAP else f"governor={value}"
    limits = (cpu.values["frequency.min_ratio"], cpu.values["frequency.turbo_ratios"][0]) if cpu else (1, 99)
    given = 0.0 if isinstance(value, str) else float(value)
    ratio = given * 10 if name == "frequency_ghz" else given
    if abs(ratio - round(ratio)) > 1e-6 or not limits[0] <= round(ratio) <= limits[1]:
        low, high = (f"{limit / 10:g}" if name == "frequency_ghz" else str(limit) for limit in limits)
        steps = " in steps of 0.1" if name == "frequency_ghz" else ""
        where = f" on {cpu.name}" if cpu else ""
        raise UsageError(f"{name} takes {low} to {high}{steps}, or {' '.join(chosen)}{where}, not {_shown(value)}")
    return f"pstate={round(ratio)}"


def check_words(words: Sequence[str], system: str, cpu: CpuModel | None) -> None:
    """Raises UsageError for fixed words of an arm that the system does not take. Neap's words that are no settings are checked at boot."""
    if system != NEAP:
        if cpu is not None:
            linux.check(words, cpu)
        return
    for each in words:
        if not WORD.fullmatch(each):
            raise UsageError(f"'{shown(each, 60)}' is no word like itr=16us")
        name, _, value = each.partition("=")
        if name == "ip":
            raise UsageError("ip= is the study's own word; leave it out")
        if name in NEAP_SETTINGS:
            _check(name, int(value) if value.isdecimal() else value, cpu)


def conflict(words: Mapping[str, str]) -> str:
    """Returns why Neap refuses these words together; empty if it does not."""
    itr = words.get("itr", "")
    if words.get("rsc") == "on" and itr.endswith("us") and int(itr[:-2]) < RSC_ITR_US_MIN:
        return f"rsc=on needs an itr of {RSC_ITR_US_MIN} us or more, not {itr}"
    if words.get("head_write_back") == "on" and words.get("wthresh", "0") != "0":
        return "wthresh above 0 and head_write_back=on exclude each other"
    return ""


def columns(words: Mapping[str, str]) -> dict[str, float | str | None]:
    """Returns the columns of the settings that have one (schema.OWN_SETTINGS), from a run's words."""
    itr, ratio, limit = words.get("itr", ""), words.get("pstate", ""), words.get("power_limit", "")
    return {
        "itr_us": float(itr[:-2]) * (1000 if itr.endswith("ms") else 1) if itr[:-2].isdecimal() else None,
        "frequency_ghz": int(ratio) / 10 if ratio.isdecimal() else None,
        "idle": words.get("idle"),
        "rapl_w": float(limit.rstrip("W")) if re.fullmatch(r"[0-9.]+W?", limit) else None,
    }


def _shown(value: object) -> str:
    return f"'{shown(value, 40)}'" if isinstance(value, str) else shown(value, 40)
