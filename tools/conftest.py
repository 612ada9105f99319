# SPDX-License-Identifier: BSL-1.0
"""Fixtures for the tests of the launcher, such as a QEMU, a guest of forty instructions, and an empty cache."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools import build, cache, machine_registry, qemu, run_directory, toolchain
from tools.fake_mirror import FakeMirror
from tools.fake_toolchain import Trial
from tools.process import finished

REPOSITORY = Path(__file__).resolve().parent.parent
TEST_DATA = Path(__file__).with_name("testdata")


@pytest.fixture(scope="session")
def qemu_command() -> tuple[str, ...]:
    """A real QEMU. It is looked up here, because tests use empty caches."""
    return qemu.command()


@pytest.fixture(scope="session")
def guest_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """testdata/guest.S as a boot image, in a folder with a space in its name."""
    directory = tmp_path_factory.mktemp("a guest")
    subprocess.run(["as", "--32", "-o", "guest.o", str(TEST_DATA / "guest.S")], cwd=directory, check=True, timeout=60)
    link = ["ld", "-m", "elf_i386", "-N", "--no-warn-rwx-segments", "-Ttext-segment=0x100000", "-o", "tiny guest.elf", "guest.o"]
    subprocess.run(link, cwd=directory, check=True, timeout=60)
    return directory / "tiny guest.elf"


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Restores this process's signal handlers. cli.main, which some tests call here, leaves signals ignored because its process ends."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache. Returns its root."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/neap"


@pytest.fixture
def python() -> Iterator[Callable[..., subprocess.Popen]]:
    """Returns a function that starts a Python program, given as text. The program can import `tools`, and its output is text."""
    started: list[subprocess.Popen] = []

    def start(program: str, *arguments: str) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
        argv = [sys.executable, "-c", program, *arguments]
        child = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(child)
        return child

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
        child.communicate()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Path, int]]:
    """Hides the machines that run on this host. Returns a function that makes a run's directory without a machine. That function returns
    the directory and the descriptor of the directory's lock."""

    def pretend(application: str, pid: int, ports: dict[int, int], control_port: int | None = None) -> tuple[Path, int]:
        directory = tmp_path / f"{run_directory.RUN_PREFIX}{pid}"
        directory.mkdir()
        lock = cache.try_lock(directory / "lock")
        assert lock is not None
        machine_registry.describe(directory, machine_registry.Running(application, pid, ports, control_port))
        return directory, lock

    monkeypatch.setattr(run_directory, "run_base", lambda: tmp_path)
    monkeypatch.setattr(build, "applications", lambda: ["hello", "memcached"])
    return pretend


@pytest.fixture
def mirror(tmp_path: Path, own_cache: Path) -> Iterator[FakeMirror]:
    """An empty Debian archive, and an empty cache for packages that are fetched from it."""
    fake = FakeMirror(tmp_path / "mirror")
    yield fake
    fake.close()


@pytest.fixture
def trial(tmp_path: Path, mirror: FakeMirror, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """The recipe of a toolchain that takes no time to build, with its sources in a mirror, and an empty cache."""
    monkeypatch.setattr(toolchain, "RECIPE_DIRECTORY", tmp_path / "recipe")
    monkeypatch.setattr(toolchain, "STATIC_LIBRARIES", ("c",))
    monkeypatch.setattr(toolchain, "PACKAGED_PREFIX", tmp_path / "packaged")
    monkeypatch.delenv("NEAP_TOOLCHAIN", raising=False)
    monkeypatch.delenv(toolchain.ARCHIVE_VARIABLE, raising=False)
    return Trial(tmp_path / "recipe", mirror)


def neap(*words: str, directory: Path = REPOSITORY, **environment: str) -> subprocess.CompletedProcess:
    """Runs the launcher as its users do."""
    return finished([sys.executable, str(directory / "neap"), *words], 120, env={**os.environ, **environment}, cwd="/")


def alive(pid: int) -> bool:
    """True if a process runs. A zombie does not count as running."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def on_small_disk(directory: Path, size: str, program: str) -> subprocess.CompletedProcess:
    """Runs a Python program with a file system of `size` mounted on `directory`. The mount ends with the program."""
    namespaces = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    script = f'mount -t tmpfs -o size={size} tmpfs "$1" && exec "$2" -c "$3"'
    argv = [*namespaces, "sh", "-c", script, "sh", str(directory), sys.executable, program]
    return finished(argv, 120, env={**os.environ, "PYTHONPATH": str(REPOSITORY), "XDG_CACHE_HOME": str(directory)})
