# SPDX-License-Identifier: BSL-1.0
"""Linux with memcached as the second system on the model machine: Debian's kernel, its driver of the card, and stock memcached.

The settings are static, as in the published studies (linux-start.sh). Its words are those of our images, so that one line describes a run
of either system:

    itr=100us      the interval between interrupts, by `ethtool -C`
    pstate=12      the ratio of the core's clock, by IA32_PERF_CTL; intel_pstate is off, so that no driver changes it
    idle=c1        the deepest state that the kernel's menu governor may choose: c1 c1e c3 c6 c7, poll, halt, deepest
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tools import build, cache
from tools.errors import UsageError
from tools.model.cpu_model import CpuModel

if TYPE_CHECKING:
    from linux_guest.guest_image import GuestImage

# Names for `./neap run`, and whether the kernel is that of Debian 13.
APPLICATIONS = {"linux-memcached": False, "linux-13-memcached": True}
START = Path(__file__).with_name("linux-start.sh")
# intel_pstate=disable: a fixed ratio stays. tsc=reliable: the model's TSC is exact, so its watchdog is not needed.
MODEL_WORDS = ("rdinit=/start", "intel_pstate=disable", "tsc=reliable", "quiet")
IDLE_WORDS = {
    "poll": ["idle=poll"],
    "halt": ["idle=halt"],
    "deepest": [],
    **{name: [f"intel_idle.max_cstate={depth}"] for depth, name in enumerate(("c1", "c1e", "c3", "c6", "c7"), 1)},
}
ITR_US_MAX = 1022


def kernel_words(address: str, arguments: Sequence[str]) -> list[str]:
    """The kernel's command line. Raises UsageError for a word that is not among those above."""
    _find_guest()
    from linux_guest.guest import KERNEL_WORDS  # noqa: PLC0415

    return [*KERNEL_WORDS, *MODEL_WORDS, f"neap.address={address}", *settings(arguments)]


def settings(arguments: Sequence[str]) -> list[str]:
    """The words of the settings. Raises UsageError for a setting that Linux does not have here."""
    words: list[str] = []
    for word in arguments:
        name, _, value = word.partition("=")
        reader = READERS.get(name)
        if reader is None:
            raise UsageError(f"Linux on the model machine takes the words {', '.join(READERS)}, not '{word}'")
        words += reader(value)
    return words


def check(arguments: Sequence[str], cpu: CpuModel) -> None:
    """Raises UsageError for a setting that Linux does not have here, or for a ratio that the CPU does not have."""
    settings(arguments)
    low, high = cpu.values["frequency.min_ratio"], cpu.values["frequency.turbo_ratios"][0]
    for word in arguments:
        name, _, value = word.partition("=")
        if name == "pstate" and not low <= int(value) <= high:
            raise UsageError(f"pstate= takes {low} to {high} on {cpu.name}, not {value}")


def _itr(value: str) -> list[str]:
    match = re.fullmatch(r"([0-9]{1,4})us", value)
    # The driver takes 0 and 1 as "off" and "adaptive".
    if not match or not 2 <= int(match[1]) <= ITR_US_MAX:
        raise UsageError(f"itr= takes 2us to {ITR_US_MAX}us on Linux, not '{value}'")
    return [f"neap.itr={match[1]}"]


def _pstate(value: str) -> list[str]:
    if not re.fullmatch(r"[1-9][0-9]?", value):
        raise UsageError(f"pstate= takes a ratio like 12 on Linux, not '{value}'")
    return [f"neap.ratio={value}"]


def _idle(value: str) -> list[str]:
    if value not in IDLE_WORDS:
        raise UsageError(f"idle= takes {' '.join(IDLE_WORDS)} on Linux, not '{value}'")
    return IDLE_WORDS[value]


READERS: dict[str, Callable[[str], list[str]]] = {"itr": _itr, "pstate": _pstate, "idle": _idle}


@functools.cache
def image(debian_13_kernel: bool = False) -> tuple[Path, Path]:
    """The kernel and the initramfs. They are made if the cache lacks them. Raises Failure."""
    _find_guest()
    from linux_guest import guest_image, memcached  # noqa: PLC0415

    from tools import debian  # noqa: PLC0415

    guest: GuestImage = guest_image.build(debian_13_kernel=debian_13_kernel)
    programs = [("msr-tools", "wrmsr")]
    versions = debian.digest_of(debian.resolve(debian.with_libraries(["memcached", "msr-tools"])))
    own = [START.read_bytes(), Path(memcached.__file__).read_bytes()]
    entry = cache.Entry("linux-memcached", cache.digest(guest.initramfs.parent.name, versions, *own))
    with entry.making() as needed:
        if needed:
            memcached.append_memcached(guest.initramfs, entry.path / "initramfs", ("start", START.read_text()), programs)
    return guest.kernel, entry.path / "initramfs"


def _find_guest() -> None:
    """The guest's builder is among the tests, which are no package."""
    folder = str(build.REPOSITORY / "tests")
    if folder not in sys.path:
        sys.path.insert(0, folder)
