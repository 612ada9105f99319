# SPDX-License-Identifier: BSL-1.0
"""Two builds of one commit give the same image, byte for byte, wherever the checkout lies: so that a published image can be checked.

The tree is copied to two places, one of them with a space in its name, and `hello` is built in both as for a release. The settings
are those of the build that the other tests use.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("NEAP_TARGET_IMAGES", REPOSITORY / "build/image-debug"))
SETTINGS = ("NEAP_TOOLCHAIN", "NEAP_LWIP_SOURCE", "NEAP_BOOST_INCLUDE")
BUILD_SECONDS = 900
TARGET = "hello"


def settings() -> list[str]:
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    found = {name: re.search(rf"^{name}:\w+=(.+)$", cache, re.MULTILINE) for name in SETTINGS}
    return [f"-D{name}={match[1]}" for name, match in found.items() if match]


def copy_tree(source: Path, destination: Path) -> None:
    def unneeded(folder: str, names: list[str]) -> list[str]:
        top = Path(folder) == source
        return [name for name in names if name == "__pycache__" or (top and name in {"build", ".git", "sim"})]

    shutil.copytree(source, destination, ignore=unneeded, symlinks=True)


def build(source: Path, output: Path) -> Path:
    log = output.parent / "log"
    with open(log, "wb") as sink:
        for command in (
            ["cmake", "--preset", "image", "-B", str(output), *settings()],
            ["cmake", "--build", str(output), "--target", f"{TARGET}.elf"],
        ):
            done = subprocess.run(command, cwd=source, stdout=sink, stderr=subprocess.STDOUT, timeout=BUILD_SECONDS)
            if done.returncode != 0:
                pytest.fail(log.read_text(errors="replace")[-5000:], pytrace=False)
    return output / "apps" / TARGET / f"{TARGET}.elf"


def test_two_builds_give_identical_images(tmp_path: Path) -> None:
    one, other = tmp_path / "one/checkout", tmp_path / "a longer path with spaces/a tree"
    copy_tree(REPOSITORY, one)
    copy_tree(one, other)
    first = build(one, tmp_path / "one/out").read_bytes()
    second = build(other, other.parent / "and its build").read_bytes()
    assert len(first) == len(second)
    difference = next((at for at, (a, b) in enumerate(zip(first, second, strict=True)) if a != b), None)
    assert difference is None, f"the images differ from byte {difference} on"
    for path in (tmp_path, REPOSITORY):
        assert os.fsencode(path) not in first, f"the image holds the path {path}"
