# SPDX-License-Identifier: BSL-1.0
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tools import process
from tools.conftest import alive
from tools.errors import DiskFull, Failure

WAIT_SECONDS = 60  # of a busy host; usually the awaited event comes at once


# With `set -m`, a shell gives each background command a process group, as ninja does with its steps.
@pytest.mark.parametrize("groups", ["", "set -m; "])
@pytest.mark.parametrize("handling", ["SIG_DFL", "SIG_IGN"])
def test_grandchildren_of_a_build_end_when_the_launcher_is_killed(python, tmp_path: Path, handling: str, groups: str) -> None:
    # Children of make get no signal when the launcher ends. Compilers that kept running would write into the next build.
    program = f"""
import signal, sys
signal.signal(signal.SIGTERM, signal.{handling})
from pathlib import Path
from tools.process import run_logged
run_logged(["sh", "-c", "{groups}sleep 300 & echo $! > pid.new; mv pid.new pid; wait"], Path("log"), "a build", cwd=Path(sys.argv[1]))
"""
    launcher = python(f"import os; os.chdir({str(tmp_path)!r})" + program, str(tmp_path))
    assert process.wait_until((tmp_path / "pid").exists, WAIT_SECONDS)
    grandchild = int((tmp_path / "pid").read_text())
    assert alive(grandchild)
    launcher.kill()
    assert process.wait_until(lambda: not alive(grandchild), WAIT_SECONDS)


def test_a_child_ends_when_the_launcher_is_killed_but_not_when_the_thread_that_asked_for_it_ends(python) -> None:
    program = """
import threading, time
from tools.process import spawn
def start():
    print(spawn(["sleep", "300"]).pid)
thread = threading.Thread(target=start)
thread.start()
thread.join()
time.sleep(300)
"""
    launcher = python(program)
    child = int(launcher.stdout.readline())
    time.sleep(0.3)
    assert alive(child)
    launcher.kill()
    assert process.wait_until(lambda: not alive(child), WAIT_SECONDS)


def test_a_finished_command_leaves_nothing_in_the_background(tmp_path: Path) -> None:
    process.run_logged(["sh", "-c", f"sleep 300 & echo $! > '{tmp_path}/pid'"], tmp_path / "log", "a build")
    assert process.wait_until(lambda: not alive(int((tmp_path / "pid").read_text())), WAIT_SECONDS)


def test_a_step_with_a_process_group_of_its_own_ends_with_its_command(tmp_path: Path) -> None:
    script = "set -m; sleep 300 & echo $! > pid; sleep 300"
    with pytest.raises(Failure, match="took longer"):
        process.run_logged(["sh", "-c", script], tmp_path / "log", "a build", cwd=tmp_path, timeout_seconds=1)
    assert process.wait_until(lambda: not alive(int((tmp_path / "pid").read_text())), WAIT_SECONDS)


def test_a_failed_command_shows_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"a build failed \(status 3\)") as caught:
        process.run_logged(["sh", "-c", "seq 100; echo broken; exit 3"], tmp_path / "log", "a build")
    assert caught.value.details[-1] == "broken"
    assert len(caught.value.details) == process.SHOWN_LOG_LINES
    assert str(tmp_path / "log") in caught.value.hint


def test_a_command_killed_by_a_signal_fails(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="a build failed"):
        process.run_logged(["sh", "-c", "kill -SEGV $$"], tmp_path / "log", "a build")


def test_a_command_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(Failure, match="took longer than 1 s"):
        process.run_logged(["sleep", "300"], tmp_path / "log", "a build", timeout_seconds=1)
    assert time.monotonic() - start < 20


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match="a build: no space left"):
        process.run_logged(["sh", "-c", "cat /proc/version > /dev/full"], tmp_path / "log", "a build")


def test_a_missing_program_is_named() -> None:
    with pytest.raises(Failure, match="missing program: no-such-program"):
        process.spawn(["no-such-program"])


def test_stop_kills_a_child_that_ignores_it(tmp_path: Path) -> None:
    program = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open(sys.argv[1], 'w').close(); time.sleep(300)"
    child = process.spawn([sys.executable, "-c", program, str(tmp_path / "ready")])
    assert process.wait_until((tmp_path / "ready").exists, WAIT_SECONDS)
    assert process.stop(child, grace_seconds=0.2) == -signal.SIGKILL


def test_children_get_no_interrupt_from_the_terminal() -> None:
    child = process.spawn(["sleep", "300"])
    try:
        assert os.getsid(child.pid) != os.getsid(0)
    finally:
        process.kill_session(child)
    assert not alive(child.pid)
