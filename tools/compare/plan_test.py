# SPDX-License-Identifier: BSL-1.0
"""A mistake in the file of a comparison is named before anything runs."""

from pathlib import Path

import pytest

from tools.compare import plan, units
from tools.errors import Failure, UsageError

SMALL = """
cores = [1, 2]
rounds = 2
[[arms]]
name = "Neap"
system = "neap"
[[arms]]
name = "Linux static"
system = "linux"
words = ["itr=16us"]
[[workloads]]
name = "get"
[[workloads]]
name = "idle"
rate = 0
window_ms = 100
[[ping_pong]]
name = "trip"
sizes = [64, 8192]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    return path


def test_the_project_s_own_file_is_valid():
    found = plan.read(plan.DEFAULT)
    assert [arm.system for arm in found.arms] == ["neap", "linux", "linux", "neap"]
    assert found.cores == (1, 2, 4)
    assert {one.connections for one in found.workloads if one.name.startswith("get.")} == {1, 16, 64, 1024}
    assert sum(one.mix == "etc" for one in found.workloads) == 3
    assert found.ping_pong[0].sizes == (64, 8192, 65536)


def test_arms_alternate_and_each_unit_has_its_own_name(tmp_path: Path):
    found = units.units(plan.read(written(tmp_path, SMALL)))
    names = [unit.name for unit in found]
    assert len(set(names)) == len(names)
    assert [unit.arm.name for unit in found[:6]] == ["Neap", "Linux static"] * 3
    # The lists of the machines, then in each round both numbers of cores, and NetPIPE on one core.
    assert len(found) == 2 + 2 * (2 * 2 + 2)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "get"', 'name = "get"\nconections = 3', "workloads\\[0\\] has no member 'conections'; its members are name, about"),
        ('name = "get"', 'name = "get"\nconnections = "many"', "workloads\\[0\\].connections is a whole number"),
        ('name = "get"', 'name = "get"\nconnections = 5000', "get: connections is 1 to 4096, not 5000"),
        ('name = "get"', 'name = "get"\nmix = "lru"', "get: mix is fixed, etc or usr, not 'lru'"),
        ('name = "get"', 'name = "../get"', "'../get' is no name"),
        ('name = "get"', 'name = "idle"', "two rows are named 'idle'"),
        ('name = "get"', 'name = "get"\nrate = 0', "get: with rate = 0 the member window_ms is needed"),
        ('name = "get"', 'name = "get"\nrate = 0.01', "get: the window is longer than a minute"),
        ("cores = [1, 2]", "cores = [0]", "cores is a list of 1 to 16"),
        ("cores = [1, 2]", "core = [1]", "there is no member 'core'; the file's members are arms"),
        ('system = "neap"', 'system = "minix"', "Neap: system is one of neap, linux, linux-13, not 'minix'"),
        ('"itr=16us"', '"itr=1us"', "Linux static: itr= takes"),
        ("rounds = 2", "rounds = true", "rounds is a number from 1 to 100"),
        ("rounds = 2", "rounds = ", "Invalid value"),
        ('name = "trip"', "", "ping_pong\\[0\\] lacks the member 'name'"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, said: str):
    assert old in SMALL
    with pytest.raises(Failure, match=said):
        plan.read(written(tmp_path, SMALL.replace(old, new, 1)))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(Failure, match="No such file"):
        plan.read(tmp_path / "none.toml")


def test_rows_and_rounds_can_be_narrowed(tmp_path: Path):
    whole = plan.read(written(tmp_path, SMALL))
    found = whole.narrowed(["trip.64", "id*"], 5, [2, 1])
    assert [one.name for one in found.workloads] == ["idle"]
    assert found.ping_pong[0].rows() == ["trip.64"]
    assert (found.rounds, found.cores) == (5, (2, 1))
    assert found.digest != whole.digest
    with pytest.raises(UsageError, match="no row is named put"):
        whole.narrowed(["put"], None, None)
    with pytest.raises(UsageError, match="--rounds takes 1 to 100, not 0"):
        whole.narrowed([], 0, None)
    with pytest.raises(UsageError, match="--cores takes 1 to 16, not 17"):
        whole.narrowed([], None, [17])


def test_a_burst_has_a_request_for_each_place_in_flight():
    assert plan.Workload("get", connections=16, depth=4).burst(1) == 64
    # More frames than the driver takes in one event do not come at once.
    assert plan.Workload("get", connections=1024).burst(2) == 128


def test_the_window_offers_as_many_requests_on_any_number_of_cores():
    one = plan.Workload("get", rate=10_000, requests=5000)
    assert one.window_ms_of(1) == 500
    assert one.window_ms_of(4) == 125
    # One connection takes its requests to one core.
    assert plan.Workload("get", connections=1, rate=10_000, requests=5000).window_ms_of(4) == 500
