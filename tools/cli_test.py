# SPDX-License-Identifier: BSL-1.0
"""Starts the launcher as its users do. A wrong command line gives one line that explains it, and no file is made."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import cache
from tools.conftest import REPOSITORY, neap
from tools.process import finished


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "no command"),
        (["walk"], "there is no 'walk'"),
        (["run"], "the following arguments are required: APP"),
        (["run", "no-such-application"], "there is no application 'no-such-application'"),
        (["ctl", "memcached"], "the following arguments are required: LINE"),
        (["ctl", "memcached", "--json", "--", "x"], "the following arguments are required: LINE"),
        (["ctl", "memcached", "get,0"], "get answers with a log, not with a line"),
        (["ctl", "memcached", "a\nb"], "ctl takes one command a word"),
        (["ctl", "no,where", "status"], "'no,where' is neither an application nor HOST[:PORT]"),
        (["ctl", "127.0.0.1:0", "status"], "'127.0.0.1:0' is neither an application nor HOST[:PORT]"),
        (["ctl", "127.0.0.1", "status", "--pid", "7"], "--pid chooses among applications that run here"),
        (["top", "127.0.0.1", "--seconds", "0"], "--seconds takes 0.1 to 3600, not 0"),
        (["log"], "the following arguments are required: ACTION"),
        (["log", "burn"], "there is no 'burn'"),
        (["log", "collect", "memcached"], "the following arguments are required: --out"),
        (["log", "csv"], "the following arguments are required: DIR|FILE"),
        (["run", "hello", "--fast"], "unrecognized arguments: --fast"),
        (["run", "hello", "--cores", "many"], "argument --cores: invalid int value: 'many'"),
        (["run", "hello", "key=value"], "unrecognized arguments: key=value"),
        (["build", "no-such-application"], "there is no application 'no-such-application'"),
        (["build", "hello", "--", "a=1"], "build takes nothing after --"),
        (["test", "no-such-layer"], "there is no test layer 'no-such-layer'"),
        (["soak", "--minutes", "0"], "--minutes takes more than 0"),
        (["bench"], "the following arguments are required: NAME"),
        (["bench", "no-such-benchmark"], "there is no benchmark 'no-such-benchmark'"),
        (["toolchain"], "the following arguments are required: build|export|import"),
        (["toolchain", "destroy"], "there is no 'destroy'"),
        (["toolchain", "import"], "toolchain import takes the name of a file"),
        (["toolchain", "export", "file", "--sha256", "00"], "--sha256: only toolchain import accepts it"),
        (["toolchain", "build", "file"], "toolchain build takes no file"),
        (["pxe", "hello"], "the following arguments are required: --out"),
        (["pxe", "--out", "x"], "pxe: name the applications"),
        (["pxe", "no-such-application", "--out", "x"], "there is no application 'no-such-application'"),
        (["iso", "no-such-application"], "there is no application 'no-such-application'"),
        (["power", "explode", "rack1"], "power: there is no 'explode'"),
        (["release", "0.1.0"], "unrecognized arguments: 0.1.0"),
        (["clean", "--all"], "unrecognized arguments: --all"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_makes_nothing(tmp_path: Path, words: list[str], expected: str) -> None:
    done = neap(*words, XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    first, *hints = done.stderr.splitlines()
    assert first.startswith(f"neap: error: {expected}")
    assert len(hints) <= 1 and all(hint.startswith("neap: ") for hint in hints)
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_command() -> None:
    done = neap("--help")
    assert done.returncode == 0
    for command in (
        "run",
        "ctl",
        "machine",
        "top",
        "log",
        "build",
        "test",
        "soak",
        "pxe",
        "iso",
        "power",
        "bench",
        "doctor",
        "toolchain",
        "release",
        "clean",
    ):
        assert f"\n  {command} " in done.stdout
        assert neap(command, "--help").returncode == 0


def test_a_python_that_is_too_old_is_reported() -> None:
    # The launcher's file `neap` checks Python's version, so its syntax must also be valid for an older Python.
    program = (REPOSITORY / "neap").read_text().replace("sys.version_info < (3, 11)", "sys.version_info < (99, 0)")
    done = finished([sys.executable, "-c", program])
    assert done.returncode == 1
    assert done.stderr.startswith("neap: error: Python 3.11 or newer is needed")


def test_a_cache_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = neap("toolchain", "build", XDG_CACHE_HOME=str(tmp_path / "file/below"), NEAP_TOOLCHAIN="")
    assert done.returncode == 1
    assert done.stderr.startswith("neap: error: cannot make the cache directory")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("OSError(errno.EROFS, 'Read-only', '/srv/x')", "neap: error: /srv/x: Read-only\nneap: is it yours to write?\n"),
        ("OSError(errno.EDQUOT, 'Quota')", "neap: error: no space left on the disk\nneap: make room and start again\n"),
        ("ConnectionResetError(errno.ECONNRESET, 'Connection reset by peer')", "neap: error: Connection reset by peer\n"),
    ],
)
def test_an_error_of_the_system_is_no_traceback(error: str, expected: str) -> None:
    program = "import errno, sys; sys.path.insert(0, sys.argv[1]); from tools import cli, doctor\n"
    program += f"def refuse(as_json): raise {error}\ndoctor.doctor = refuse; sys.exit(cli.main(['doctor']))"
    done = finished([sys.executable, "-c", program, str(REPOSITORY)])
    assert (done.returncode, done.stderr) == (1, expected)


def test_doctor_reports_as_text_and_as_json(tmp_path: Path) -> None:
    text = neap("doctor")
    rows = json.loads(neap("doctor", "--json").stdout)
    assert {row["state"] for row in rows} <= {"ok", "later", "missing"}
    assert [row["name"] for row in rows] == [line.split("  ")[0] for line in text.stdout.splitlines()]
    assert text.returncode == (1 if any(row["state"] == "missing" for row in rows) else 0)


def test_doctor_on_an_empty_cache_says_what_will_come_and_makes_none_of_it(tmp_path: Path) -> None:
    rows = {row["name"]: row for row in json.loads(neap("doctor", "--json", XDG_CACHE_HOME=str(tmp_path), NEAP_TOOLCHAIN="").stdout)}
    assert rows["toolchain"]["state"] == "later"
    assert [path.name for path in (tmp_path / "neap").iterdir()] == []


def test_clean_removes_what_was_built_but_not_what_is_in_use(tmp_path: Path) -> None:
    # Uses another checkout, because the build directory of this checkout is in use.
    checkout = tmp_path / "check out"
    checkout.mkdir()
    (checkout / "neap").symlink_to(REPOSITORY / "neap")
    program = "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from tools import build, cleaning, cli\n"
    program += "build.BUILD = Path(sys.argv[2]); sys.exit(cli.main(['clean', *sys.argv[3:]]))"
    built = checkout / "build/image"
    built.mkdir(parents=True)
    (tmp_path / "cache/neap/toolchain").mkdir(parents=True)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def clean(*words: str) -> subprocess.CompletedProcess:
        return finished([sys.executable, "-c", program, str(REPOSITORY), str(checkout / "build"), *words], env=environment)

    held = cache.try_lock(checkout / "build/image.lock")
    done = clean()
    assert done.returncode == 1 and "is in use by another neap" in done.stderr and built.exists()
    os.close(held)
    assert clean().returncode == 0 and not built.exists() and (tmp_path / "cache/neap/toolchain").exists()
    held = cache.try_lock(tmp_path / "cache/neap/toolchain/key.lock")
    assert clean("--cache").returncode == 1 and (tmp_path / "cache/neap").exists()
    os.close(held)
    assert clean("--cache").returncode == 0 and not (tmp_path / "cache/neap").exists()
