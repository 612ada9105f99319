# SPDX-License-Identifier: BSL-1.0
"""Errors that a user can act upon.

Each problem with the machine, the network or the command line ends as one `Failure`. A `Failure` has one line that explains the problem
and, if known, one line with a remedy. A traceback means an error in the launcher.
"""

from tools.foreign import shown
from tools.launcher_name import worded

# The launcher's exit statuses. `./neap run` passes on a guest's own code (16 and up, see machine.py).
EXIT_FAILURE = 1
EXIT_USAGE = 2


class Failure(Exception):
    """A problem outside the launcher. `message` is one line; `hint` is a remedy; `details` are lines that are shown before `message`. The
    three texts may quote a peer. Terminal control characters are escaped here, so no caller has to escape them."""

    exit_status = EXIT_FAILURE

    def __init__(self, message: str, hint: str | None = None, details: list[str] | None = None):
        super().__init__(message)
        self.message = shown(worded(" ".join(message.split())))
        self.hint = None if hint is None else shown(worded(hint))
        self.details = [shown(line.replace("\t", "    ")) for line in details or []]

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"

    def report(self) -> str:
        lines = [f"    {line}" for line in self.details]
        lines.append(f"neap: error: {self.message}")
        if self.hint:
            lines.append(f"neap: {self.hint}")
        return "\n".join(lines)


class UsageError(Failure):
    """The command line is wrong; nothing has been done."""

    exit_status = EXIT_USAGE


class DiskFull(Failure):
    """No space is left on a disk, according to a check before writing or an error while writing."""
