# SPDX-License-Identifier: BSL-1.0
"""Sleep records are right: each one in Neap's log has the state and the cause of the sleep that the modelled CPU had, and none is missing.

`./neap bench sleep-states` does the same for all states, at three rates.
"""

import pytest

from tests.model.modelled import image
from tools.bench import sleep_states
from tools.bench.sleep_states import Cell, Setting
from tools.model import sleeps

MEMCACHED = image("apps/memcached", "memcached")
WINDOW_MS = 5.0


def run(model: str, idle: str, rate: int, *words: str, window_ms: float = WINDOW_MS) -> Cell:
    return sleep_states.run(Setting(model, rate, idle, words), MEMCACHED, window_ms)


@pytest.mark.parametrize(
    ("model", "idle", "monitor_state", "rate", "cause"),
    [
        ("e5-2690", "c1", "c1", 200_000, "interrupt"),
        ("e5-2690", "c7", "c1", 20_000, "interrupt"),
        ("e5-2690", "monitor", "c1", 20_000, "memory"),
        ("e5-2690", "monitor", "c6", 20_000, "memory"),
        ("xeon-6430", "c6", "c1", 20_000, "interrupt"),
    ],
)
def test_the_log_has_the_state_and_the_cause_of_every_sleep(model: str, idle: str, monitor_state: str, rate: int, cause: str) -> None:
    cell = run(model, idle, rate, *([f"monitor_state={monitor_state}"] if idle == "monitor" else []))
    compared = cell.compared
    assert compared.sleeps == cell.figures["wakeups"] and compared.records >= compared.sleeps + compared.passed
    assert compared.causes[cause] > 0.9 * compared.sleeps > 5, compared
    slept = {state for state, share in cell.shares.items() if state != "C0" and share > 0}
    assert slept == {sleeps.C_STATES[monitor_state if idle == "monitor" else idle]}
    if idle == "monitor":
        assert "interrupt" not in compared.causes, "the card sends no interrupt to a core that watches its ring"


def test_a_core_that_polls_never_sleeps() -> None:
    cell = run("e5-2690", "poll", 20_000)
    assert cell.compared == sleeps.Compared(records=0, sleeps=0, passed=0, causes={})
    assert cell.shares["C0"] == pytest.approx(1.0, abs=1e-6) and cell.figures["wakeups"] == 0


def deep_share(cell: Cell) -> float:
    return sum(cell.shares.get(state, 0.0) for state in ("C3", "C6", "C7"))


def test_menu_sleeps_deep_only_where_there_is_time_and_logs_what_it_requested() -> None:
    busy = run("e5-2690", "menu", 200_000)
    quiet = run("e5-2690", "menu", 1_000, window_ms=100.0)
    assert busy.compared.sleeps > 100 and quiet.compared.sleeps > 50
    # Core by core 10 us between two requests, and 2 ms. The CPU's C6 pays from 345 us on.
    assert deep_share(busy) < 0.1 and deep_share(quiet) > 0.7, (busy.shares, quiet.shares)


def test_adaptive_polling_replaces_sleeps_under_load_only() -> None:
    loaded, polling = (run("e5-2690", "c1", 200_000, f"adaptive_poll={time}") for time in ("0us", "100us"))
    # A core polls while at least six of the last eight gaps were short (kernel/poll_adaptation.hpp). So about a quarter of the gaps may
    # still end in a sleep, besides the first eight. If it did not poll, the two numbers would be nearly equal.
    assert polling.figures["wakeups"] < 0.5 * loaded.figures["wakeups"], (polling.figures, loaded.figures)
    quiet, quiet_too = (run("e5-2690", "c1", 1_000, f"adaptive_poll={time}", window_ms=100.0) for time in ("0us", "100us"))
    # Gaps of 2 ms are not worth 100 us of polling. A request's own packets come at shorter gaps, so some polling is right.
    assert quiet_too.figures["wakeups"] > 0.5 * quiet.figures["wakeups"], (quiet_too.figures, quiet.figures)
