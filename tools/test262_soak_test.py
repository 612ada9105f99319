# SPDX-License-Identifier: BSL-1.0
"""`./neap soak test262`: the metadata of tests, their runs, and the comparison of two systems."""

import re
from pathlib import Path

import pytest

from tools import build, test262_soak, testing
from tools.errors import Failure, UsageError
from tools.test262_soak import Metadata, metadata_of, results, runs_of


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    texts = {
        "harness/assert.js": "a",
        "harness/sta.js": "s",
        "harness/sm/more.js": "m",
        "test/a/plain.js": "/*---\ndescription: d\n---*/\n",
        "test/a/strict.js": "/*---\nflags: [onlyStrict]\n---*/",
        "test/a/threads.js": "/*---\nfeatures: [Atomics]\n---*/",
        "test/a/module.js": "/*---\nflags: [module, async]\n---*/\nimport './one_FIXTURE.js';",
        "test/a/one_FIXTURE.js": "export * from '../b/two_FIXTURE.js'; import './module.js'; './none.js'",
        "test/b/two_FIXTURE.js": "export const x = 1;",
        "test/b/raw.js": "/*---\nflags:\n  - raw\nnegative:\n  phase: parse\n  type: SyntaxError\n---*/",
        "test/intl402/left.js": "",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("no metadata", Metadata()),
        (
            "/*---\nincludes: [a.js, b.js]\nflags: [async]\nfeatures: [BigInt, let]\n---*/",
            Metadata(frozenset({"async"}), frozenset({"BigInt", "let"}), ("a.js", "b.js")),
        ),
        ("/*---\r\nincludes:\r\n  - a.js\r\n  - b.js\r\nflags: []\r\n---*/", Metadata(includes=("a.js", "b.js"))),
        ("/*---\nfeatures: [\n  one,\n  two\n]\n---*/", Metadata(features=frozenset({"one", "two"}))),
        ("/*---\nnegative:\n  phase: runtime\n  type: Test262Error\ninfo: x\n---*/", Metadata(phase="runtime", error="Test262Error")),
    ],
)
def test_metadata(text: str, wanted: Metadata) -> None:
    assert metadata_of(text) == wanted


def test_each_test_has_its_runs_and_the_modules_that_it_needs(suite: Path) -> None:
    assert test262_soak.tests_of(suite, 1) == [
        "a/module.js", "a/plain.js", "a/strict.js", "a/threads.js", "b/raw.js", "intl402/left.js",
    ]  # fmt: skip
    assert test262_soak.tests_of(suite, 3) == ["a/module.js", "a/threads.js"]
    assert [run.mode for run in runs_of(suite, "a/plain.js")] == ["sloppy", "strict"]
    assert [run.mode for run in runs_of(suite, "a/strict.js")] == ["strict"]
    assert runs_of(suite, "a/threads.js") == [] == runs_of(suite, "intl402/left.js")
    (module,) = runs_of(suite, "a/module.js")
    assert module.files == ("a/one_FIXTURE.js", "b/two_FIXTURE.js")
    assert module.line() == "test/a/module.js\tmodule\tasync\t-\t-\t-"
    (raw,) = runs_of(suite, "b/raw.js")
    assert raw.line() == "test/b/raw.js\traw\t-\tparse\tSyntaxError\t-"
    block = test262_soak.archive_of(suite, [module, raw])
    for part in (module.line(), "harness/sm/more.js", "test/b/two_FIXTURE.js"):
        assert part.encode() in block


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no checkout of test262"):
        test262_soak.tests_of(tmp_path, 1)


def player(reason_of: dict[str, str], calls: list[int] | None = None):
    """A runner that fails as stated. A test with the reason `end` ends it."""

    def play(archive: Path) -> list[str]:
        lines = []
        listed = re.findall(rb"test/(\S+\.js)\t(\w+)(?:\t\S+){4}\n", archive.read_bytes())
        if calls is not None:
            calls.append(len(listed))
        for number, (path, mode) in enumerate(listed):
            reason = reason_of.get(f"{path.decode()} ({mode.decode()})", "")
            if reason == "end":
                return [*lines, "neap: panic"]
            lines.append(f"262 {number} fail {reason}" if reason else f"262 {number} pass")
        return [*lines, "262 end"]

    return play


def test_a_run_that_ends_the_program_fails_and_the_others_go_on(suite: Path) -> None:
    runs = [run for path in ("a/plain.js", "a/strict.js", "b/raw.js") for run in runs_of(suite, path)]
    calls: list[int] = []
    found = results(suite, runs, player({"a/plain.js (strict)": "end", "b/raw.js (raw)": "why"}, calls))
    assert found == {
        "a/plain.js (sloppy)": "",
        "a/plain.js (strict)": "the program ended: neap: panic",
        "a/strict.js (strict)": "",
        "b/raw.js (raw)": "why",
    }
    assert calls == [4, 2]


@pytest.mark.parametrize(
    ("host", "image", "status", "said"),
    [
        ({}, {}, 0, "0 runs pass on the host and not on the image"),
        ({"a/plain.js (strict)": "x"}, {"a/plain.js (strict)": "x"}, 0, "0 runs pass"),
        ({"a/plain.js (strict)": "x"}, {}, 0, "0 runs pass"),
        ({}, {"a/plain.js (strict)": "TypeError: y"}, 1, "FINDING: a/plain.js (strict): TypeError: y"),
        ({}, {"a/strict.js (strict)": "end"}, 1, "FINDING: a/strict.js (strict): the program ended"),
    ],
)
def test_the_comparison(
    suite: Path,
    host: dict,
    image: dict,
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    paths = test262_soak.tests_of(suite, 1)
    assert test262_soak.compare(suite, paths, player(host), player(image)) == status
    printed = capsys.readouterr().out
    assert said in printed
    failed = {name: "x" for name in host}
    assert (tmp_path / "build/test262-failures.txt").read_text() == "".join(f"{name}: {reason}\n" for name, reason in failed.items())
    all_row = next(line.split() for line in printed.splitlines() if line.startswith("all "))
    assert all_row == ["all", "5", str(5 - len(host)), str(5 - len(image))]


def test_tests_that_are_all_left_out_are_a_failure(suite: Path) -> None:
    with pytest.raises(Failure, match="none of these tests"):
        test262_soak.compare(suite, ["a/threads.js"], player({}), player({}))


def test_it_is_a_soak_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test262_soak, "soak", lambda folder=None, every=1: (folder, every))
    assert testing.soak(["test262"], folder="f") == ("f", 1) and testing.soak(["test262"], folder="f", every=9) == ("f", 9)
    with pytest.raises(UsageError, match="--folder belongs to soak test262"):
        testing.soak(["fuzz"], folder="f")
    with pytest.raises(UsageError, match="--cores does not belong to soak test262"):
        testing.soak(["test262"], cores=2)


def test_usage() -> None:
    with pytest.raises(UsageError, match="needs a checkout"):
        test262_soak.soak()
    with pytest.raises(UsageError, match="--every takes 1 or more"):
        test262_soak.soak("f", 0)
