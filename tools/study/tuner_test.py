# SPDX-License-Identifier: BSL-1.0
"""The tuner finds nearly the best setting within the SLA, and tries none above it."""

import numpy as np
import pytest

from tools.bench import tune as bench
from tools.errors import UsageError
from tools.study import tune_grid, tuner
from tools.study.published import TABLE_6_1
from tools.study.tune_grid import FREQUENCY, ITR, axis, product
from tools.study.tuner import GAIN, KNOWLEDGE, START, Goal, Tuner

MAIN = next(of for of in TABLE_6_1 if of.name == bench.MAIN)


def searched(grid, latency, cost, goal, noise=0.0, seed=1) -> Tuner:
    """Runs a search on functions of the setting's values."""
    chance = np.random.default_rng(seed)
    found = Tuner(grid, goal)
    while proposal := found.propose():
        setting = grid.setting(proposal.place)
        values = [setting[one.name] for one in grid.axes]
        errors = 1 + noise * chance.standard_normal(2)
        found.record(proposal, latency(*values) * errors[0], cost(*values) * errors[1])
    return found


# Two rows with few seeds; `./neap bench tune` has all.
@pytest.mark.parametrize("of", [MAIN, TABLE_6_1[4]], ids=lambda of: of.name)
def test_nearly_the_optimum_and_no_violation(of) -> None:
    found = [bench.tuned(of, seed) for seed in (100, 101, 102)]
    assert sorted(one.excess for one in found)[1] < 1.0 and max(one.excess for one in found) < 2.5
    assert all(not one.violations for one in found)
    random = bench.random_search(of, 100)
    assert random.violations, "a random search meets the SLA by chance: the grid is too easy"


def test_rows_of_the_benchmark() -> None:
    ours, random = [bench.Outcome(0.4, (3,), 30), bench.Outcome(0.6, (), 28)], [bench.Outcome(9.0, (1, 20), 30)]
    rows = {row.name: row for row in bench.rows_of({bench.MAIN: (ours, random)})}
    assert rows["linux_400k.excess_median"].value == pytest.approx(0.5) and rows["linux_400k.excess_median"].missed
    assert rows["linux_400k.violations_first_5"].value == 1 and not rows["linux_400k.violations_later"].missed
    assert "linux_400k.excess_median is 0.50" in bench.show(list(rows.values()))
    late = {row.name: row for row in bench.rows_of({bench.MAIN: ([bench.Outcome(0.1, (6,), 30)], random)})}
    assert late["linux_400k.violations_later"].missed


def test_the_first_trial_is_the_safest_setting() -> None:
    grid = product([axis(ITR, [100, 2, 50]), axis(FREQUENCY, [1.2, 2.9, 2.0])])
    found = Tuner(grid, Goal(500))
    proposal = found.propose()
    assert proposal and proposal.why == START and grid.setting(proposal.place) == {ITR: 2, FREQUENCY: 2.9}


def test_no_setting_is_asked_twice_if_trials_have_no_noise() -> None:
    grid = product([axis(ITR, range(2, 200, 4)), axis(FREQUENCY, [1.2, 1.6, 2.0, 2.4])])
    found = searched(grid, lambda i, f: 60 / f + i, lambda i, f: f**0.9 * i**-0.1, Goal(150, repeatable=False, trials=25))
    places = [trial.place for trial in found.trials]
    assert len(set(places)) == len(places)
    best = found.best()
    assert best is not None and grid.setting(best)[FREQUENCY] == 1.2
    assert {trial.why for trial in found.trials} >= {START, GAIN}


def test_noise_calls_for_second_trials_of_the_same_setting() -> None:
    grid = product([axis(ITR, range(10, 410, 40)), axis(FREQUENCY, [1.2, 1.6, 2.0, 2.4])])
    found = searched(grid, lambda i, f: 60 / f + i, lambda i, f: f**0.9 * i**-0.3, Goal(250, trials=20, gain=0.0), noise=0.03)
    places = [trial.place for trial in found.trials]
    assert len(set(places)) < len(places) and any(trial.why == KNOWLEDGE for trial in found.trials)


def test_it_ends_when_no_setting_promises_a_gain() -> None:
    grid = product([axis(ITR, [2, 4, 6, 8]), axis(FREQUENCY, [1.2, 2.9])])
    found = searched(grid, lambda i, f: 10 / f + i, lambda i, f: f + 1, Goal(5000, repeatable=False))
    assert len(found.trials) < 9 and "promises" in found.ended_because
    best = found.best()
    assert best is not None and grid.setting(best)[FREQUENCY] == 1.2


