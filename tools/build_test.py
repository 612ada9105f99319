# SPDX-License-Identifier: BSL-1.0
import shutil
from pathlib import Path

import pytest

from tools import build
from tools.errors import Failure, UsageError
from tools.process import finished

CMAKE = "cmake_minimum_required(VERSION 3.25)\nproject(trial NONE)\nadd_custom_target(one COMMAND ${CMAKE_COMMAND} -E echo built)\n"
CMAKE += "file(APPEND ${CMAKE_BINARY_DIR}/../configured x)\n"
PRESETS = '{"version": 6, "configurePresets": [{"name": "image", "generator": "Ninja", "binaryDir": "${sourceDir}/build/image"}]}'


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project in a path with a space. The file `configured` in its build directory counts how often CMake ran."""
    root = tmp_path / "a checkout"
    root.mkdir()
    (root / "CMakeLists.txt").write_text(CMAKE)
    (root / "CMakePresets.json").write_text(PRESETS)
    monkeypatch.setattr(build, "REPOSITORY", root)
    monkeypatch.setattr(build, "BUILD", root / "build")
    monkeypatch.setattr(build, "configure_arguments", lambda preset: ["-DA=1"])
    return root


def configured(checkout: Path) -> int:
    return len((checkout / "build/configured").read_text())


def test_cmake_runs_once_and_again_when_its_words_change(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.build("image", ["one"]) == checkout / "build/image"
    build.build("image", ["one"])
    assert configured(checkout) == 1
    (checkout / "build/image/kept").touch()
    monkeypatch.setattr(build, "configure_arguments", lambda preset: ["-DA=2"])
    build.build("image", ["one"])
    assert configured(checkout) == 2
    assert (checkout / "build/image/kept").exists()


def test_only_a_build_that_builds_something_is_printed(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(trial NONE)\n"
        "add_custom_command(OUTPUT made COMMAND ${CMAKE_COMMAND} -E touch made)\nadd_custom_target(one DEPENDS made)\n"
    )
    printed = "neap: building one (image)\n"
    build.build("image", ["one"])
    assert printed in capsys.readouterr().err
    build.build("image", ["one"])
    assert "building" not in capsys.readouterr().err
    (checkout / "build/image/made").unlink()
    build.build("image", ["one"])
    assert printed in capsys.readouterr().err


CARGO = """\
#!/bin/sh
printf '%s\\n' "$CARGO_TERM_PROGRESS_WHEN"
[ -e built ] || { touch built; printf '   Compiling card v0.1.0\\n    Building [=> ] 1/2: card\\r'; }
echo '    Finished `release` profile'
"""


def test_only_a_cargo_that_compiles_is_printed(checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    crate = build.Crate("the soft card", checkout / "card", "card")
    crate.source.mkdir()
    (crate.source / "Cargo.toml").touch()
    (checkout / "cargo").write_text(CARGO)
    (checkout / "cargo").chmod(0o755)
    monkeypatch.setattr(build, "find_cargo", lambda: str(checkout / "cargo"))
    for printed in ("neap: building the card\n", ""):
        log = build.cargo_run(crate, ["build"], "building the card", "card")
        assert (capsys.readouterr().err, "always" in log.read_text()) == (printed, True)
    log = build.cargo_run(crate, ["test"], "testing the card", "card")
    assert (capsys.readouterr().err, "always" in log.read_text()) == ("neap: testing the card\n", False)


def test_another_compiler_starts_the_build_directory_over(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for toolchain in ("/one", "/two"):
        words = [f"{build.TOOLCHAIN_WORD}{toolchain}"]
        monkeypatch.setattr(build, "configure_arguments", lambda preset, words=words: words)
        build.build("image", ["one"])
        (checkout / f"build/image{toolchain}").touch()
    assert not (checkout / "build/image/one").exists()


@pytest.mark.parametrize("kept", ["all", "without build.ninja", "without the launcher's stamp", "gone from the old place"])
def test_a_copied_checkout_builds_its_own_sources(
    kept: str, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build.build("image", ["one"])
    assert "afresh" not in capsys.readouterr().err
    copy = checkout.with_name("the copy")
    shutil.copytree(checkout, copy)
    if kept == "without build.ninja":
        (copy / "build/image/build.ninja").unlink()
    elif kept == "without the launcher's stamp":
        (copy / "build/image/.neap-configured").unlink()
    elif kept == "gone from the old place":
        shutil.rmtree(checkout)
    (copy / "CMakeLists.txt").write_text(CMAKE + "file(TOUCH ${CMAKE_BINARY_DIR}/of-the-copy)\n")
    monkeypatch.setattr(build, "REPOSITORY", copy)
    monkeypatch.setattr(build, "BUILD", copy / "build")
    line = f"neap: build/image was configured for the sources in {checkout}; it is removed and configured afresh\n"
    build.build("image", ["one"])
    assert capsys.readouterr().err.count(line) == 1
    assert (copy / "build/image/of-the-copy").exists()
    build.build("image", ["one"])
    assert "afresh" not in capsys.readouterr().err


# CMake takes the working directory's path from the shell, and that path may contain a symbolic link.
def test_a_checkout_behind_a_link_is_configured_once(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = checkout.with_name("link")
    link.symlink_to(checkout)
    monkeypatch.setenv("PWD", str(link))
    build.build("image", ["one"])
    build.build("image", ["one"])
    assert configured(checkout) == 1


def test_a_build_that_fails_to_configure_is_configured_again(checkout: Path) -> None:
    (checkout / "CMakeLists.txt").write_text(CMAKE + 'message(FATAL_ERROR "no such thing")\n')
    with pytest.raises(Failure, match=r"configuring image failed \(status 1\)") as caught:
        build.build("image")
    assert any("no such thing" in line for line in caught.value.details)
    (checkout / "CMakeLists.txt").write_text(CMAKE)
    build.build("image", ["one"])


def test_a_target_that_does_not_exist_fails(checkout: Path) -> None:
    with pytest.raises(Failure, match=r"building two \(image\) failed"):
        build.build("image", ["two"])


def test_applications_are_the_folders_with_a_main(checkout: Path) -> None:
    for name in ("zeta", "alpha"):
        (checkout / "apps" / name).mkdir(parents=True)
        (checkout / "apps" / name / "main.cpp").touch()
    (checkout / "apps/none").mkdir()
    assert build.applications() == ["alpha", "zeta"]
    build.require_application("zeta")
    with pytest.raises(UsageError, match=r"no application 'none' \(applications: alpha, zeta\)"):
        build.require_application("none")


def fake_rust(directory: Path, version: str) -> None:
    directory.mkdir()
    for name in ("cargo", "rustc"):
        (directory / name).write_text(f"#!/bin/sh\necho '{name} {version} (x)'\n")
        (directory / name).chmod(0o755)


def test_a_rust_that_is_too_old_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_rust(tmp_path / "new", "1.85.0")
    fake_rust(tmp_path / "old", "1.63.0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'new'}:/bin")
    assert build.find_cargo() == str(tmp_path / "new/cargo")
    monkeypatch.setenv("PATH", f"{tmp_path / 'old'}:/bin")
    assert build.find_cargo() in (None, "/usr/bin/cargo")


def test_a_checkout_without_a_soft_card_is_reported(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "SOFT_CARD_CRATE", build.Crate("the soft card", checkout / "sim/soft82599", "soft82599"))
    with pytest.raises(Failure, match="lacks the soft card"):
        build.build_soft_card()


def test_the_presets_that_the_launcher_uses_exist() -> None:
    listing = finished(["cmake", "--list-presets"], cwd=Path(__file__).parent.parent)
    for preset in (*build.CROSS_PRESETS, *build.HOST_PRESETS):
        assert f'"{preset}"' in listing.stdout
