# SPDX-License-Identifier: BSL-1.0
"""Failures while a fresh clone is built, such as a full disk, a port in use, or a kill. tests/system runs the built images."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tools import machine
from tools.conftest import REPOSITORY, neap
from tools.process import finished, wait_until

BUILD_SECONDS = 900
# Builds hello with a small file system mounted over the clone's build directory.
ON_SMALL_BUILD = 'mount -t tmpfs -o size="$1" tmpfs "$2/build" && exec "$3" "$2/neap" build hello'
# Builds only the image, not the soft card.
BUILD_HELLO = "import sys; sys.path.insert(0, sys.argv[1]); from tools import build; build.build('image', ['hello.elf'])"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("launcher") / "a clone"
    argv = ["git", "clone", "--quiet", "--no-hardlinks", str(REPOSITORY), str(place)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=120)
    return place


def test_a_disk_that_fills_up_during_the_build_is_one_line(clone: Path) -> None:
    (clone / "build").mkdir()
    namespaces = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    done = finished([*namespaces, "sh", "-c", ON_SMALL_BUILD, "sh", "2m", str(clone), sys.executable], BUILD_SECONDS)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("neap: error:")]
    assert len(errors) == 1 and "left on the disk" in errors[0], done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_found_before_anything_is_built(clone: Path) -> None:
    with contextlib.closing(socket.create_server((machine.LOOPBACK, 0))) as server:
        port = server.getsockname()[1]
        done = neap("run", "memcached", "--forward", f"{port}:11211", directory=clone)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[0] == f"neap: error: port {port} on 127.0.0.1 is in use or not allowed"
    assert not (clone / "build/image").exists()


def test_a_build_that_is_killed_goes_on(clone: Path) -> None:
    argv = [sys.executable, "-c", BUILD_HELLO, str(clone)]
    build = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_until(lambda: any((clone / "build/image").rglob("*.o")), BUILD_SECONDS, 0.1)
    assert build.poll() is None, "it was to be killed in the middle"
    build.kill()
    build.wait()
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=BUILD_SECONDS)
    assert (clone / "build/image/apps/hello/hello.elf").read_bytes()[:4] == b"\x7fELF"
