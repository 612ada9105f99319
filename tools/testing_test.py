# SPDX-License-Identifier: BSL-1.0
import os
import sys
import tomllib
from pathlib import Path

import pytest

from tools import build, style, testing
from tools.errors import Failure, UsageError
from tools.testing import Outcome

PYTEST = """<?xml version="1.0"?><testsuites><testsuite name="pytest" tests="5">
<testcase classname="a_test" name="test_good"/>
<testcase classname="a_test" name="test_bad"><failure message="assert 1 == 2&#10;more">text</failure></testcase>
<testcase classname="a_test" name="test_broken"><error message="failed on setup">text</error></testcase>
<testcase classname="a_test" name="test_skipped"><skipped type="pytest.skip" message="no tool">text</skipped></testcase>
<testcase classname="a_test" name="test_expected"><skipped type="pytest.xfail" message=""/></testcase>
</testsuite></testsuites>"""

CTEST = """<?xml version="1.0"?><testsuite name="ctest" tests="4">
<testcase name="Events.Run" classname="Events.Run" time="0.1" status="run"><system-out/></testcase>
<testcase name="Events.Fail" classname="Events.Fail" time="0.1" status="fail"><failure message="Failed"/></testcase>
<testcase name="Events.Off" classname="Events.Off" time="0" status="disabled"><disabled/></testcase>
<testcase name="Events.Skip" classname="Events.Skip" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE"/></testcase>
</testsuite>"""

CARGO = """
running 3 tests
test core::good ... ok
test core::bad ... FAILED
test core::later ... ignored

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 1 test
test other::good ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""


def test_a_skip_or_an_expected_failure_in_pytest_is_a_failure() -> None:
    outcome = testing.read_junit(PYTEST)
    assert outcome.passed == 1
    assert outcome.failures == [
        "a_test.test_bad: assert 1 == 2",
        "a_test.test_broken: failed on setup",
        "a_test.test_skipped: unexpected skip: no tool",
        "a_test.test_expected: unexpected skip: ",
    ]


def test_a_disabled_or_skipped_test_in_ctest_is_a_failure() -> None:
    outcome = testing.read_junit(CTEST)
    assert (outcome.passed, [line.split(":")[0] for line in outcome.failures]) == (1, ["Events.Fail", "Events.Off", "Events.Skip"])


def test_an_ignored_test_in_cargo_is_a_failure() -> None:
    outcome = testing.read_cargo(CARGO)
    assert (outcome.passed, outcome.failures) == (2, ["core::bad", "core::later: unexpected skip (ignored)"])


def test_a_failure_whose_line_was_split_is_still_counted() -> None:
    outcome = testing.read_cargo("test core::bad ... printed\nFAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n")
    assert len(outcome.failures) == 1


def test_a_result_that_is_no_xml_is_an_error() -> None:
    with pytest.raises(Failure, match="result cannot be read"):
        testing.read_junit("<testsuite>")


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> dict:
    made: dict = {}
    monkeypatch.setattr(testing, "LAYERS", made)
    return made


def broken() -> Outcome:
    raise Failure("the tool is missing", "install it", ["its last words"])


def test_the_last_line_is_the_total_and_the_status_follows_it(layers: dict, capsys) -> None:
    layers["good"] = lambda: Outcome(3)
    assert testing.test([]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 passed, 0 failed"
    layers["bad"] = lambda: Outcome(2, ["one: wrong"])
    assert testing.test([]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "5 passed, 1 failed"
    assert "FAILED bad: one: wrong" in out
    assert testing.test(["good"]) == 0


def test_a_layer_that_cannot_run_fails_and_the_others_run(layers: dict, capsys) -> None:
    layers["broken"] = broken
    layers["good"] = lambda: Outcome(1)
    assert testing.test([]) == 1
    out = capsys.readouterr().out
    assert "FAILED broken: the tool is missing (install it)" in out
    assert out.splitlines()[-1] == "1 passed, 1 failed"


def test_a_layer_without_tests_fails(layers: dict, capsys) -> None:
    layers["empty"] = Outcome
    assert testing.test([]) == 1
    assert "FAILED empty: no test ran" in capsys.readouterr().out


def test_an_unknown_layer_is_refused_before_any_runs(layers: dict) -> None:
    layers["good"] = broken
    with pytest.raises(UsageError, match="no test layer 'bad'"):
        testing.test(["good", "bad"])


SOMETIMES = """
import pathlib

TRIED = pathlib.Path(__file__).with_name("tried")


def test_good():
    pass


def test_that_would_pass_the_second_time():
    tried, _ = TRIED.exists(), TRIED.touch()
    assert tried
