# SPDX-License-Identifier: BSL-1.0
"""Linux with memcached, Node or NetPIPE as the second system on the model machine: Debian's kernel, its driver of the card, stock programs.

Queues, interrupts and worker threads are pinned, and all files are in memory (linux-start.sh). The words are those of our images where
these have them, so that one line describes a run of either system:

    itr=100us      the interval between interrupts, by `ethtool -C`
    itr=adaptive   the driver chooses the interval by the traffic, which is its default
    pstate=12      the ratio of the core's clock, by IA32_PERF_CTL; intel_pstate is off, so that no driver changes it
    governor=NAME  intel_pstate sets the frequency that this governor of cpufreq asks for: performance, schedutil
    idle=c1        the deepest state that the kernel's menu governor may choose: c1 c1e c3 c6 c7, poll, halt, deepest
    trace=on       neap-trace records the log of a run; the image MUST have it

A static system has itr=Nus and pstate= or governor=performance, as in the published studies. A dynamic one has itr=adaptive and
governor=schedutil, which are the defaults of driver and kernel.
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
from tools.model import node
from tools.model.cpu_model import CpuModel

if TYPE_CHECKING:
    from linux_guest.guest_image import GuestImage

# Names for `./neap run`, and whether the kernel is that of Debian 13.
APPLICATIONS = {"linux-memcached": False, "linux-13-memcached": True}
WEB_SCRIPTS = build.REPOSITORY / "apps/webserver/scripts"
START = Path(__file__).with_name("linux-start.sh")
# tsc=reliable: the model's TSC is exact, so its watchdog is not needed. nokaslr, norandmaps: a profile has the addresses of the symbols.
MODEL_WORDS = ("rdinit=/start", "tsc=reliable", "nokaslr", "norandmaps", "quiet")
# The kernel's driver of the frequency, by whether a governor is asked for. Without one, a fixed ratio stays. In its passive mode the driver
# does what the governor says. That is the kernel's default on CPUs without HWP.
WITHOUT_GOVERNOR, WITH_GOVERNOR = "intel_pstate=disable", "intel_pstate=passive"
# Those that are in Debian's kernel itself.
GOVERNORS = ("performance", "schedutil")
DYNAMIC = ("itr=adaptive", "governor=schedutil")
PROGRAMS = (("msr-tools", "wrmsr"), ("netpipe-tcp", "NPtcp"))
SERVERS = ("memcached", "netpipe-tcp")
TRACE_PROGRAM = "neap-trace"
# They offer energy and the residency of C-states as perf events, from which neap-trace reads them.
TRACE_MODULES = ("rapl", "intel-cstate")
IDLE_WORDS = {
    "poll": ["idle=poll"],
    "halt": ["idle=halt"],
    "deepest": [],
    **{name: [f"intel_idle.max_cstate={depth}"] for depth, name in enumerate(("c1", "c1e", "c3", "c6", "c7"), 1)},
}
ITR_US_MAX = 1022


def kernel_words(address: str, arguments: Sequence[str], run: Sequence[str] = ()) -> list[str]:
    """The kernel's command line. `run`: words of linux-start.sh that choose another program than memcached. Raises UsageError for a word
    that is not among those above."""
    find_guest()
    from linux_guest.guest import KERNEL_WORDS  # noqa: PLC0415

    return [*KERNEL_WORDS, *MODEL_WORDS, f"neap.address={address}", *run, *settings(arguments)]


def settings(arguments: Sequence[str]) -> list[str]:
    """The words of the settings. Raises UsageError for a setting that Linux does not have here, and for settings that conflict."""
    given: dict[str, str] = {}
    for word in arguments:
        name, _, value = word.partition("=")
        if name not in READERS:
            raise UsageError(f"Linux on the model machine takes the words {', '.join(READERS)}, not '{word}'")
        if name in given:
            raise UsageError(f"{name}= is there twice, as {given[name]} and as {value}", "leave one of them out")
        given[name] = value
    if "pstate" in given and "governor" in given:
        raise UsageError(
            f"pstate={given['pstate']} is a fixed ratio, which governor={given['governor']} would change", "leave one of them out"
        )
    words = [found for name, value in given.items() for found in READERS[name](value)]
    return [WITH_GOVERNOR if "governor" in given else WITHOUT_GOVERNOR, *words]


def check(arguments: Sequence[str], cpu: CpuModel) -> None:
    """Raises UsageError for a setting that Linux does not have here, or for a ratio that the CPU does not have."""
    settings(arguments)
    low, high = cpu.values["frequency.min_ratio"], cpu.values["frequency.turbo_ratios"][0]
    for word in arguments:
        name, _, value = word.partition("=")
        if name == "pstate" and not low <= int(value) <= high:
            raise UsageError(f"pstate= takes {low} to {high} on {cpu.name}, not {value}")


def _itr(value: str) -> list[str]:
    if value == "adaptive":
        return ["neap.itr=adaptive"]
    match = re.fullmatch(r"([0-9]{1,4})us", value)
    # The driver takes 0 and 1 as "off" and "adaptive".
    if not match or not 2 <= int(match[1]) <= ITR_US_MAX:
        raise UsageError(f"itr= takes 2us to {ITR_US_MAX}us or adaptive on Linux, not '{value}'")
    return [f"neap.itr={match[1]}"]


def _pstate(value: str) -> list[str]:
    if not re.fullmatch(r"[1-9][0-9]?", value):
        raise UsageError(f"pstate= takes a ratio like 12 on Linux, not '{value}'")
    return [f"neap.ratio={value}"]


def _idle(value: str) -> list[str]:
    if value not in IDLE_WORDS:
        raise UsageError(f"idle= takes {' '.join(IDLE_WORDS)} on Linux, not '{value}'")
    return IDLE_WORDS[value]


def _governor(value: str) -> list[str]:
    if value not in GOVERNORS:
        raise UsageError(f"governor= takes {' '.join(GOVERNORS)} on Linux, not '{value}'")
    return [f"neap.governor={value}"]


def _trace(value: str) -> list[str]:
    if value not in ("on", "off"):
        raise UsageError(f"trace= takes on or off on Linux, not '{value}'")
    return ["neap.trace=on"] if value == "on" else []


READERS: dict[str, Callable[[str], list[str]]] = {
    "itr": _itr,
    "pstate": _pstate,
    "governor": _governor,
    "idle": _idle,
    "trace": _trace,
}


@functools.cache
def image(debian_13_kernel: bool = False, with_trace: bool = False) -> tuple[Path, Path]:
    """The kernel and the initramfs. They are made if the cache lacks them. `with_trace`: the initramfs has neap-trace and
    TRACE_MODULES. Raises Failure."""
    find_guest()
    from linux_guest import guest_image, kernel_modules, memcached  # noqa: PLC0415

    from tools import debian  # noqa: PLC0415

    guest: GuestImage = guest_image.build(debian_13_kernel=debian_13_kernel)
    files = {}
    if with_trace:
        modules = kernel_modules.unpacked(guest, TRACE_MODULES, debian_13_kernel=debian_13_kernel)
        files = {f"bin/{TRACE_PROGRAM}": _trace_program(), **{f"lib/trace/{name}.ko": path for name, path in modules.items()}}
    versions = debian.digest_of(debian.resolve(debian.with_libraries(["memcached", *(package for package, _ in PROGRAMS)])))
    own = [START.read_bytes(), Path(memcached.__file__).read_bytes(), *(path.read_bytes() for path in files.values())]
    entry = cache.Entry("linux-memcached", cache.digest(guest.initramfs.parent.name, versions, *own))
    with entry.making() as needed:
        if needed:
            memcached.append_memcached(guest.initramfs, entry.path / "initramfs", ("start", START.read_text()), PROGRAMS, files)
    return guest.kernel, entry.path / "initramfs"


@functools.cache
def web_image() -> tuple[Path, Path]:
    """The kernel and the initramfs, with Node and the scripts of apps/webserver/scripts. Raises Failure."""
    find_guest()
    from linux_guest import memcached  # noqa: PLC0415

    kernel, initramfs = image()
    scripts = {path.stem: path for path in sorted(WEB_SCRIPTS.glob("*.js"))}
    own = [initramfs.parent.name.encode(), node.root().name.encode(), Path(node.__file__).read_bytes()]
    entry = cache.Entry("linux-node", cache.digest(*own, *(path.read_bytes() for path in scripts.values())))
    with entry.making() as needed:
        if needed:
            memcached.append_files(initramfs, entry.path / "initramfs", node.files(scripts))
    return kernel, entry.path / "initramfs"


def web_server(script: str) -> list[str]:
    """The words by which linux-start.sh starts Node with one of the scripts."""
    return ["neap.run=web", f"neap.script={script}"]


def libraries() -> list[Path]:
    """The libraries of the programs that serve, as they are in the image."""
    find_guest()
    from linux_guest import memcached  # noqa: PLC0415

    servers = [memcached.MEMCACHED, *(program for program in PROGRAMS if program[0] in SERVERS)]
    return sorted({library for package, program in servers for library in memcached.program_of(package, program)[1]})


def _trace_program() -> Path:
    from tools.linux_log import build as trace_build  # noqa: PLC0415

    return trace_build.program()


def find_guest() -> None:
    """Makes the guest's builder importable. It is among the tests, which are no package."""
    folder = str(build.REPOSITORY / "tests")
    if folder not in sys.path:
        sys.path.insert(0, folder)
