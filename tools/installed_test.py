# SPDX-License-Identifier: BSL-1.0
"""An installed Neap runs products, compiles in a copy of its sources, and leaves nothing half done when it is stopped or a disk is full."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import cache, installed, launcher_name, run_directory, staged_tree
from tools.errors import Failure
from tools.process import finished, wait_until

SECONDS = 120
# The guest ends with success after it has printed its command line.
ENDS = ("--card", "virtio", "--", "s")
HALTS = ("--card", "virtio", "--", "x")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory, guest_image: Path) -> Path:
    """An installation. Tests MUST NOT change it; its own launcher does not either."""
    return staged_tree.make(tmp_path_factory.mktemp("a prefix") / "site packages/neap/tree", guest_image)


@pytest.fixture
def own_tree(tmp_path: Path, guest_image: Path) -> Path:
    """An installation that the test may change."""
    return staged_tree.make(tmp_path / "a prefix/neap/tree", guest_image)


@pytest.fixture
def runs_here() -> Iterator[Path]:
    """A directory for runs' sockets, whose path is short enough for them."""
    with tempfile.TemporaryDirectory(prefix="neap-") as name:
        yield Path(name)


def neap(tree: Path, *words: str, env: dict[str, str], cwd: Path | str = "/") -> subprocess.CompletedProcess[str]:
    return finished([sys.executable, str(tree / "neap"), *words], SECONDS, env=env, cwd=cwd)


