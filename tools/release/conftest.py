# SPDX-License-Identifier: BSL-1.0
"""A small stage for the tests of a release: few sources, and files of some bytes in the place of the programs."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.release.stage import COMMIT_FILE, Stage

REVISION = "0123456789abcdef0123456789abcdef01234567"
EPOCH = 1_700_000_000
SOURCES = {
    "CMakeLists.txt": "project(neap VERSION 1.2.3 LANGUAGES C)\n",
    "CITATION.cff": "version: 1.2.3\n",
    "CHANGELOG.md": "# Changes\n\n## 1.2.3, 2026-11-28\n- New.\n\n## 1.2.2, 2026-01-01\n- Old.\n",
    "README.md": "# Neap\n",
    "LICENSE": "the licence\n",
    ".gitattributes": f"{COMMIT_FILE} export-subst\n",
    COMMIT_FILE: "$Format:%H %ct$\n",
    "apps/hello/main.cpp": "",
    "apps/hello/CMakeLists.txt": "neap_application(hello SOURCES main.cpp)\n",
    "neap": "#!/usr/bin/env python3\n",
    "tools/cli.py": "def main(words):\n    print('started with', *words)\n    return 3\n",
    "tools/__init__.py": "",
    "sim/soft82599/Cargo.toml": '[workspace.package]\nversion = "1.2.3"\n[package]\nversion.workspace = true\n',
    "sim/soft82599/card/Cargo.toml": "[package]\nversion.workspace = true\n",
    "sim/world/Cargo.toml": '[package]\nversion = "1.2.3"\n',
    "bench/load/Cargo.toml": '[package]\nversion = "1.2.3"\n',
}
EXECUTABLE = ("neap",)
PRODUCTS = (
    "build/image/apps/hello/hello.elf",
    "build/image-debug/apps/hello/hello.elf",
    "build/soft82599/release/soft82599",
    "build/load/release/neap-load",
    "build/load/release/neap-load-stub",
    "build/world/release/neap-world",
    "build/machine/machine-7.so",
)


def write_sources(tree: Path) -> None:
    for name, text in SOURCES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
        (tree / name).chmod(0o755 if name in EXECUTABLE else 0o644)


def stage_at(tree: Path) -> Stage:
    """Writes sources and products into a folder, and returns its stage."""
    write_sources(tree)
    for name in PRODUCTS:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(f"product {name}\n")
        (tree / name).chmod(0o755)
    return Stage(
        tree=tree,
        version="1.2.3",
        revision=REVISION,
        epoch=EPOCH,
        soft_card=tree / "build/soft82599/release/soft82599",
        load=tree / "build/load/release/neap-load",
        load_stub=tree / "build/load/release/neap-load-stub",
        toolchain=tree / "toolchain",
        world=tree / "build/world/release/neap-world",
    )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return stage_at(tmp_path / "a tree")


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """A repository with the sources and one commit, in `tmp_path/checkout`. Returns a function that runs git in it."""
    checkout = tmp_path / "checkout"
    write_sources(checkout)

    def run(*words: str) -> str:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
        return subprocess.run(
            ["git", "-C", str(checkout), *identity, *words], check=True, capture_output=True, text=True, timeout=60
        ).stdout

    run("init", "--quiet")
    run("add", "--all")
    run("commit", "--quiet", "--message", "All")
    return run
