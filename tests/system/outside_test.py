# SPDX-License-Identifier: BSL-1.0
"""Applications in their own folders, at paths with spaces: built against an installed Neap, and against this checkout."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import build
from tools.build import REPOSITORY
from tools.process import finished

pytestmark = pytest.mark.image_only

SECONDS = 550


def run(*argv: str, folder: Path, **environment: str) -> str:
    """Runs a command, which must succeed, and returns its output."""
    own = {name: value for name, value in os.environ.items() if name != "NEAP_PREFIX"}
    done = finished(argv, SECONDS, cwd=folder, env={**own, **environment})
    output = done.stdout + done.stderr
    logs = "".join(path.read_text(errors="replace")[-3000:] for path in folder.glob("*/build/*.log")) if done.returncode else ""
    assert done.returncode == 0, f"{argv}:\n{output[-3000:]}{logs}"
    return output


def neap(*words: str, folder: Path, **environment: str) -> str:
    return run(sys.executable, str(REPOSITORY / "neap"), *words, folder=folder, **environment)


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="neap outside ") as name:
        yield Path(name)


def installed(prefix: Path) -> Path:
    with build.building("image") as directory:
        build.build_locked("image", ["neap_libraries"])
        run("cmake", "--install", str(directory), "--prefix", str(prefix), folder=REPOSITORY)
    return prefix


def test_a_new_application_against_an_installed_neap_builds_boots_and_passes_its_own_test(place: Path) -> None:
    prefix = installed(place / "the prefix")
    neap("new", "my-echo", "--dir", str(place), folder=place)
    assert "1 passed, 0 failed" in neap("test", "./my-echo", folder=place, NEAP_PREFIX=str(prefix))
    cache = (place / "my-echo/build/image/CMakeCache.txt").read_text()
    assert f"Neap_DIR:UNINITIALIZED={prefix}" in cache or f"Neap_DIR:PATH={prefix}" in cache
    # Configures the application by its presets alone, without the launcher.
    run("cmake", "--preset", "image", "-B", str(place / "by hand"), folder=place / "my-echo", NEAP_PREFIX=str(prefix))
    # A debug build against a release Neap fails with an error of one sentence.
    wrong = ["cmake", "--preset", "image-debug", "-B", str(place / "wrong")]
    done = finished(wrong, cwd=place / "my-echo", env={**os.environ, "NEAP_PREFIX": str(prefix)})
    assert done.returncode != 0 and "This Neap was built as Release" in " ".join(done.stderr.split())


def test_installed_headers_include_only_what_is_installed(place: Path) -> None:
    prefix = installed(place / "prefix")
    headers = sorted(str(path.relative_to(prefix / "include/neap")) for path in prefix.rglob("*.hpp"))
    assert "net/network.hpp" in headers and "ixgbe/registers.hpp" in headers
    compiler = Path((prefix / "lib/cmake/Neap/toolchain-prefix.txt").read_text().strip()) / "bin/x86_64-neap-elf-g++"
    (place / "all.cpp").write_text("".join(f'#include "{header}"\n' for header in headers))
    run(str(compiler), "-std=gnu++23", "-fsyntax-only", "-Wall", "-I", str(prefix / "include/neap"), "all.cpp", folder=place)


def test_an_application_of_this_checkout_and_its_libraries_is_rebuilt_when_they_change(place: Path) -> None:
    folder = place / "small"
    neap("new", "small", "--dir", str(place), folder=place)
    (folder / "main.cpp").write_text((REPOSITORY / "apps/hello/main.cpp").read_text())
    (folder / "CMakeLists.txt").write_text(re.sub(r" LIBRARIES [^)]*\)", ")", (folder / "CMakeLists.txt").read_text()))
    assert "hello from core 1" in neap("run", str(folder), "--cores", "2", folder=place)
    image = folder / "build/image/small.elf"
    first = image.stat().st_mtime_ns
    neap("run", str(folder), folder=place)
    assert image.stat().st_mtime_ns == first, "nothing had changed"
    assert os.fsencode(folder) not in image.read_bytes(), "the image holds the path of its folder"
    plan = run("ninja", "-t", "query", "small.elf", folder=folder / "build/image")
    objects = str(build.BUILD / "image/kernel/CMakeFiles/neap_kernel.dir/events.cpp.obj")
    assert objects in plan, "the image does not depend on the kernel's objects"