def facts(tree: Path) -> dict[str, int]:
    return {str(path.relative_to(tree)): path.stat().st_mtime_ns for path in tree.rglob("*")}


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the one error line. The launcher MUST have printed no traceback."""
    errors = [line for line in done.stderr.splitlines() if line.startswith("neap: error:")]
    assert done.returncode == 1 and len(errors) == 1 and "Traceback" not in done.stderr, done.stderr
    return errors[0]


def reported(done: subprocess.CompletedProcess[str]) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---- which Neap this is ----


def test_a_checkout_has_no_release() -> None:
    assert installed.release() is installed.origin() is installed.released() is None
    installed.require_copy()
    installed.require_command("build")
    assert launcher_name.NAME == "./neap"


def test_the_launchers_name_is_changed_and_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_name, "NAME", "neap")
    assert launcher_name.worded("./neap run, and (./neap build)") == "neap run, and (neap build)"
    for path in ("/home/./neap", "../neap", "./neap/x", "a./neap"):
        assert launcher_name.worded(path) == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 2, "version": "1", "commit": "a", "epoch": 1}',
        '{"format": 1, "version": "../1", "commit": "a", "epoch": 1}',
    ],
)
def test_a_damaged_release_is_named(tmp_path: Path, text: str) -> None:
    assert installed.read_release(tmp_path) is None
    (tmp_path / "release.json").write_text(text)
    with pytest.raises(Failure, match="is damaged"):
        installed.read_release(tmp_path)


def test_doctor_says_which_neap_this_is(tree: Path, tmp_path: Path) -> None:
    done = neap(tree, "doctor", env=staged_tree.environment(tmp_path / "cache"))
    lines = done.stdout.splitlines()
    assert re.fullmatch(rf"neap +ok +installed from the wheel, 0\.1\.0 \({staged_tree.COMMIT}\), in {re.escape(str(tree))}", lines[0])
    by_name = {re.split(r" {2,}", line)[0]: line for line in lines}
    assert re.search(r" ok +hello; soft card", by_name["products"])
    assert " later " in by_name["toolchain"] and " ./neap" not in done.stdout


# ---- products ----


def test_an_application_runs_from_paths_with_spaces_and_nothing_is_written_to_the_tree(tree: Path, tmp_path: Path, qemu_command) -> None:
    before = facts(tree)
    place = tmp_path / "a working folder"
    place.mkdir()
    for words in ([], ["--debug"]):
        done = neap(tree, "run", "hello", *words, *ENDS, env=staged_tree.environment(tmp_path / "a cache", qemu_command), cwd=place)
        assert done.returncode == 0 and done.stdout.endswith("hello.elf s\n"), (done.stdout, done.stderr)
    assert facts(tree) == before and not list(place.iterdir())


def test_a_product_needs_no_cache(tree: Path, tmp_path: Path, qemu_command) -> None:
    """Neither a home nor a cache that can be written to is needed if a QEMU is there."""
    (tmp_path / "file").touch()
    env = staged_tree.environment(tmp_path / "file", qemu_command, HOME=str(tmp_path / "file"))
    done = neap(tree, "run", "hello", *ENDS, env=env)
    assert done.returncode == 0 and done.stdout.endswith("hello.elf s\n"), (done.stdout, done.stderr)
    done = neap(tree, "packetdrill", env=env)
    assert "cannot make the cache directory" in error_of(done) and "set XDG_CACHE_HOME to" in done.stderr


def test_the_load_generator_is_the_trees(tree: Path, tmp_path: Path) -> None:
    done = neap(tree, "load", "127.0.0.1:9", "--rate", "5", env=staged_tree.environment(tmp_path / "cache"))
    assert (done.returncode, done.stdout) == (0, "load: 127.0.0.1:9 --rate 5\n"), done.stderr


def test_a_missing_product_is_named(own_tree: Path, tmp_path: Path) -> None:
    (own_tree / "build/load/release/neap-load").unlink()
    done = neap(own_tree, "load", "127.0.0.1:9", env=staged_tree.environment(tmp_path / "cache"))
    assert "this installation lacks the load generator" in error_of(done)


def test_a_release_needs_a_checkout(tree: Path, tmp_path: Path) -> None:
    done = neap(tree, "release", env=staged_tree.environment(tmp_path / "cache"))
    assert "release needs a checkout" in error_of(done)


def test_a_new_application_names_the_installed_launcher(tree: Path, tmp_path: Path) -> None:
    done = neap(tree, "new", "mine", "--dir", str(tmp_path), env=staged_tree.environment(tmp_path / "cache"))
    assert done.returncode == 0 and f"neap: neap run '{tmp_path}/mine' boots it" in done.stdout
    assert "\nneap run PATH/OF/mine " in (tmp_path / "mine/README.md").read_text()


def test_clean_removes_build_output_of_copies_only(tree: Path, tmp_path: Path) -> None:
    env = staged_tree.environment(tmp_path / "cache")
    where = Path(reported(neap(tree, "packetdrill", env=env))["tree"])
    (where / "build/logs").mkdir(parents=True, exist_ok=True)
    (where / "mine").touch()
    before = facts(tree)
    assert neap(tree, "clean", env=env).returncode == 0
    assert not (where / "build").exists() and (where / "mine").exists() and facts(tree) == before
    assert neap(tree, "clean", "--cache", env=env).returncode == 0
    assert not where.exists() and facts(tree) == before


# ---- the copy of the sources ----


def test_a_command_that_compiles_goes_on_in_a_copy_made_once(tree: Path, tmp_path: Path) -> None:
    env = staged_tree.environment(tmp_path / "a cache")
    before = facts(tree)
    for number in range(2):
        done = neap(tree, "packetdrill", "a word", env=env)
        found = reported(done)
        assert found["tree"] == f"{tmp_path}/a cache/neap/source/{staged_tree.NAME}" and found["origin"] == str(tree)
        assert (found["release"], found["name"], found["words"], found["changed"]) == (False, "neap", ["a word"], [])
        assert ("copying Neap's sources" in done.stderr) == (number == 0)
        assert f"goes on in the copy of the sources {found['tree']}" in done.stderr
    assert facts(tree) == before
    assert os.access(Path(found["tree"]) / "neap", os.X_OK)


def test_a_copy_below_a_folder_under_git_has_the_commit_of_the_release(tree: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=60)
    env = staged_tree.environment(tmp_path / "cache")
    found = reported(neap(tree, "packetdrill", env=env))
    assert found["state"] == [staged_tree.COMMIT, []]
    (Path(found["tree"]) / "neap").write_text("# mine\n" + (tree / "neap").read_text())
    assert reported(neap(tree, "packetdrill", env=env))["state"] == [staged_tree.COMMIT, ["neap"]]


def test_a_copy_takes_programs_over_while_their_sources_are_unchanged(tree: Path, tmp_path: Path) -> None:
    env = staged_tree.environment(tmp_path / "cache")
    found = reported(neap(tree, "packetdrill", env=env))
    assert found["programs"] and found["card"] == staged_tree.CARD
    source = Path(found["tree"]) / staged_tree.SOFT_CARD_SOURCE
    source.write_text("// mine\n")
    found = reported(neap(tree, "packetdrill", env=env))
    assert not found["programs"] and found["changed"] == [staged_tree.SOFT_CARD_SOURCE]
    source.with_name("more.rs").touch()
    source.unlink()
    found = reported(neap(tree, "packetdrill", env=env))
    assert not found["programs"] and found["changed"] == [staged_tree.SOFT_CARD_SOURCE, "sim/soft82599/src/more.rs"]


def test_a_copy_knows_its_origin_without_the_variable_and_doubts_another_one(tree: Path, tmp_path: Path) -> None:
    env = staged_tree.environment(tmp_path / "cache")
    copy = Path(reported(neap(tree, "packetdrill", env=env))["tree"])
    assert reported(neap(copy, "packetdrill", env=env))["origin"] == str(tree)
    assert reported(neap(copy, "packetdrill", env={**env, installed.VARIABLE: "/nowhere"}))["origin"] == str(tree)
    record = json.loads((copy / "release.json").read_text())
    assert record["toolchain"]["file"] == "neap-toolchain-0.tar.zst"
    for place in ("/nowhere", str(copy)):
        (copy / "release.json").write_text(json.dumps(record | {"copied_from": place}))
        found = reported(neap(copy, "packetdrill", env=env))
        assert (found["origin"], found["programs"], found["release"], found["name"]) == ("None", False, False, "neap")


# ---- disks ----


def in_namespace(script: str, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a shell script that may mount file systems."""
    namespaces = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    return finished([*namespaces, "sh", "-c", script, "sh", *arguments], SECONDS, env=env)


