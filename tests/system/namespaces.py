# SPDX-License-Identifier: BSL-1.0
"""Networks of a test's own, so that its traffic meets nobody else's: namespaces of the kernel's, joined by pairs of virtual cables."""

from __future__ import annotations

import os
import subprocess

from tools.process import spawn, stop

COMMAND_SECONDS = 30


class Namespace:
    """A network namespace that lives as long as a process in it. `beside`: another one, to which a cable may lead.

    To a user who is not root they are root's of a user namespace; those that are to be joined have to be of the same one.
    """

    def __init__(self, beside: Namespace | None = None) -> None:
        user = [] if os.geteuid() == 0 or beside else ["--user", "--map-root-user"]
        enter = beside.enter() if beside else []
        keep = ["unshare", *user, "--net", "sh", "-c", "echo ready; exec sleep 3600"]
        self._keeper = spawn([*enter, *keep], stdout=subprocess.PIPE)
        assert self._keeper.stdout
        assert self._keeper.stdout.readline() == b"ready\n", "a network namespace cannot be made here"
        self.pid = self._keeper.pid

    def enter(self) -> list[str]:
        """The words in front of a command that is to run inside."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self.pid}", *user, "--net"]

    def run(self, *words: str) -> str:
        done = subprocess.run([*self.enter(), *words], capture_output=True, text=True, timeout=COMMAND_SECONDS)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def close(self) -> None:
        stop(self._keeper)
