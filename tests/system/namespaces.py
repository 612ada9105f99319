# SPDX-License-Identifier: BSL-1.0
"""Private networks for tests, so that their traffic stays separate: network namespaces of the kernel, joined by veth pairs."""

from __future__ import annotations

import os
import subprocess

from tools.process import spawn, stop

COMMAND_SECONDS = 30


class Namespace:
    """A network namespace that exists as long as a process in it. `beside`: another namespace, to be joined with this one.

    For a user other than root the network namespaces are inside a user namespace. Namespaces that are joined MUST be in the same user
    namespace.
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
        """Words to put before a command, so that it runs inside the namespace."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self.pid}", *user, "--net"]

    def run(self, *words: str) -> str:
        done = subprocess.run([*self.enter(), *words], capture_output=True, text=True, timeout=COMMAND_SECONDS)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def close(self) -> None:
        stop(self._keeper)