"""


@pytest.fixture
def own_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(testing, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(testing.build, "BUILD", tmp_path)
    monkeypatch.setattr(testing.build, "REPOSITORY", tmp_path)
    return tmp_path


def test_a_pytest_test_that_fails_once_has_failed(own_build: Path) -> None:
    (own_build / "sometimes_test.py").write_text(SOMETIMES)
    outcome = testing._pytest("trial", ["sometimes_test.py"], 120, *testing.SIDE_BY_SIDE)
    assert (outcome.passed, len(outcome.failures)) == (1, 1)
    assert "test_that_would_pass_the_second_time" in outcome.failures[0]


def test_a_cargo_test_that_fails_once_has_failed(own_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[list[str]] = []

    def cargo_run(crate: build.Crate, words: list[str], label: str, log_name: str) -> None:
        runs.append(words)
        log = build.log_path(log_name)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(CARGO if len(runs) == 1 else CARGO.replace("FAILED", "ok").replace("ignored", "ok"))
        raise Failure("cargo failed")

    monkeypatch.setattr(build, "cargo_run", cargo_run)
    outcome = testing._cargo(build.LOAD_CRATE, "trial")
    assert (outcome.passed, len(outcome.failures), len(runs)) == (2, 2, 1)


def test_a_ctest_test_that_fails_once_has_failed(own_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real ctest runs a test that would pass the second time."""
    script = own_build / "sometimes.sh"
    script.write_text("test -e tried && exit 0; touch tried; exit 1\n")
    (own_build / "CTestTestfile.cmake").write_text(f'add_test(good true)\nadd_test(sometimes sh "{script}")\n')
    monkeypatch.setattr(testing.packages, "require", lambda *groups: None)
    monkeypatch.setattr(build, "HOST_PRESETS", ("trial",))
    monkeypatch.setattr(build, "build", lambda preset: own_build)
    monkeypatch.setattr(testing.packetdrill, "build_library", lambda: None)
    monkeypatch.setattr(testing, "_pytest", lambda *given: Outcome())
    outcome = testing._host()
    assert (outcome.passed, [line.split()[0] for line in outcome.failures]) == (1, ["sometimes"])


def test_soak_repeats_until_its_time_is_over_and_stops_at_a_failure(layers: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAP_SOAK_SECONDS", "")
    now = [0.0]
    monkeypatch.setattr(testing.time, "monotonic", lambda: now[0])
    rounds: list[str] = []

    def layer() -> Outcome:
        rounds.append(os.environ["NEAP_SOAK_SECONDS"])
        now[0] += 60
        return Outcome(1, ["wrong"] if len(rounds) == 5 else [])

    layers["only"] = layer
    assert (testing.soak([], minutes=3), rounds) == (0, ["45"] * 3)
    assert (testing.soak([], minutes=100), len(rounds)) == (1, 5)
    with pytest.raises(UsageError):
        testing.soak([], minutes=0)


def test_soak_histories_is_a_command_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    monkeypatch.setattr(testing.history_soak, "soak", lambda minutes: given.append(minutes) or 7)
    assert (testing.soak(["histories"], minutes=2), given) == (7, [2])
    with pytest.raises(UsageError):
        testing.soak(["histories"], cores=4)


def test_soak_suite_runs_rounds_until_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(testing.time, "monotonic", lambda: now[0])
    for place, name in [(testing, "_require_images"), (testing.packages, "require"), (testing.qemu, "command")]:
        monkeypatch.setattr(place, name, lambda *_: None)
    for name in ("build", "build_soft_card"):
        monkeypatch.setattr(testing.build, name, lambda *_: None)
    outcomes = [testing.Outcome(3), testing.Outcome(3), testing.Outcome(2, ["wrong"])]

    def run(_name: str, places: list[str], *_rest: object) -> testing.Outcome:
        assert all((build.REPOSITORY / place).is_file() for place in places)
        now[0] += 60
        return outcomes.pop(0)

    monkeypatch.setattr(testing, "_pytest", run)
    assert (testing.soak(["suite"], minutes=2), len(outcomes)) == (0, 1)
    assert (testing.soak(["suite"], minutes=2), len(outcomes)) == (1, 0)


def test_each_python_test_belongs_to_one_layer() -> None:
    places = [place for folders in testing.PYTHON_TESTS.values() for place in folders]
    settings = tomllib.loads((build.REPOSITORY / "pyproject.toml").read_text())
    assert settings["tool"]["pytest"]["ini_options"]["testpaths"] == places
    tests = [path.relative_to(build.REPOSITORY) for path in style.files() if path.name.endswith("_test.py")]
    assert tests
    for path in tests:
        assert len([place for place in places if path.is_relative_to(place)]) == 1, path


def test_a_real_pytest_run_is_read(own_build: Path, capsys) -> None:
    (own_build / "a_test.py").write_text("import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('why')\n")
    result = testing._fresh_result("trial")
    argv = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", f"--junit-xml={result}", str(own_build)]
    outcome = testing._run_and_read(argv, "trial", result, 120)
    assert outcome.passed == 1 and "unexpected skip: why" in outcome.failures[0]


def test_a_test_tool_that_fails_without_naming_a_test_fails(own_build: Path) -> None:
    result = testing._fresh_result("trial")
    passing = '<testsuite><testcase name="a"/></testsuite>'
    with pytest.raises(Failure, match=r"trial failed \(status 3\)"):
        testing._run_and_read(["sh", "-c", f"echo '{passing}' > '{result}'; exit 3"], "trial", result, 60)
    with pytest.raises(Failure, match="trial wrote no result"):
        testing._run_and_read(["true"], "trial", testing._fresh_result("trial"), 60)
