# SPDX-License-Identifier: BSL-1.0
"""The launcher whole: a fresh clone in a path with a space, built and run as its user would.

Tests here stand in the order of a first day: what fails before the build, the build, runs, two of them, and what they leave behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import machine
from tools.conftest import REPOSITORY, alive
from tools.process import wait_until

BUILD_SECONDS = 900
START_SECONDS = 120
# What runs inside a small file system mounted over the clone's build directory.
ON_SMALL_BUILD = 'mount -t tmpfs -o size="$1" tmpfs "$2/build" && exec "$3" "$2/neap" build hello'


def clone_to(place: Path) -> Path:
    argv = ["git", "clone", "--quiet", "--no-hardlinks", str(REPOSITORY), str(place)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=120)
    return place


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone_to(tmp_path_factory.mktemp("launcher") / "a clone")


def neap(clone: Path, *words: str, seconds: float = BUILD_SECONDS) -> subprocess.CompletedProcess:
    argv = [sys.executable, str(clone / "neap"), *words]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)


class Run:
    """A `./neap run` in the background, its output collected."""

    def __init__(self, clone: Path, *words: str):
        argv = [sys.executable, str(clone / "neap"), "run", *words]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, text: str, seconds: float = START_SECONDS) -> None:
        ended = lambda: any(text in line for line in self.lines) or self.process.poll() is not None  # noqa: E731
        assert wait_until(ended, seconds), self.lines
        time.sleep(0.05)
        assert any(text in line for line in self.lines), self.lines

    def descendants(self) -> list[int]:
        """QEMU and the soft card: the launcher's children."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for path in children for pid in path.read_text().split()]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running(clone: Path, *words: str) -> Iterator[Run]:
    run = Run(clone, *words)
    try:
        yield run
    finally:
        run.close()


def ask(port: int, request: bytes, end: bytes) -> bytes:
    """Sends a request to memcached and reads until `end`."""
    with socket.create_connection((machine.LOOPBACK, port), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        while not answer.endswith(end):
            piece = connection.recv(65536)
            assert piece, answer
            answer += piece
    return answer


def set_and_get(port: int, value: bytes) -> None:
    request = b"set a 0 0 %d\r\n%s\r\nget a\r\n" % (len(value), value)
    assert ask(port, request, b"END\r\n") == b"STORED\r\nVALUE a 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)


def test_a_disk_that_fills_up_during_the_build_is_one_line(clone: Path) -> None:
    (clone / "build").mkdir()
    namespaces = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    argv = [*namespaces, "sh", "-c", ON_SMALL_BUILD, "sh", "2m", str(clone), sys.executable]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("neap: error:")]
    assert len(errors) == 1 and "left on the disk" in errors[0], done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_found_before_anything_is_built(clone: Path) -> None:
    with contextlib.closing(socket.create_server((machine.LOOPBACK, 0))) as server:
        port = server.getsockname()[1]
        done = neap(clone, "run", "memcached", "--forward", f"{port}:11211")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == f"neap: error: port {port} on 127.0.0.1 is in use or not allowed"
    assert done.stdout == ""
    assert not (clone / "build/image").exists()


def test_a_build_that_is_killed_goes_on(clone: Path) -> None:
    argv = [sys.executable, str(clone / "neap"), "build", "hello"]
    build = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    objects = lambda: any((clone / "build/image").rglob("*.o"))  # noqa: E731
    assert wait_until(objects, START_SECONDS, 0.2) or build.poll() is not None
    build.kill()
    build.wait()
    done = neap(clone, "build", "hello")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (clone / "build/image/apps/hello/hello.elf").is_file()


def test_hello_runs_from_a_clone_in_a_path_with_a_space(clone: Path) -> None:
    done = neap(clone, "run", "hello", "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on 2 cores" in done.stdout


def test_two_clones_build_identical_images(clone: Path, tmp_path: Path) -> None:
    other = clone_to(tmp_path / "other")
    program = "import sys; sys.path.insert(0, sys.argv[1]); from tools import build; build.build('image', ['hello.elf'])"
    subprocess.run([sys.executable, "-c", program, str(other)], check=True, stdin=subprocess.DEVNULL, timeout=BUILD_SECONDS)
    image = Path("build/image/apps/hello/hello.elf")
    assert (other / image).read_bytes() == (clone / image).read_bytes()


def test_a_word_that_the_kernel_does_not_know_is_its_own_error(clone: Path) -> None:
    done = neap(clone, "run", "hello", "--", "no_such_key=1")
    assert done.returncode == machine.BAD_COMMAND_LINE
    assert "no_such_key" in done.stdout
    assert "Traceback" not in done.stderr


def test_two_runs_at_once_then_an_interrupt_then_a_kill_then_a_new_start(clone: Path) -> None:
    first_port, second_port = machine.free_port(), machine.free_port()
    with (
        running(clone, "memcached", "--forward", f"{first_port}:11211") as first,
        running(clone, "memcached", "--forward", f"{second_port}:11211") as second,
    ):
        first.wait_for(f"answers on 127.0.0.1:{first_port}", BUILD_SECONDS)
        second.wait_for(f"answers on 127.0.0.1:{second_port}", BUILD_SECONDS)
        set_and_get(first_port, b"first")
        set_and_get(second_port, b"second")
        assert ask(first_port, b"get a\r\n", b"END\r\n") == b"VALUE a 0 5\r\nfirst\r\nEND\r\n"

        # Ctrl-C ends the machine and everything it started.
        processes = first.descendants()
        assert len(processes) == 2
        first.process.send_signal(signal.SIGINT)
        assert first.process.wait(30) == 128 + signal.SIGINT
        assert not any(alive(pid) for pid in processes)
        assert machine.port_is_free(first_port)

        # So does a kill that the launcher never sees, if not in order; the next start finds nothing in its way.
        processes = second.descendants()
        second.process.kill()
        second.process.wait()
        assert wait_until(lambda: not any(alive(pid) for pid in processes), 10)
    with running(clone, "memcached", "--forward", f"{second_port}:11211") as third:
        third.wait_for(f"answers on 127.0.0.1:{second_port}")
        set_and_get(second_port, b"third")
        third.process.terminate()
        assert third.process.wait(30) == 128 + signal.SIGTERM


def test_output_that_nobody_reads_ends_the_run(clone: Path) -> None:
    port = machine.free_port()
    argv = [sys.executable, str(clone / "neap"), "run", "memcached", "--forward", f"{port}:11211"]
    launcher = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    launcher.stdout.close()
    try:
        launcher.wait(START_SECONDS)
    finally:
        launcher.kill()
        launcher.wait()
    assert machine.port_is_free(port)
