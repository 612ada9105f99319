# SPDX-License-Identifier: BSL-1.0
"""The machines that `./neap run` runs on this host, and their addresses. For example, `./neap ctl memcached` finds its target here.

Each run describes itself in machine.json in its private directory. The run's process holds that directory's lock until it ends
(run_directory.py). A killed run holds no lock, so it is not listed.
"""

import contextlib
import dataclasses
import json
import os
import re
from pathlib import Path

from tools import build, cache, run_directory
from tools.errors import Failure, UsageError
from tools.foreign import is_whole, is_word, parse_json, read_bounded

DESCRIPTION = "machine.json"
CONTROL_PORT = 5002
DESCRIPTION_BYTES_MAX = 65536
PORT_MAX = 65535
PID_MAX = (1 << 31) - 1


@dataclasses.dataclass(frozen=True)
class Running:
    """One run: the launcher's process, and the forwarded ports, guest port -> port of 127.0.0.1."""

    application: str
    pid: int
    ports: dict[int, int]
    control_port: int | None

    def line(self) -> str:
        control = f"control on 127.0.0.1:{self.control_port}" if self.control_port else "without control"
        return f"--pid {self.pid}: {self.application}, {control}"


def describe(directory: Path, running: Running) -> None:
    """Writes machine.json atomically."""
    making = directory / f"{DESCRIPTION}.new"
    making.write_text(json.dumps(dataclasses.asdict(running), indent=2) + "\n")
    making.rename(directory / DESCRIPTION)


def machines(base: Path, prefix: str) -> list[Running]:
    """Returns this user's live runs, sorted by process number."""
    found = []
    for directory in base.glob(f"{prefix}*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # invalid descriptions are skipped
            if directory.is_symlink() or directory.stat().st_uid != os.getuid():
                continue
            if (held := cache.try_lock(directory / "lock")) is not None:
                os.close(held)  # the run has ended
                continue
            found.append(_parse(read_bounded(directory / DESCRIPTION, DESCRIPTION_BYTES_MAX)))
    return sorted(found, key=lambda running: running.pid)


def _parse(data: bytes) -> Running:
    """Reads the text that describe() wrote. Raises ValueError, KeyError, TypeError or AttributeError for anything else."""
    fields = parse_json(data)
    ports = {int(guest): host for guest, host in fields["ports"].items()}
    running = Running(fields["application"], fields["pid"], ports, fields.get("control_port"))
    numbers = (*ports, *ports.values(), *(() if running.control_port is None else (running.control_port,)))
    if not all(is_whole(number, PORT_MAX) for number in numbers) or not is_whole(running.pid, PID_MAX, 1):
        raise ValueError("a port or process that cannot be")
    if not is_word(running.application, 256):
        raise ValueError("no name")
    return running


def find(target: str, pid: int | None = None) -> Running | None:
    """Returns the run of the application `target`; None if `target` is no application's name. Raises Failure if no such application runs,
    or if several do and `pid` does not select one."""
    here = machines(run_directory.run_base(), run_directory.RUN_PREFIX)
    named = [running for running in here if running.application == target]
    if not named and target not in build.applications():
        if pid is not None:
            raise UsageError("--pid chooses among applications that run here", f"{target} is none; HOST:PORT needs no --pid")
        return None
    if not named:
        hint = f"./neap run {target} starts one" + (f"; running: {', '.join(sorted({one.application for one in here}))}" if here else "")
        raise Failure(f"no {target} runs on this host", hint)
    chosen = [running for running in named if pid in (None, running.pid)]
    lines = [running.line() for running in named]
    if not chosen:
        raise Failure(f"no {target} runs as process {pid}", "choose one of those above", lines)
    if len(chosen) > 1:
        raise Failure(f"{target} runs {len(chosen)} times on this host", "choose one by --pid", lines)
    return chosen[0]


def find_control(target: str, pid: int | None = None) -> tuple[str, int]:
    """Returns host and port of the control server that `target` names. `target` is an application that runs on this host, or HOST[:PORT].
    Raises Failure like find(), and if the run serves no control."""
    from tools import machine

    running = find(target, pid)
    if running is None:
        return parse_address(target)
    if running.control_port is None:
        raise Failure(f"{target} (process {running.pid}) was started without control", "start it without control=off")
    return machine.LOOPBACK, running.control_port


def parse_address(text: str) -> tuple[str, int]:
    """'10.0.0.7', '10.0.0.7:6000', '[fe80::1]:5002', 'server' -> host and port. Raises UsageError."""
    match = re.fullmatch(r"\[([0-9A-Fa-f:.%\w]+)\](?::([0-9]{1,5}))?|([A-Za-z0-9._-]+)(?::([0-9]{1,5}))?", text)
    if match:
        host, port = match.group(1) or match.group(3), match.group(2) or match.group(4) or str(CONTROL_PORT)
        if 1 <= int(port) <= 65535:
            return host, int(port)
    raise UsageError(f"'{text}' is neither an application nor HOST[:PORT]", f"applications: {', '.join(build.applications())}")
