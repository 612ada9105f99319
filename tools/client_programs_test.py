# SPDX-License-Identifier: BSL-1.0
import os
import shutil
from pathlib import Path

import pytest

from tools import cache, client_programs
from tools.errors import Failure

GO = """#!/bin/sh
[ "$1" = version ] && exec echo "go version test"
echo "$GOFLAGS $GOMODCACHE $GOPROXY $GOPATH" >"{seen}"
[ -e "{broken}" ] && {{ echo "dial tcp: no route to host"; exit 1; }}
for word; do case "$word" in */) folder=$word;; esac; done
echo "#!/bin/sh" >"$folder/history"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a fake Go, whose builds fail if the file `broken` exists. The build's settings are in the file `seen`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "go").write_text(GO.format(seen=tmp_path / "seen", broken=tmp_path / "broken"))
    (programs / "go").chmod(0o755)
    for name in ("sh", "echo", "rm"):
        (programs / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for function in (client_programs.go, client_programs.node, client_programs.java):
        function.cache_clear()
    yield tmp_path
    for function in (client_programs.go, client_programs.node, client_programs.java):
        function.cache_clear()


def test_a_program_is_built_once_with_its_modules_in_the_cache(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOFLAGS", "GOPATH", "GOMODCACHE"):
        monkeypatch.setenv(name, "the-user's")
    monkeypatch.setenv("GOPROXY", "the-user's-proxy")
    (program,) = client_programs.go("history")
    assert Path(program).is_file() and cache.root() in Path(program).parents
    flags, modules, proxy = (machine / "seen").read_text().split(" ", 1)[0], *(machine / "seen").read_text().split()[-2:]
    assert flags == "-mod=readonly" and modules == str(cache.root() / "go/modules") and proxy == "the-user's-proxy"
    client_programs.go.cache_clear()
    (machine / "broken").touch()
    assert client_programs.go("history") == [program]


def test_a_download_that_fails_is_one_sentence_with_a_remedy(machine: Path) -> None:
    (machine / "broken").touch()
    with pytest.raises(Failure, match=r"cannot fetch the clients in Go: go build failed \(status 1\)") as caught:
        client_programs.go("history")
    assert "check that this machine reaches the registry of Go modules" in (caught.value.hint or "")
    assert "dial tcp: no route to host" in caught.value.details
    (machine / "broken").unlink()
    assert client_programs.go("history")


@pytest.mark.parametrize("program, package", [("go", "golang-go"), ("npm", "npm"), ("javac", "default-jdk-headless")])
def test_a_missing_compiler_names_its_package(machine: Path, program: str, package: str) -> None:
    os.unlink(machine / "bin/go")
    calls = {"go": lambda: client_programs.go("history"), "npm": lambda: client_programs.node("memjs_calls.js")}
    with pytest.raises(Failure, match=f"need {program}") as caught:
        calls.get(program, lambda: client_programs.java("SpymemcachedCalls", "libspymemcached-java", "spymemcached.jar"))()
    assert (caught.value.hint or "").endswith(f" {package}")
