# SPDX-License-Identifier: BSL-1.0
import pytest

from tools import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_before_anything_is_done_the_weights_are_the_estimate() -> None:
    plan = progress.Plan("trial", [("a", 10), ("b", 90)])
    assert plan.estimate("a", 0) == (0, pytest.approx(100))
    assert plan.estimate("a", 5) == (5, pytest.approx(95))


def test_a_machine_twice_as_slow_takes_twice_the_rest(clock: list[float]) -> None:
    plan = progress.Plan("trial", [("a", 10), ("b", 90)])
    with plan.run("a"):
        clock[0] += 20
    assert plan.estimate("b", 90) == (55, pytest.approx(90))


def test_a_step_that_runs_over_is_never_done_and_slows_the_estimate() -> None:
    percent, left = progress.Plan("trial", [("a", 10), ("b", 90)]).estimate("a", 1000)
    assert percent == 9 and left > 9000


def test_steps_of_an_earlier_run_do_not_count(clock: list[float]) -> None:
    plan = progress.Plan("trial", [("a", 50), ("b", 50)])
    plan.skip("a")
    assert plan.estimate("b", 25) == (50, pytest.approx(25))


def test_durations_read_well() -> None:
    assert [progress.duration(seconds) for seconds in (0.4, 99, 100, 185)] == ["0 s", "99 s", "1 min 40 s", "3 min 05 s"]


def test_a_step_says_what_it_does_and_how_long_it_took(capsys, clock: list[float]) -> None:
    with progress.step("sawing"):
        clock[0] += 5
    assert capsys.readouterr().err == "neap: sawing\nneap: sawing: done in 5 s\n"
