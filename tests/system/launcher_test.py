# SPDX-License-Identifier: BSL-1.0
"""`./neap` from a user's view: the README's example, recovery after a crash, and checkouts at unusual paths."""

import contextlib
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire import Wire

from tools import cache
from tools.build import REPOSITORY, image
from tools.conftest import alive
from tools.machine import BAD_COMMAND_LINE, DEFAULT_CARD, LOOPBACK, free_port, usual_card
from tools.process import finished, spawn, stop, wait_until

pytestmark = pytest.mark.image_only

RUN_SECONDS = 180
CLONE_BUILD_SECONDS = 1200  # with no object in the caches, beside other tests
# Of a test that builds clones: the longest build, and the usual time of a test for the rest. Only a build with the second store may find no
# object there. The usual store has the objects, because the checkout that runs the tests was built before.
CLONE_TEST_SECONDS = CLONE_BUILD_SECONDS + 600
END_SECONDS = 20
INTERRUPTED = 130
# Of ccache, in the user's cache. The image's objects have 70 MB.
SECOND_STORE, SECOND_STORE_BYTES_MAX = "ccache-second-builds", "500M"


class Run(contextlib.AbstractContextManager):
    """One `./neap run` as a child, with its output in a file. A context manager: leaving it ends the run."""

    def __init__(self, *words: str, checkout: Path = REPOSITORY, **environment: str) -> None:
        self._output = tempfile.NamedTemporaryFile(prefix="neap-test-run-")  # noqa: SIM115 - deleted with this object
        argv = [str(checkout / "neap"), "run", *words]
        self.process = spawn(argv, cwd=checkout, env={**os.environ, **environment}, stdout=self._output, stderr=subprocess.STDOUT)

    def __exit__(self, *_error: object) -> None:
        stop(self.process, END_SECONDS)

    def text(self) -> str:
        return Path(self._output.name).read_text(errors="replace")

    def wait_for(self, text: str, seconds: float = RUN_SECONDS) -> None:
        wait_until(lambda: text in self.text() or self.process.poll() is not None, seconds, 0.05)
        assert text in self.text(), f"no {text!r} in:\n{self.text()[-3000:]}"

    def wait_end(self, seconds: float = RUN_SECONDS) -> int:
        return self.process.wait(timeout=seconds)


