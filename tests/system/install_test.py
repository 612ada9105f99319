# SPDX-License-Identifier: BSL-1.0
"""The wheel in empty Debian systems: a user without root, compiler and network comes from `pip install` to an answer of memcached.

QEMU's packages are at hand, as after an earlier fetch; unpacking them is part of what is tested. The times are printed, not asserted.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import chroots
import pytest
from chroots import HOME, USER_NUMBER, Chroot

from tools import archive, build, cache, progress, qemu
from tools.process import output_of
from tools.release import stage
from tools.release.assembly import assemble

pytestmark = [pytest.mark.as_root, pytest.mark.names_the_82599]

COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "cargo", "rustc", "cmake", "make", "ninja", "ld", "as")
RUN_SECONDS = 900
FETCH_SECONDS = 1800
CACHE = f"{HOME}/.cache"
# Runs memcached as a user does, and talks to it from another program. Prints the seconds of each step as JSON.
SESSION = """
import glob, json, os, re, signal, socket, subprocess, sys, time
times, start = {}, (time.monotonic(), 0.0)
def step(name):
    global start
    used = os.times()
    now = (time.monotonic(), used.children_user + used.children_system)
    times[name], start = [round(now[i] - start[i], 2) for i in (0, 1)], now
subprocess.run([sys.executable, "-m", "venv", "a venv"], check=True)
step("venv")
subprocess.run(["a venv/bin/pip", "install", "--quiet", "--no-index", *glob.glob("neap-*.whl")], check=True)
step("pip install")
neap = subprocess.Popen(["a venv/bin/neap", "run", "memcached", *sys.argv[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, text=True)
lines = []
for line in neap.stdout:
    lines.append(line)
    if found := re.search(r"answers on 127.0.0.1:(\\d+)", line):
        with socket.create_connection(("127.0.0.1", int(found[1])), 60) as client:
            client.sendall(b"set a 0 0 2\\r\\nhi\\r\\n")
            answer = client.recv(100).decode()
        step("run to the answer")
        break
else:
    sys.exit("".join(lines))
neap.send_signal(signal.SIGINT)
lines += neap.stdout.readlines()
status = neap.wait(60)
used = os.times()
times["run to the answer"][1] = round(used.children_user + used.children_system - start[1], 2)
left = [name for name in glob.glob("/tmp/neap-*") + glob.glob("/dev/shm/neap-*")]
print(json.dumps({"answer": answer, "status": status, "times": times, "lines": lines, "left": left}))
"""
# Puts QEMU's packages where the launcher keeps those of a fetch that was interrupted. Needs a network.
DOWNLOAD = """
import sys
sys.path.insert(0, sys.argv[1])
from tools import archive, qemu
source = archive.Archive()
_, entry = qemu.candidate(source)
source.download(qemu.packages_of(source), source.kept(entry.path))
"""
# Without a user's network namespace there is no mirror to ask.
REFUSED = r"neap: error: no suitable QEMU is here, and none could be fetched from Debian: Debian's mirror \S+ cannot be reached"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout's products, without those that were not built."""
    assert build.has_image("memcached.elf") and build.SOFT_CARD.is_file(), "./neap test system builds them"
    made = assemble(stage.of_checkout(build.REPOSITORY), tmp_path_factory.mktemp("wheel"), parts=["wheel"], complete=False)
    print(f"wheel: {made[0].stat().st_size / 1e6:.1f} MB")
    return made[0]


@pytest.fixture
def system(wheel: Path, tmp_path: Path) -> Callable[..., Chroot]:
    """Returns a function that makes a Debian with the wheel in the user's home."""
    made: list[Chroot] = []

    def make(suite: str, *more: str) -> Chroot:
        chroot = Chroot(chroots.base(suite, more), tmp_path / suite)
        made.append(chroot)
        chroot.write(f"{HOME}/{wheel.name}", wheel.read_bytes())
        return chroot

    yield make
    for chroot in made:
        chroot.__exit__()


def packages_at_hand(system: Chroot, suite: str, wheel: Path) -> None:
    """Gives the user the package lists and QEMU's packages, as an earlier fetch on this system left them. They are kept for later tests."""
    entry = cache.Entry("chroots", f"qemu-for-{suite}-{cache.digest(qemu.PACKAGE, qemu.OPENED.pattern, archive.BACKPORTS, qemu.TESTED)}")
    kept = entry.path / "apt.tar"
    with entry.making(work="fetches QEMU's packages") as mine:
        if mine:
            script = (
                f"python3 -m zipfile -e {wheel.name} unpacked && python3 -c '{DOWNLOAD}' unpacked/neap/tree; s=$?; rm -r unpacked; exit $s"
            )
            with progress.step(f"fetching QEMU's packages as a user of Debian {suite}"):
                system.must_run(script, network=True, seconds=FETCH_SECONDS)
            argv = ["tar", "--create", "--file", str(kept), "--directory", f"{system.root}{CACHE}", "neap/apt"]
            output_of(argv, timeout_seconds=600)
            cache.remove(system.root / CACHE.lstrip("/"))
    place = system.root / CACHE.lstrip("/")
    place.mkdir()
    output_of(["tar", "--extract", "--file", str(kept), "--directory", str(place)], timeout_seconds=600)
    output_of(["chown", "-R", f"{USER_NUMBER}:{USER_NUMBER}", str(place)])
    for stamp in place.glob("neap/apt/*/updated"):
        stamp.touch()


def session(system: Chroot, *words: str) -> dict:
    """Runs SESSION, prints its times, and returns its findings."""
    system.write(f"{HOME}/session.py", SESSION.encode())
    found = json.loads(system.must_run(f"python3 session.py {' '.join(words)}", seconds=RUN_SECONDS).splitlines()[-1])
    total = sum(wall for name, (wall, _) in found["times"].items() if name != "venv")
    print(f"{system.root.name} {' '.join(words)}: [seconds, of which CPU]: {found['times']}; from pip install to the answer {total:.1f} s")
    assert found["answer"] == "STORED\r\n", found
    assert found["status"] == 130 and found["left"] == [], found
    return found


def require_nothing_to_build_with(system: Chroot) -> None:
    script = f"for name in {' '.join(COMPILERS)}; do command -v $name; done; id -u; touch /x 2>/dev/null && echo root; true"
    assert system.must_run(script, seconds=60) == f"{USER_NUMBER}\n"


@pytest.mark.parametrize("suite", chroots.SUITES)
def test_from_the_wheel_to_an_answer_without_root_compiler_and_network(suite: str, system, wheel: Path) -> None:
    debian = system(suite)
    require_nothing_to_build_with(debian)
    packages_at_hand(debian, suite, wheel)
    session(debian)
    # Nothing is needed from now on, and nothing of the fetch is left.
    shutil.rmtree(debian.root / f"{HOME}/a venv".lstrip("/"))
    assert not list((debian.root / CACHE.lstrip("/")).glob("neap/apt/*/packages/*"))
    cache.remove(debian.root / f"{CACHE}/neap/apt".lstrip("/"))
    session(debian)
    report = debian.run("'a venv/bin/neap' doctor", seconds=120).stdout
    assert report.splitlines()[0].split(None, 2)[2].startswith("installed from the wheel, "), report
    assert not [line for line in report.splitlines() if "missing" in line and not line.startswith("products")], report


def test_a_distributions_own_qemu_runs_it_on_a_virtio_card(system) -> None:
    debian = system("bookworm", "qemu-system-x86")
    require_nothing_to_build_with(debian)
    found = session(debian, "--card", "virtio")
    assert "neap: QEMU 7.2" in "".join(found["lines"])
    assert not (debian.root / f"{CACHE}/neap/qemu".lstrip("/")).exists()


def test_without_network_and_qemu_the_first_run_says_how_to_get_one(system) -> None:
    debian = system("trixie")
    debian.must_run("python3 -m venv v && v/bin/pip install --quiet --no-index neap-*.whl", seconds=300)
    done = debian.run("v/bin/neap run memcached", seconds=300)
    errors = [line for line in done.stderr.splitlines() if line.startswith("neap: error:")]
    assert done.returncode == 1 and len(errors) == 1 and re.match(REFUSED, errors[0]), done.stderr
    assert f"neap: {qemu.HINT}" in done.stderr.splitlines()
    done = debian.run("v/bin/neap new mine && v/bin/neap run ./mine", seconds=300)
    assert done.returncode == 1 and "missing packages: " in done.stderr and "cargo" not in done.stderr, done.stderr