def test_a_safest_setting_above_the_sla_ends_the_search() -> None:
    grid = product([axis(ITR, [2, 100]), axis(FREQUENCY, [1.2, 2.9])])
    found = searched(grid, lambda i, f: 900 / f + i, lambda i, f: f, Goal(100))
    assert found.best() is None and found.ended_because == "no trial met the SLA"
    assert {trial.place for trial in found.trials} == {found.safest}, "riskier settings were tried although the safest one violates the SLA"
    nearest = found.nearest()
    assert nearest and nearest.place == found.safest


def test_the_start_avoids_what_is_riskier_than_a_violation() -> None:
    grid = product([axis(ITR, [2, 50, 100]), axis(FREQUENCY, [2.9, 2.0, 1.2])])
    found = Tuner(grid, Goal(300))
    answers = iter([30.0, 400.0])
    while (proposal := found.propose()) and proposal.why == START:
        latency = next(answers, 60.0)
        found.record(proposal, latency, 1.0)
    violated = [trial.place for trial in found.trials if trial.verdict == tuner.VIOLATES]
    assert len(violated) == 1
    later = [trial.place for trial in found.trials if trial.number > 2]
    assert later and not any(np.all(grid.ranks[place] >= grid.ranks[violated[0]]) for place in later)


def test_a_failed_load_is_a_violation() -> None:
    grid = product([axis(ITR, [2, 50]), axis(FREQUENCY, [2.9, 1.2])])
    found = Tuner(grid, Goal(300))
    proposal = found.propose()
    assert proposal and found.record(proposal, None, None).verdict == tuner.VIOLATES


def test_verdicts() -> None:
    found = Tuner(product([axis(ITR, [2, 50])]), Goal(100, guard=0.05))
    assert [found.verdict(latency) for latency in (94.9, 96.0, 100.1)] == [tuner.MEETS, tuner.IN_GUARD_BAND, tuner.VIOLATES]


def test_axes_and_values() -> None:
    assert tune_grid.parse_values("--itr", "2:10:4") == [2, 6, 10] and tune_grid.parse_values("--idle", "halt,c6") == ["halt", "c6"]
    assert axis(FREQUENCY, [1.2, 2.9, 2.0]).values == (2.9, 2.0, 1.2) and axis(ITR, [50, 2]).values == (2, 50)
    assert axis("idle", ["c6", "halt", "poll"]).values == ("poll", "halt", "c6")
    assert tune_grid.shown({ITR: 270.0, FREQUENCY: 1.2, "set_tso": "off"}) == "ITR 270 us, 1.2 GHz, tso off"
    for text in ("2:10", "1:2:0", "5:1:1", "a,,b", "1:1e9:1e-9"):
        with pytest.raises(UsageError, match="--itr takes"):
            tune_grid.parse_values("--itr", text)
    with pytest.raises(UsageError, match="one setting"):
        product([axis(ITR, [5]), axis(FREQUENCY, [1.2])])
    with pytest.raises(UsageError, match="at most"):
        product([axis(ITR, range(1000)), axis("set_x", range(1000))])


def small_grids():
    """Grids of few values: one axis, two values an axis, and idle states, which add a latency and take less power."""
    itr, ghz = axis(ITR, [10, 100, 200, 400]), axis(FREQUENCY, [1.2, 2.0, 2.9])
    yield product([itr])
    yield product([ghz])
    yield product([axis(ITR, [10, 200]), axis(FREQUENCY, [1.2, 2.9])])
    yield product([axis(ITR, [10, 100, 200]), ghz])
    yield product([itr, ghz, axis("idle", ["halt", "c6"])])


@pytest.mark.parametrize("of", TABLE_6_1, ids=lambda of: of.name)
def test_a_small_table_is_searched_to_its_best_setting_or_the_end_says_why_not(of) -> None:
    for grid in small_grids():

        def latency(setting) -> float:
            return of.z / setting.get(FREQUENCY, 2.9) ** (1 + of.a) + of.phi * setting.get(ITR, 10) + 20 * (setting.get("idle") == "c6")

        def power(setting) -> float:
            return setting.get(FREQUENCY, 2.9) ** 0.9 * setting.get(ITR, 10) ** -0.11 * (0.9 if setting.get("idle") == "c6" else 1.0)

        found = searched_settings(grid, latency, power, Goal(500, repeatable=False))
        settings = [grid.setting(place) for place in range(len(grid))]
        least = min(power(setting) for setting in settings if latency(setting) <= 500)
        best = found.best()
        assert best is not None and latency(grid.setting(best)) <= 500
        assert power(grid.setting(best)) <= 1.005 * least or "surely within the SLA" in found.ended_because
        assert not [trial for trial in found.trials[5:] if trial.verdict == tuner.VIOLATES]


def searched_settings(grid, latency, power, goal) -> Tuner:
    """Runs a search on functions of the setting."""
    found = Tuner(grid, goal)
    while proposal := found.propose():
        setting = grid.setting(proposal.place)
        found.record(proposal, latency(setting), power(setting))
    return found