def family(pid: int) -> set[int]:
    """Returns all live descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = set(), [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            found.add(child)
            queue.append(child)
    return found


def gone(pids: set[int]) -> bool:
    return not any(map(alive, pids))


def ask(port: int) -> None:
    with Wire((LOOPBACK, port)) as wire:
        wire.store(b"asked", b"yes")
        assert wire.fetch(b"asked") == b"yes"


@pytest.fixture
def port() -> int:
    return free_port()


def test_the_example_of_the_readme_word_for_word() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    assert "./neap run memcached\n" in readme
    command = next(line for line in readme.splitlines() if line.startswith("printf ") and "| nc " in line)
    wanted = re.search(r"```\n(STORED\n.*?)```", readme, re.DOTALL)
    assert wanted, "the README does not show what the example prints"
    with Run("memcached") as run:
        run.wait_for("memcached: listening on")
        done = finished(["sh", "-c", command], 30)
    assert (done.stdout.replace("\r\n", "\n"), done.stderr) == (wanted[1], "")


def test_ctrl_c_ends_everything(port: int) -> None:
    with Run("memcached", "--forward", f"{port}:11211") as run:
        run.wait_for("memcached: listening on")
        started = family(run.process.pid)
        assert len(started) >= (2 if usual_card() == DEFAULT_CARD else 1), "QEMU, and the soft card if the machine has it"
        run.process.send_signal(signal.SIGINT)
        assert run.wait_end(END_SECONDS) == INTERRUPTED
        assert wait_until(lambda: gone(started), END_SECONDS), "something outlived the launcher"


def test_after_a_kill_no_process_is_left_and_the_next_run_starts(port: int) -> None:
    with Run("memcached", "--forward", f"{port}:11211") as run:
        run.wait_for("memcached: listening on")
        with Wire((LOOPBACK, port)) as connected:
            connected.store(b"k", b"v")
            started = family(run.process.pid)
            run.process.kill()
            run.wait_end(END_SECONDS)
            assert wait_until(lambda: gone(started), END_SECONDS), "something outlived the launcher"
    with Run("memcached", "--forward", f"{port}:11211") as again:
        again.wait_for("memcached: listening on")
        ask(port)


def test_two_runs_at_once_on_different_ports(port: int) -> None:
    other = free_port()
    with Run("memcached", "--forward", f"{port}:11211") as first, Run("memcached", "--forward", f"{other}:11211", "--cores", "2") as second:
        first.wait_for("memcached: listening on")
        second.wait_for("memcached: listening on")
        ask(port)
        ask(other)
        stop(first.process)
        ask(other)


def test_a_port_in_use_is_one_line(port: int) -> None:
    with socket.create_server((LOOPBACK, port)), Run("memcached", "--forward", f"{port}:11211") as run:
        assert run.wait_end() == 1
        errors = [line for line in run.text().splitlines() if "error:" in line]
        assert len(errors) == 1 and str(port) in errors[0]


@pytest.mark.parametrize("words", ["frobnicate", "memcached --frobnicate", "memcached --cores 0", "memcached --memory much"])
def test_a_wrong_command_line_is_one_line(words: str) -> None:
    with Run(*words.split()) as run:
        assert run.wait_end() == 2
        errors = [line for line in run.text().splitlines() if "error:" in line]
        assert len(errors) == 1 and "Traceback" not in run.text(), run.text()


def test_a_word_unknown_to_the_image_gives_its_exit_status(port: int) -> None:
    with Run("memcached", "--forward", f"{port}:11211", "--", "frobnicate=1") as run:
        assert run.wait_end() == BAD_COMMAND_LINE
        assert "frobnicate" in run.text() and "memory=" in run.text()


# ---- clones ----


@pytest.fixture(scope="module")
def clones() -> Iterator[tuple[Path, Path]]:
    """Two clones of the present commit, the first at a path with a space."""
    with tempfile.TemporaryDirectory(prefix="neap-clones-") as name:
        first, second = Path(name) / "a path with spaces" / "neap", Path(name) / "second"
        for clone in (first, second):
            subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(REPOSITORY), str(clone)], check=True, timeout=120)
        yield first, second


def build_in(checkout: Path, code: str, **environment: str) -> None:
    """Runs a line of Python with the tools of `checkout`."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), **environment}
    done = finished([sys.executable, "-c", code], CLONE_BUILD_SECONDS, cwd=checkout, env=environment)
    assert done.returncode == 0, f"in {checkout}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}"


@pytest.mark.timeout(CLONE_TEST_SECONDS)
def test_a_checkout_in_a_path_with_spaces_builds_and_runs(clones: tuple[Path, Path], port: int) -> None:
    with Run("memcached", "--forward", f"{port}:11211", checkout=clones[0]) as run:
        run.wait_for("memcached: listening on", CLONE_BUILD_SECONDS)
        ask(port)


@pytest.mark.timeout(CLONE_TEST_SECONDS)
def test_two_builds_of_one_commit_are_identical(clones: tuple[Path, Path]) -> None:
    """The first build may take from ccache objects that were compiled in other checkouts. The second build has a store of its own, with
    objects that only earlier second builds compiled. So each object of one image was compiled apart from that of the other image, with
    other paths and at another time. An object whose source and options have not changed is not compiled for this test again."""
    digests = []
    second = {"CCACHE_DIR": str(cache.root() / SECOND_STORE), "CCACHE_MAXSIZE": SECOND_STORE_BYTES_MAX}
    for clone, environment in zip(clones, ({}, second), strict=True):
        build_in(clone, "from tools import build; build.build('image', ['memcached.elf'])", **environment)
        content = (clone / image("memcached").relative_to(REPOSITORY)).read_bytes()
        assert os.fsencode(clone) not in content, f"the image holds the path {clone}"
        digests.append(hashlib.sha256(content).hexdigest())
    assert digests[0] == digests[1]


def test_a_run_leaves_no_files_behind(port: int) -> None:
    # The run's files are in a private directory, because other machines put files into the usual directory.
    with tempfile.TemporaryDirectory(prefix="neap-places-") as name:
        left = lambda: list(Path(name).glob("neap-run-*"))  # noqa: E731
        with Run("memcached", "--forward", f"{port}:11211", TMPDIR=name, XDG_RUNTIME_DIR=name) as run:
            run.wait_for("memcached: listening on")
            assert left(), "the run's directory is not where it is looked for"
            run.process.send_signal(signal.SIGINT)
            run.wait_end(END_SECONDS)
        assert wait_until(lambda: not left(), END_SECONDS), f"left behind: {left()}"
