# SPDX-License-Identifier: BSL-1.0
"""Children that end when this process ends.

A launcher that is killed with SIGKILL cannot clean up, so the kernel has to. Every child requests a signal at its parent's death (prctl
PR_SET_PDEATHSIG). There are two difficulties:

  - The "parent" is the thread that forked, not the process. So one thread, which lives as long as the process, forks all children.
  - Only direct children get the signal, but a build tool has children of its own. So a build tool runs under a small shell. The shell gets
    SIGTERM at the launcher's death, and then kills its whole session.

Every child has a session of its own. So Ctrl-C in the terminal reaches only the launcher, which then ends its children in order. A session
and not a process group, because ninja gives each of its steps a group.
"""

import concurrent.futures
import contextlib
import ctypes
import errno
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.errors import DiskFull, Failure

PR_SET_PDEATHSIG = 1
SHOWN_LOG_LINES = 15
FULL_BYTES = 32_000_000
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# The command runs in the background, because a shell runs a trap at once only during `wait`. /proc/PID/stat is "PID (name) state parent
# group session ...". Killing is repeated until nothing is left, because a process may start another one meanwhile.
SESSION_KEEPER = """
end() {
  trap '' TERM
  left=1
  while [ "$left" ]; do
    left=
    for stat in /proc/[0-9]*/stat; do
      read -r line < "$stat" || continue
      pid=${line%% *}
      set -- ${line##*) }
      if [ "$4" = $$ ] && [ "$pid" != $$ ] && [ "$1" != Z ]; then kill -KILL "$pid" && left=1; fi
    done 2> /dev/null
  done
  kill -KILL $$
}
trap end TERM
"$@" & wait $!
"""

_libc = ctypes.CDLL(None, use_errno=True)
_forker = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="neap-fork")
_running: set[int] = set()
_running_guard = threading.Lock()


def hold_signals() -> None:
    """Blocks the signals that end the launcher, before it is replaced by another one (exec). A blocked signal stays pending across exec."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)


def accept_signals() -> None:
    """Delivers signals that arrived since hold_signals, after the new launcher has its handlers."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)


def _tie_to_parent(parent: int, death_signal: int):
    """Returns a function to call between fork and exec. It requests the signal, and then checks that the parent is still alive. The child
    ignores no signal that this process ignores: a shell cannot trap a signal that was ignored at its start."""

    def tie() -> None:
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        _libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)

    return tie


def spawn(argv: Sequence[str], *, death_signal: int = signal.SIGKILL, **popen) -> subprocess.Popen:
    """Starts a program that has no children. It gets `death_signal` when this process ends. The other arguments are those of Popen. Raises
    Failure if the program is missing."""
    popen.setdefault("stdin", subprocess.DEVNULL)
    tie = _tie_to_parent(os.getpid(), death_signal)
    try:
        return _forker.submit(subprocess.Popen, list(argv), start_new_session=True, preexec_fn=tie, **popen).result()
    except FileNotFoundError:
        raise Failure(f"missing program: {argv[0]}", "./neap doctor lists what this machine lacks") from None


def spawn_group(argv: Sequence[str], **popen) -> subprocess.Popen:
    """Starts a program that has children of its own (make, ninja, cargo). All of them end when this process ends."""
    return spawn(["/bin/sh", "-c", SESSION_KEEPER, "sh", *argv], death_signal=signal.SIGTERM, **popen)


def run_in_terminal(argv: Sequence[str]) -> int:
    """Runs an interactive program in our terminal and waits for its end. The program is killed when this process ends."""
    tie = _tie_to_parent(os.getpid(), signal.SIGKILL)
    try:
        child = _forker.submit(subprocess.Popen, list(argv), preexec_fn=tie).result()
    except FileNotFoundError:
        raise Failure(f"missing program: {argv[0]}", "./neap doctor lists what this machine lacks") from None
    return child.wait()


def wait_unreaped(child: subprocess.Popen, timeout_seconds: float | None) -> bool:
    """Waits until a child has ended. The child stays a zombie, so that its session's number cannot be reused yet."""
    if child.returncode is not None:
        return True
    descriptor = os.pidfd_open(child.pid)
    try:
        return bool(select.select([descriptor], [], [], timeout_seconds)[0])
    finally:
        os.close(descriptor)


def kill_session(child: subprocess.Popen) -> None:
    """Kills a child of spawn or spawn_group and all its descendants in the session. Returns when the child has ended."""
    if child.returncode is None:
        _kill_members(child.pid)
        child.wait()


def _kill_members(session: int) -> None:
    """Kills all processes of a session whose first process has not been waited for, so that the session's number is not reused. The first
    process is killed first, because the others are its children's work."""
    killed: set[int] = set()
    while members := [pid for pid in _members(session) if pid not in killed]:
        for pid in sorted(members, key=lambda pid: pid != session):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            killed.add(pid)