def test_a_disk_that_fills_up_during_the_copy_leaves_nothing_and_the_next_run_works(tree: Path, tmp_path: Path) -> None:
    """There is room for the bytes, but not for the files, so the check before the copy does not notice."""
    script = 'mount -t tmpfs -o size=64m,nr_inodes=200 tmpfs "$1"; "$2" "$3" packetdrill; echo $?; ls "$1/neap/source"'
    script += '; mount -o remount,nr_inodes=100000 "$1"; "$2" "$3" packetdrill'
    (tmp_path / "small").mkdir()
    env = staged_tree.environment(tmp_path / "small")
    done = in_namespace(script, str(tmp_path / "small"), sys.executable, str(tree / "neap"), env=env)
    status, listed, report = done.stdout.splitlines()
    assert (status, listed) == ("1", f"{staged_tree.NAME}.lock") and json.loads(report)["programs"], done.stderr
    assert f"neap: error: source/{staged_tree.NAME}: no space left on the disk" in done.stderr and "Traceback" not in done.stderr


def test_too_small_a_disk_is_refused_before_the_copy(tree: Path, tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=1m tmpfs "$1"; exec "$2" "$3" packetdrill'
    (tmp_path / "small").mkdir()
    env = staged_tree.environment(tmp_path / "small")
    done = in_namespace(script, str(tmp_path / "small"), sys.executable, str(tree / "neap"), env=env)
    assert "a copy of Neap's sources needs" in error_of(done)


def test_a_limit_of_file_sizes_is_one_line(tree: Path, tmp_path: Path) -> None:
    env = staged_tree.environment(tmp_path / "cache")
    done = finished(["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", sys.executable, str(tree / "neap"), "packetdrill"], SECONDS, env=env)
    assert "larger than a file may be here" in error_of(done)
    assert [path.name for path in (tmp_path / "cache/neap/source").iterdir()] == [f"{staged_tree.NAME}.lock"]


def test_a_read_only_home_and_temporary_folder_do_not_matter(tree: Path, tmp_path: Path, qemu_command) -> None:
    home = tmp_path / "home"
    home.mkdir()
    script = 'mount -t tmpfs -o ro tmpfs "$1"; "$2" "$3" run hello --card virtio -- s; exec "$2" "$3" packetdrill'
    for cache_home, works in ((tmp_path / "cache", True), (home, False)):
        env = {**staged_tree.environment(tmp_path / "cache", qemu_command), "HOME": str(home), "TMPDIR": str(home)}
        env.pop("XDG_RUNTIME_DIR", None)
        done = in_namespace(script, str(home), sys.executable, str(tree / "neap"), env={**env, "XDG_CACHE_HOME": str(cache_home)})
        assert "hello.elf s\n" in done.stdout, (done.stdout, done.stderr)
        if works:
            assert json.loads(done.stdout.splitlines()[-1])["programs"]
        else:
            assert "cannot make the cache directory" in error_of(done) and "set XDG_CACHE_HOME" in done.stderr


def test_a_full_disk_of_the_sockets_is_named_and_left_clean(tree: Path, tmp_path: Path, runs_here: Path, qemu_command) -> None:
    script = 'mount -t tmpfs -o size=8k tmpfs "$1"; head -c 8192 /dev/zero > "$1/filler"; "$2" "$3" run hello --card virtio -- x; s=$?'
    script += '; ls "$1"; exit $s'
    env = staged_tree.environment(tmp_path / "cache", qemu_command, XDG_RUNTIME_DIR=str(runs_here))
    done = in_namespace(script, str(runs_here), sys.executable, str(tree / "neap"), env=env)
    assert f"no space left in {runs_here}, where a run has its sockets and logs" in error_of(done)
    assert done.stdout.splitlines()[-1] == "filler"


def test_a_cache_that_cannot_be_written_to_is_named(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "cache/neap/source").mkdir(parents=True)
    script = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; exec "$2" "$3" packetdrill'
    env = staged_tree.environment(tmp_path / "cache")
    done = in_namespace(script, str(tmp_path / "cache"), sys.executable, str(tree / "neap"), env=env)
    assert "cannot write to" in error_of(done) and "set XDG_CACHE_HOME to a place you can write" in done.stderr


# ---- Ctrl-C ----


def interrupt_twice(child: subprocess.Popen[str], pause_seconds: float) -> tuple[int, str]:
    child.send_signal(signal.SIGINT)
    time.sleep(pause_seconds)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=SECONDS)
    assert "Traceback" not in errors, errors
    return child.returncode, errors


