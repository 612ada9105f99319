# SPDX-License-Identifier: BSL-1.0
"""The comparison of idle policies: what each run is started with, and its table."""

import pytest

from tools.bench import idle_policies
from tools.bench.idle_policies import POLICIES, Policy
from tools.bench.sleep_states import Cell, Setting
from tools.model import cpu_model, sleeps


def test_policies_become_words_of_the_command_line() -> None:
    assert Policy("deepest", "deepest").setting("e5-2690", 1000) == Setting("e5-2690", 1000, "c7")
    assert Policy("deepest", "deepest").setting("xeon-6430", 1000) == Setting("xeon-6430", 1000, "c6")
    measured = Policy("m", "menu", ("adaptive_poll=100us",), measured=True).setting("xeon-6430", 1000)
    assert measured.words == ("adaptive_poll=100us", "wake_up_times=c1:1us,c1e:2us,c6:290us"), "C6 with the package's latency"


@pytest.mark.parametrize("model", idle_policies.MODELS)
def test_names_of_rows_are_unique_and_the_table_has_each_policy(model: str) -> None:
    cpu = cpu_model.load(model)
    assert idle_policies.wake_up_times(cpu).startswith("wake_up_times=c1:")
    found = []
    for number, policy in enumerate(POLICIES):
        for rate in idle_policies.WINDOWS_MS:
            figures = {figure: 1000.0 * number + at for at, figure in enumerate(idle_policies.FIGURES)}
            found += idle_policies.rows_of(model, rate, policy, Cell(figures, {}, sleeps.Compared(7, 7, 0, {})))
    assert len({row.name for row in found}) == len(found)
    others = [other for other in idle_policies.MODELS if other != model]
    for other in others:  # the table is that of all models
        found += [row.__class__(row.name.replace(model, other), row.unit, row.value) for row in found]
    lines = idle_policies.show(found).splitlines()
    rows = [line for line in lines if line.startswith("menu, measured times")]
    assert len(rows) == len(idle_policies.MODELS) * len(idle_policies.WINDOWS_MS)
    assert rows[0].split()[-7:] == ["6000", "6001", "6002", "6003", "6004", "6005", "7"]