def _members(session: int) -> list[int]:
    """Returns the processes of a session, in the order of /proc."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(int(name)) == session:
                found.append(int(name))
    return found


def stop(child: subprocess.Popen, grace_seconds: float = 5.0) -> int:
    """Sends SIGTERM to a child, and SIGKILL after `grace_seconds`. Returns its status."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


def kill_running_commands() -> None:
    """Kills every running command of run_logged, in all threads."""
    with _running_guard:
        sessions = list(_running)
    for session in sessions:
        _kill_members(session)


def tail(path: Path, lines: int = SHOWN_LOG_LINES, window_bytes: int = 16384) -> list[str]:
    """Returns the last lines of a log as a terminal would show them; empty if there is no log."""
    try:
        with open(path, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - window_bytes))
            text = log.read().decode(errors="replace")
    except OSError:
        return []
    # Text before a CR was overwritten. cargo writes its progress bar so.
    return re.sub(r"[^\n]*\r(?!\n)", "", text).splitlines()[-lines:]


def command_failure(what: str, log: Path, status: int, cwd: Path | None = None) -> Failure:
    """Returns the error for a command that ended with `status`. A full disk is named as the cause; otherwise the error shows the log's end.
    An almost full disk is named too, because a linker that writes to mapped memory is killed by a bus error, without a message."""
    last = tail(log)
    reason = f"status {status}" if status >= 0 else f"signal {-status}"
    hint = f"make room and start again; full log: {log}"
    if any("No space left on device" in line for line in tail(log, 200)):
        return DiskFull(f"{what}: no space left on the disk", hint)
    free_bytes = min(shutil.disk_usage(place).free for place in (log.parent, cwd or log.parent))
    if free_bytes < FULL_BYTES:
        return DiskFull(f"{what} failed ({reason}) with {free_bytes / 1e6:.1f} MB left on the disk", hint, last)
    return Failure(f"{what} failed ({reason})", f"full log: {log}", last)


def run_logged(
    argv: Sequence[str],
    log: Path,
    what: str,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_seconds: float | None = None,
) -> None:
    """Runs a build command and appends all its output to `log`. On error, raises Failure (or DiskFull) with the log's end. The command line
    comes first in the log, so that it can be repeated by hand."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as out:
            out.write(f"$ {' '.join(argv)}\n".encode())
            out.flush()
            child = spawn_group(argv, stdout=out, stderr=subprocess.STDOUT, cwd=cwd, env=env)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(f"{what}: no space left on the disk", f"make room in {log.parent} and start again") from None
        raise
    with _running_guard:
        _running.add(child.pid)
    try:
        in_time = wait_unreaped(child, timeout_seconds)
    finally:
        # The session is killed also after success, because a background process of a tool would keep the build directory in use.
        kill_session(child)
        with _running_guard:
            _running.discard(child.pid)
    if not in_time:
        raise Failure(f"{what} took longer than {timeout_seconds:.0f} s and was stopped", f"full log: {log}", tail(log))
    if child.returncode != 0:
        raise command_failure(what, log, child.returncode, cwd)


def finished(argv: Sequence[str | Path], timeout_seconds: float = 60, **options) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, without input, and keeps its output as text. Options as for subprocess.run."""
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace", **options}
    return subprocess.run(list(argv), timeout=timeout_seconds, **options)


def output_of(argv: Sequence[str], *, timeout_seconds: float = 60, env: Mapping[str, str] | None = None, name: str | None = None) -> str:
    """Returns a short command's output. On error, raises Failure with `name` (default: argv[0]) and the last line of the error output."""
    name = name or Path(argv[0]).name
    try:
        done = finished(argv, timeout_seconds, env=env)
    except FileNotFoundError:
        raise Failure(f"missing program: {argv[0]}", "./neap doctor lists what this machine lacks") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"{name} gave no answer within {timeout_seconds:.0f} s") from None
    if done.returncode != 0:
        complaint = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()
        raise Failure(f"{name}: {complaint[-1]}", details=complaint[-SHOWN_LOG_LINES:-1])
    return done.stdout


def output_or_none(argv: Sequence[str], timeout_seconds: float = 60) -> str | None:
    """Returns the output of a program that may not exist; None if it is missing, fails or does not end."""
    try:
        return output_of(argv, timeout_seconds=timeout_seconds)
    except (Failure, OSError):
        return None


def wait_until(condition, timeout_seconds: float, interval_seconds: float = 0.01):
    """Calls `condition` until it returns a true value, and returns that value; None after the time-out."""
    deadline = time.monotonic() + timeout_seconds
    while not (result := condition()):
        if time.monotonic() >= deadline:
            return None
        time.sleep(interval_seconds)
    return result
