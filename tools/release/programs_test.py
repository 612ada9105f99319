# SPDX-License-Identifier: BSL-1.0
"""The programs in Rust, as a release builds them."""

import os
import subprocess
from pathlib import Path

import pytest

from tools import build
from tools.conftest import REPOSITORY
from tools.errors import Failure
from tools.release import building, checks, rustc_wrapper

LOOKUP = """
#[path = "{reach}"]
mod reach;

fn main() {{
    match reach::addresses("a-name-of-this-test:7") {{
        Ok(found) => println!("{{}}", found[0]),
        Err(why) => println!("error: {{why}}"),
    }}
    let _ = reach::connect;
}}
"""


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv("CARGO_HOME", raising=False)
    return building.rust_environment()["CARGO_ENCODED_RUSTFLAGS"].split("\x1f")


def rustc(*words: str, directory: Path) -> None:
    compiler = Path(build.find_cargo() or "cargo").with_name("rustc")
    subprocess.run([str(compiler), "--edition=2021", *words], check=True, timeout=120, cwd=directory, capture_output=True)


def test_a_static_program_finds_names_where_the_machine_has_no_name_services(tmp_path: Path, flags: list[str]) -> None:
    """glibc would load a shared library for the service in this nsswitch.conf. Such a library needs the glibc that was linked."""
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/hosts").write_text("127.0.0.9 a-name-of-this-test\n")
    (root / "etc/nsswitch.conf").write_text("hosts: neapmissing [!UNAVAIL=return]\n")
    (tmp_path / "lookup.rs").write_text(LOOKUP.format(reach=REPOSITORY / "bench/load/src/reach.rs"))
    rustc(*flags, "-o", str(root / "lookup"), "lookup.rs", directory=tmp_path)
    assert not checks.is_dynamic(root / "lookup")
    namespaces = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
    done = subprocess.run([*namespaces, "chroot", str(root), "/lookup"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "127.0.0.9:7\n", done.stderr


def test_flags_take_every_path_of_this_machine_out_of_programs(tmp_path: Path, flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for name in ("one", "a second folder with a longer name"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setattr(build, "REPOSITORY", folder)
        own = building.rust_environment()["CARGO_ENCODED_RUSTFLAGS"].split("\x1f")
        (folder / "panics.rs").write_text('fn main() { assert!(std::env::args().count() > 100, "{}", file!()); }\n')
        rustc(*own, "-Cstrip=debuginfo", "-o", str(folder / "panics"), str(folder / "panics.rs"), directory=folder)
        made.append((folder / "panics").read_bytes())
        assert subprocess.run([str(folder / "panics")], capture_output=True, timeout=60).returncode == 101
    assert made[0] == made[1] and str(tmp_path).encode() not in made[0]
    assert any(flag == f"--remap-path-prefix={Path.home() / '.cargo'}=/cargo" for flag in flags)


def test_names_of_own_crates_do_not_depend_on_the_folder() -> None:
    words = ["--crate-name", "card", "--crate-type", "lib", "--target", "x", "-C", "metadata=0123", "-C", "extra-filename=-9", "src/lib.rs"]

    def names(repository: str, below: str, words: list[str] = words) -> list[str]:
        environment = {"CARGO_MANIFEST_DIR": f"{repository}/{below}", "CARGO_PKG_VERSION": "1"}
        return rustc_wrapper.rewritten(words, environment, Path(repository))

    own = names("/a", "sim/card")
    assert own == names("/a longer one", "sim/card") and own != words
    assert [word for word in own if "metadata" not in word] == [word for word in words if "metadata" not in word]
    others = [names("/a", "sim/other"), names("/a", "sim/card", ["bin" if word == "lib" else word for word in words])]
    others.append(names("/a", "sim/card", [*words, "--cfg", 'feature="more"']))
    assert len({other[7] for other in (own, *others)}) == 4
    registry = rustc_wrapper.rewritten(words, {"CARGO_MANIFEST_DIR": "/home/registry/libc"}, Path("/a"))
    assert registry == words


def test_missing_crates_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cargo = tmp_path / "cargo"
    cargo.write_text("#!/bin/sh\necho cannot reach the index >&2\nexit 101\n")
    cargo.chmod(0o755)
    monkeypatch.setattr(build, "find_cargo", lambda: str(cargo))
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    with pytest.raises(Failure, match="fetching the crates of the soft card failed") as caught:
        building.fetch_crates(build.SOFT_CARD_CRATE)
    assert "cargo fetch" in (caught.value.hint or "") and "cannot reach the index" in caught.value.details


def test_a_failure_in_the_staged_build_is_one_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    def fail(*words: str) -> None:
        raise Failure("a crate does not compile", "read the log")

    monkeypatch.setattr(building, "rust_programs", fail)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert building.main() == 1
    assert capsys.readouterr().err == "neap: error: a crate does not compile\nneap: read the log\n"
