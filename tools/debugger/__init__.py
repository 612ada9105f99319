# SPDX-License-Identifier: BSL-1.0
"""`./neap run --gdb`: gdb on a machine in this terminal, with commands for Neap's kernel (in_gdb.py).

QEMU stops the machine before its first instruction. gdb lets the machine boot into the kernel, where page tables exist and symbols match,
and then prompts the user. The machine's console is shown between gdb's lines. When gdb ends, the machine ends too.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools import build, packages, progress, toolchain
from tools.errors import Failure
from tools.process import run_in_terminal

COMMANDS = Path(__file__).resolve().parent / "in_gdb.py"
FIRST_STOP = "neap::run_kernel"
# QEMU may be slow on a busy host. After gdb's default time-out of 2 s, gdb would take a late answer for the answer to a later request.
ANSWER_SECONDS = 60


def require() -> None:
    """Makes sure that gdb is installed, from the host's own Debian."""
    packages.require("gdb")


def symbols_of(image: Path) -> Path:
    """Returns the file beside an image that contains the image's symbols."""
    path = image.with_name(image.name.removesuffix(".elf") + ".debug.elf")
    if not path.is_file():
        raise Failure(f"there are no symbols of {image.name}: {path} is missing", "./neap build makes both")
    return path


def command(image: Path, socket: Path, more: Sequence[str] = (), *, exact_steps: bool = False) -> list[str]:
    """Returns gdb's command line for a machine that waits at `socket`. exact_steps: a step is what the machine would do without gdb. By
    default QEMU takes no interrupt in a step, and stops its timers."""
    argv = ["gdb", "-q", f"--directory={build.REPOSITORY}", str(symbols_of(image))]
    if chain := toolchain.find():
        # The cross compiler includes gdb's printers for the image's std:: types.
        argv += ["-ex", f"python printers = {[str(path) for path in sorted(chain.glob('share/gcc-*/python'))]!r}"]
    argv += ["-x", str(COMMANDS)]
    # Before the kernel sets up page tables, its addresses are not mapped. So gdb reads code from the file. The breakpoint is a hardware
    # breakpoint, because KVM cannot write a software breakpoint to an unmapped address.
    words = ["set trust-readonly-sections on", "set confirm off", f"set remotetimeout {ANSWER_SECONDS}"]
    words += [f"target remote {socket}"]
    if exact_steps:
        words += ["maintenance packet Qqemu.sstep=1"]
    words += [f"thbreak {FIRST_STOP}", "continue"]
    for word in words:
        argv += ["-ex", word]
    return argv + list(more)


def debug(image: Path, socket: Path, *, exact_steps: bool = False, end: str = "'quit' ends both") -> None:
    """Runs gdb in this terminal until the user ends it. `end` tells the user how to end the machine."""
    progress.say(f"neap: gdb: 'neap' lists its own commands, 'continue' lets the machine run, Ctrl-C stops it, {end}")
    with _interrupts_are_gdbs():
        run_in_terminal(command(image, socket, exact_steps=exact_steps))


@contextlib.contextmanager
def _interrupts_are_gdbs() -> Iterator[None]:
    """Ignores Ctrl-C in this process. Ctrl-C signals all processes of the terminal, but only gdb must react: it stops the guest."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
