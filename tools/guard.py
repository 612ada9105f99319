# SPDX-License-Identifier: BSL-1.0
"""Runs a command of the launcher so that each of its ends is orderly: an error is one message, a signal is heeded once and leaves no
process, and both have an exit status."""

import errno
import io
import os
import signal
import sys
from collections.abc import Callable

from tools import installed, process
from tools.errors import Failure

# True while a signal ends the command. False during the clean-up, in which a signal that Python has already accepted may come late.
_signals_end = False


class Interrupted(BaseException):
    """A signal requested the launcher's end."""

    def __init__(self, number: int):
        super().__init__(f"signal {number}")
        self.number = number


def guarded(command: Callable[[list[str]], int], argv: list[str]) -> int:
    """Runs `command` with the words `argv`. Returns its exit status, after all its processes have ended."""
    global _signals_end
    _signals_end = True
    for number in process.ENDING_SIGNALS:
        signal.signal(number, _interrupt)
    try:
        try:
            return _reported(command, argv)
        finally:
            _ignore_signals()
            process.kill_running_commands()
    except Interrupted as interrupted:
        print("\nneap: interrupted", file=sys.stderr)
        return 128 + interrupted.number


def _reported(command: Callable[[list[str]], int], argv: list[str]) -> int:
    """Runs a command. Errors that a user can act upon become messages and an exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the terminal's encoding may lack a peer's characters
    try:
        process.accept_signals()
        try:
            return command(argv)
        except installed.MovesToCopy:
            process.kill_running_commands()
            installed.go_on_in_copy(argv)
    except Failure as failure:
        print(failure.report(), file=sys.stderr)
        return failure.exit_status
    except BrokenPipeError:
        # The process that reads our standard output has closed it. Without dup2 the interpreter would print an error when it flushes
        # standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError:
        print(Failure("not enough memory", "a smaller input, or a larger machine").report(), file=sys.stderr)
        return 1
    except OSError as error:
        failure = _from_the_system(error)
        print(failure.report(), file=sys.stderr)
        return failure.exit_status


def _from_the_system(error: OSError) -> Failure:
    """Returns a Failure that explains an error of the operating system, if no other code has explained it."""
    what = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(f"{what}no space left on the disk", "make room and start again")
    hint = "is it yours to write?" if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else None
    return Failure(f"{what}{error.strerror or error}", hint)


def _interrupt(number, _frame):
    if _signals_end:
        # A second Ctrl-C would end the clean-up too early.
        _ignore_signals()
        raise Interrupted(number)


def _ignore_signals() -> None:
    """Ignores the signals that end the launcher. They are blocked during the change, because Python reports an error for a signal that
    arrived before its handler was removed."""
    global _signals_end
    _signals_end = False
    signal.pthread_sigmask(signal.SIG_BLOCK, process.ENDING_SIGNALS)
    for number in process.ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, process.ENDING_SIGNALS)
