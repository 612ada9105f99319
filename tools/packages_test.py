# SPDX-License-Identifier: BSL-1.0
import subprocess
from pathlib import Path

import pytest

from tools import packages
from tools.errors import Failure


@pytest.fixture
def poor_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with one empty directory on PATH. Returns that directory."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "installed", lambda package: False)
    return tmp_path


def test_a_program_on_path_counts_wherever_it_comes_from(poor_machine: Path) -> None:
    assert "cmake" in packages.missing(["build"])
    (poor_machine / "cmake").write_text("#!/bin/sh\n")
    (poor_machine / "cmake").chmod(0o755)
    assert packages.missing(["build"]) == ["ninja-build", "ccache", "xz-utils", "patch"]


def test_an_ordinary_user_gets_the_command_to_run(poor_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(packages, "install", lambda names: pytest.fail("must not install"))
    with pytest.raises(Failure, match="missing packages: cmake ninja-build ccache xz-utils patch") as caught:
        packages.require("build", "sources")
    assert caught.value.hint == "run: sudo apt-get install --no-install-recommends cmake ninja-build ccache xz-utils patch"


def test_as_root_it_is_installed(poor_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.os, "geteuid", lambda: 0)

    def install(names: list[str]) -> None:
        for need in packages.NEEDS["build"]:
            assert need.package in names
            (poor_machine / need.program).write_text("#!/bin/sh\n")
            (poor_machine / need.program).chmod(0o755)

    monkeypatch.setattr(packages, "install", install)
    packages.require("build")
    assert packages.missing(["build"]) == []


def test_a_package_that_is_still_missing_is_an_error(poor_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.os, "geteuid", lambda: 0)
    monkeypatch.setattr(packages, "install", lambda names: None)
    with pytest.raises(Failure, match="installed, but still not usable: cmake"):
        packages.require("build")


def test_apts_own_words_are_shown_when_it_fails(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "INSTALL_TIMEOUT_SECONDS", 120)
    real = subprocess.run

    def without_root(argv, **words):
        return real(["sh", "-c", "echo 'E: Unable to locate package nothing' >&2; exit 100"], **words)

    monkeypatch.setattr(packages.subprocess, "run", without_root)
    with pytest.raises(Failure, match=r"apt-get update failed \(status 100\)") as caught:
        packages.install(["nothing"])
    assert caught.value.details[-1] == "E: Unable to locate package nothing"


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [("1.63.0+dfsg1-2", ["cargo-web", "rustc-web"]), ("1.85.0+dfsg3-1", ["cargo", "rustc"]), ("", ["cargo-web", "rustc-web"])],
)
def test_another_package_replaces_a_rust_that_is_too_old(candidate: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 0, stdout=f"rustc:\n  Candidate: {candidate or '(none)'}\n")
    monkeypatch.setattr(packages.subprocess, "run", lambda argv, **words: done)
    assert packages.rust_packages(["cargo", "rustc"]) == expected


def test_dpkg_lists_the_installed_packages() -> None:
    assert packages.installed("dpkg")
    assert not packages.installed("no-such-package")
