# SPDX-License-Identifier: BSL-1.0
"""`./neap bench sweep-ssh`: a sweep whose two workers run behind ssh, and one of whose sessions is killed.

Two private sshd listen on ports of 127.0.0.1, with keys and settings of their own, so nothing of this host's ssh takes part. They stand for
two hosts with the same checkout. The killed session's run must be done by the other worker, the session must be started again, its worker
must not go on without it, and the table must be that of one worker of this host.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tools import build, debian, machine, process, progress
from tools.bench import sweeps
from tools.bench.rows import Row
from tools.errors import Failure

NAMES = ("left", "right")
# Runs that are whole when the session is killed.
RUNS_BEFORE = 6
START_SECONDS = 20.0
ENDED = "the worker left ended during"
WORKER = f"cd {build.REPOSITORY} && exec ./neap sweep --worker"
# sshd as root needs a user and a folder of its own. They exist in the mount namespace of these sshd only.
AS_ROOT = """
mount --bind "$1/passwd" /etc/passwd || exit
mkdir -p /run/sshd && mount -t tmpfs -o mode=755 none /run/sshd || exit
shift
exec "$@"
"""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="neap-ssh-") as scratch, contextlib.ExitStack() as stack:
        folder = Path(scratch)
        (folder / "study.toml").write_text(sweeps.STUDY)
        with progress.step("a sweep by one worker"):
            sweeps.run(folder, "one", "--jobs", "1")
        servers = _write_settings(folder)
        daemons = {name: stack.enter_context(_daemon(folder, name, argv)) for name, argv in servers.items()}
        begin = time.monotonic()
        with progress.step("a sweep by two workers behind ssh"):
            outlived = _disturbed(folder, daemons["left"])
        one, remote = (sweeps.table(folder, name) for name in ("one", "remote"))
        names = {row["run"] for row in remote}
        return [
            Row("missing", "runs", sweeps.RUNS_OF_STUDY - len(names), target=1),
            Row("doubled", "runs", len(remote) - len(names), target=1),
            Row("different", "runs with other figures than by one worker", sum(a != b for a, b in zip(one, remote, strict=True)), target=1),
            Row("outlived", "workers that went on without their session", outlived, target=1),
            Row("sweep", "s", time.monotonic() - begin),
        ]


def _write_settings(folder: Path) -> dict[str, list[str]]:
    """Writes keys, the settings of ssh and sshd, and the rigs' file. Returns the command of each sshd. Raises Failure."""
    client, keygen = shutil.which("ssh"), shutil.which("ssh-keygen")
    if not client or not keygen:
        raise Failure("sweep-ssh needs the programs ssh and ssh-keygen", "apt-get install openssh-client")
    for name in ("host_key", "user_key"):
        process.output_of([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)])
    users = Path("/etc/passwd").read_text().splitlines()
    if not any(line.startswith("sshd:") for line in users):
        users.append("sshd:x:64999:65534::/run/sshd:/usr/sbin/nologin")
    (folder / "passwd").write_text("\n".join(users) + "\n")
    hosts, rigs, commands = [], [], {}
    for name in NAMES:
        port = machine.free_port()
        settings = {
            **{"Port": port, "ListenAddress": machine.LOOPBACK, "HostKey": folder / "host_key", "PidFile": "none", "UsePAM": "no"},
            **{"AuthorizedKeysFile": folder / "user_key.pub", "StrictModes": "no", "PasswordAuthentication": "no"},
            **{"PermitRootLogin": "yes", "LogLevel": "VERBOSE"},
        }
        (folder / f"{name}.sshd").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        hosts.append(f"Host {name}\n HostName {machine.LOOPBACK}\n Port {port}\n")
        # -r: no second start of the program, which would look for the libraries elsewhere.
        sshd = debian.DebianProgram("openssh-server", "sshd").argv
        commands[name] = [*sshd, "-D", "-e", "-r", "-f", str(folder / f"{name}.sshd")]
        words = [client, "-F", str(folder / "ssh"), name, WORKER]
        rigs.append(f'[[rigs]]\nname = "{name}"\ncommand = {json.dumps(words)}\n')
    common = f"Host *\n User {getpass.getuser()}\n IdentityFile {folder}/user_key\n IdentitiesOnly yes\n BatchMode yes\n"
    common += f" UserKnownHostsFile {folder}/known_hosts\n StrictHostKeyChecking accept-new\n"
    (folder / "ssh").write_text("".join(hosts) + common)
    (folder / "rigs.toml").write_text("".join(rigs))
    return commands


@contextlib.contextmanager
def _daemon(folder: Path, name: str, argv: list[str]) -> Iterator[subprocess.Popen]:
    """Runs an sshd. Raises Failure if it does not listen."""
    log = folder / f"{name}.sshd.log"
    as_root = ["unshare", "--mount", "sh", "-c", AS_ROOT, "sh", str(folder)] if os.geteuid() == 0 else []
    with open(log, "wb") as file:
        child = process.spawn([*as_root, *argv], stdout=file, stderr=file)
    try:
        if (
            not process.wait_until(lambda: b"Server listening" in log.read_bytes() or child.poll() is not None, START_SECONDS)
            or child.poll()
        ):
            raise Failure(f"the sshd of {name} did not start", details=process.tail(log))
        yield child
    finally:
        process.kill_session(child)


def _disturbed(folder: Path, daemon: subprocess.Popen) -> int:
    """Sweeps, and kills the session of a worker of `daemon` in the middle. Returns how many of its workers went on. Raises Failure."""
    child = sweeps.start(folder, "remote", "--rigs", str(folder / "rigs.toml"))
    log = sweeps.log(folder, "remote")
    try:
        there = process.wait_until(lambda: len(sweeps.whole_runs(folder, "remote")) >= RUNS_BEFORE or child.poll() is not None, 600)
        if not there or child.poll() is not None:
            raise Failure("the sweep ended before its session was killed", details=process.tail(log))
        session = descendants(daemon.pid)
        workers = [pid for pid in session if b"--worker" in command_line(pid) and b"sshd" not in command_line(pid)]
        if not workers:
            raise Failure("sshd runs no worker", details=process.tail(log))
        for pid in children(daemon.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait_until(lambda: not any(map(command_line, workers)), START_SECONDS)
        outlived = sum(b"--worker" in command_line(pid) for pid in workers)
        if child.wait(sweeps.SECONDS_MAX) != 0 or ENDED not in log.read_text():
            raise Failure("the sweep failed, or did not say that a worker ended", details=process.tail(log))
        return outlived
    finally:
        process.stop(child)


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()]
    return []


def descendants(pid: int) -> list[int]:
    return [each for child in children(pid) for each in (child, *descendants(child))]


def command_line(pid: int) -> bytes:
    """Empty after its end."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
