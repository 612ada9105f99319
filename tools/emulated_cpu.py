# SPDX-License-Identifier: BSL-1.0
"""`--cpu` of `./neap run`: a CPU model of QEMU's emulator, such as Haswell or EPYC, with features that are added or removed.

Neap reads CPUID to choose its instructions, idle states and settings. So a machine with another CPU model takes other paths of the code.
The emulator has no performance counters, no energy and no P-states for any model; the model machine has these (tools/model).

QEMU lists its models and each model's features. `--cpu` is checked against these lists, so that an error is one sentence, before a build.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from tools import progress
from tools.errors import UsageError
from tools.process import output_or_none

DEFAULT = "max"
# A model of one CPU vendor's versions is listed as Haswell-v1, Haswell-v2, ...; errors list only Haswell.
VERSION = re.compile(r"-v\d+$")
# Models that need KVM.
KVM_ONLY = ("host",)
WORD = re.compile(r"[A-Za-z0-9._-]{1,64}")
BOOLEANS = ("on", "off")
NEAR = 5
LACKING = re.compile(r"doesn't support requested feature: \S+\.(\S+) \[bit")


def models(command: Sequence[str]) -> list[str]:
    """Returns the names of the models that QEMU's emulator has; empty if QEMU does not list them."""
    listing = (output_or_none([*command, "-cpu", "help"]) or "").partition("Available CPUs:")[2].partition("\n\n")[0]
    return [words[0] for line in listing.splitlines() if (words := line.split()) and words[0] not in KVM_ONLY]


def features(command: Sequence[str], model: str) -> dict[str, str]:
    """Returns the type of each property of a model, such as {"avx2": "bool", "family": "uint64"}; empty if QEMU does not list them."""
    listing = output_or_none([*command, "-device", f"{model}-x86_64-cpu,help"]) or ""
    return dict(re.findall(r"^  ([a-z0-9._-]+)=<([a-z0-9]+)>", listing, re.MULTILINE))


def require(text: str, command: Sequence[str]) -> None:
    """Raises UsageError unless `text` is a model of QEMU's emulator, and features of that model: 'Haswell,-avx2,+rdrand,family=6'."""
    model, *words = text.split(",")
    if model in KVM_ONLY:
        raise UsageError(f"--cpu: the CPU model {model} needs KVM", "--accel kvm gives the machine this host's CPU")
    known = models(command)
    if not WORD.fullmatch(model) or (known and model not in known):
        plain = sorted({VERSION.sub("", name) for name in known})
        raise UsageError(f"--cpu: QEMU emulates no CPU model '{model}'", f"{_near(model, plain)}it has {', '.join(plain)}")
    types = features(command, model)
    for word in words:
        _require_feature(model, word, types)


def _require_feature(model: str, word: str, types: dict[str, str]) -> None:
    if not word:
        raise UsageError("--cpu: a feature is missing after a comma", "Haswell,-avx2,+rdrand takes one feature away and adds another")
    name, assigned, value = word.lstrip("+-").partition("=")
    switched = word[0] in "+-"
    if not WORD.fullmatch(name) or (types and name not in types):
        raise UsageError(
            f"--cpu: CPU model {model} has no feature '{name}'", f"{_near(name, list(types))}QEMU's -cpu help lists all of them"
        )
    kind = types.get(name, "")
    if switched and assigned:
        raise UsageError(f"--cpu: '{word}' has both a sign and a value", f"+{name}, -{name} or {name}=VALUE")
    if switched and kind not in ("", "bool"):
        raise UsageError(f"--cpu: the feature {name} is no switch", f"{name}=VALUE sets it")
    if not switched and kind == "bool" and value not in BOOLEANS:
        raise UsageError(f"--cpu: the feature {name} takes on or off, not '{value}'", f"+{name} or -{name}")
    if kind.startswith(("int", "uint")) and not re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|-?[0-9]{1,20}", value):
        raise UsageError(f"--cpu: the feature {name} takes a number, not '{value}'")


def _near(word: str, known: list[str]) -> str:
    """Returns the known words that resemble `word`, as the beginning of a hint."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, NEAR)
    return f"near that name: {', '.join(by_lower[name] for name in near)}; " if near else ""


def report_lacking(model: str, log: Path) -> None:
    """Prints the features of the model that the emulator lacks. `log` has the messages of a QEMU that has started."""
    try:
        found = LACKING.findall(log.read_text(errors="replace"))
    except OSError:
        return
    if names := list(dict.fromkeys(found)):
        progress.say(f"neap: {model.split(',')[0]} without {', '.join(names)}, which QEMU does not emulate")
