# SPDX-License-Identifier: BSL-1.0
"""Attacks on a running image: an ordinary client (the bystander) is served all the time, and memory use then returns to its earlier level.

There is one test for each row of the first part of docs/threat-model.md. `./neap bench hostile` prints the latency that each attack costs
the bystander.
"""

import pytest
from hostile.attacks import ATTACKS, FULL_SIZE

from tools.bench.hostile import attack

pytestmark = pytest.mark.image_only

SECONDS = 4
# The small sizes of these attacks need less time.
CROWD_SECONDS = 2
# All attacks run on two cores, where some connections share a core and some do not.
CASES = [(name, 2) for name in ATTACKS] + [("long_gets", 1), ("long_pieces", 4)]


@pytest.mark.parametrize(("name", "cores"), CASES)
def test_a_bystander_is_served_during_the_attack_and_memory_returns(name: str, cores: int) -> None:
    result = attack(name, "--cores", str(cores), "--seconds", str(CROWD_SECONDS if name in FULL_SIZE else SECONDS))
    assert "broken" not in result, result
    assert result["alive"], result["console"]
    during = result["during"]
    assert during["errors"] == 0 < during["count"], during
    assert set(during["outcomes"]) <= {"done", "hit"} or ATTACKS[name].may_miss, f"an item of the bystander is gone: {during}"
    assert not result["newcomers_failed"], result["newcomers_failed"]
    assert result["newcomers"] > 0
    assert not any(result["findings"].values()), result["findings"]
    assert result["memory"]["left"] == 0 and not result["memory"]["kept"], result["memory"]