@pytest.mark.parametrize("pause_seconds", [0.0, 0.02])
def test_an_interrupted_copy_leaves_nothing_and_the_next_run_works(own_tree: Path, tmp_path: Path, pause_seconds: float) -> None:
    for number in range(3000):
        staged_tree.write(own_tree / f"docs/{number}.md", "text\n")
    env = staged_tree.environment(tmp_path / "cache")
    place = tmp_path / "cache/neap/source" / staged_tree.NAME
    for files in (1, 300, 1500):
        child = staged_tree.start(own_tree, "packetdrill", env=env)
        assert wait_until(lambda least=files: sum(1 for _ in place.rglob("*")) >= least, SECONDS, 0.001)
        status, errors = interrupt_twice(child, pause_seconds)
        assert status == 130 and errors.endswith("\nneap: interrupted\n"), errors
        assert not place.exists()
    assert reported(neap(own_tree, "packetdrill", env=env))["programs"]


def test_a_killed_copy_is_made_afresh(own_tree: Path, tmp_path: Path) -> None:
    for number in range(3000):
        staged_tree.write(own_tree / f"docs/{number}.md", "text\n")
    env = staged_tree.environment(tmp_path / "cache")
    place = tmp_path / "cache/neap/source" / staged_tree.NAME
    child = staged_tree.start(own_tree, "packetdrill", env=env)
    assert wait_until(lambda: sum(1 for _ in place.rglob("*")) >= 300, SECONDS, 0.001)
    child.kill()
    child.communicate()
    assert place.exists() and not (place / cache.MARKER).exists()
    assert reported(neap(own_tree, "packetdrill", env=env))["changed"] == []


def test_an_interrupt_during_the_change_to_the_copy_is_not_lost(own_tree: Path, tmp_path: Path) -> None:
    """The signal arrives when the first launcher is gone and the second one has no handlers yet."""
    env = staged_tree.environment(tmp_path / "cache")
    copy = Path(reported(neap(own_tree, "packetdrill", env=env))["tree"])
    launcher = (copy / "neap").read_text()
    late = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nos.kill(os.getpid(), signal.SIGINT)\n"
    (copy / "neap").write_text(launcher.replace("import sys\n", f"import sys\n{late}", 1))
    done = neap(own_tree, "packetdrill", env=env)
    assert done.returncode == 130 and done.stdout == "" and done.stderr.endswith("\nneap: interrupted\n"), done.stderr


def test_an_interrupted_run_leaves_no_process_and_no_socket(tree: Path, tmp_path: Path, runs_here: Path, qemu_command) -> None:
    env = staged_tree.environment(tmp_path / "cache", qemu_command, XDG_RUNTIME_DIR=str(runs_here))
    for seconds in (0.3, 0.5, 0.7, 0.9, 1.1, 1.5, 2.5):
        child = staged_tree.start(tree, "run", "hello", *HALTS, env=env)
        time.sleep(seconds)
        status, errors = interrupt_twice(child, 0.01)
        assert status in (130, -signal.SIGINT), (status, errors)  # the latter before the launcher has its handlers
        assert not list(runs_here.iterdir()), errors
        listed = finished(["ps", "-eo", "args"]).stdout
        assert f"{runs_here}/{run_directory.RUN_PREFIX}" not in listed, listed
    assert neap(tree, "run", "hello", *ENDS, env=env).returncode == 0
