# SPDX-License-Identifier: BSL-1.0
"""`./neap compare` on a small plan: real runs of Neap and Linux, their logs on one page, and a second call that runs nothing."""

import json
from pathlib import Path

import pytest

from tools.compare import command, store, units
from tools.model.layers import LAYERS

PLAN = """
cores = [1]
rounds = 2
[[arms]]
name = "Neap"
system = "neap"
words = ["itr=16us", "pstate=38"]
[[arms]]
name = "Linux static"
system = "linux"
words = ["itr=16us", "governor=performance"]
[[workloads]]
name = "get.4"
connections = 4
requests = 400
warm_up_ms = 10
[[workloads]]
name = "idle.4"
connections = 4
rate = 0
window_ms = 20
warm_up_ms = 10
[log]
workload = "get.4"
window_ms = 40
"""


# One test, because a fixture that tests share would be made in each of the processes that run them.
def test_a_small_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "plan.toml").write_text(PLAN)
    assert compare(tmp_path) == 0
    results = tmp_path / "out"
    for check in (check_layers, check_requests, check_rounds, check_idle, check_logs, check_machines):
        check(results)
    check_second_call(results, monkeypatch, capsys)


def compare(folder: Path) -> int:
    return command.compare(str(folder / "plan.toml"), str(folder / "out"), [], None, None, None)


def rows_of(results: Path) -> dict[str, dict]:
    return {row["row"]: row["arms"] for row in json.loads((results / command.COMPARISON).read_text())["rows"]}


def check_layers(results: Path):
    """The work of a request is split into layers that add up."""
    for arm, cell in rows_of(results)["get.4"].items():
        total = cell["figures"]["instructions"]["mean"]
        layers = {name: found["mean"] for name, found in cell["layers"].items()}
        assert set(layers) <= set(LAYERS)
        assert sum(layers.values()) == pytest.approx(total), arm
        for name in ("driver", "network stack", "application"):
            assert layers[name] > 0, (arm, name)


def check_requests(results: Path):
    """Both systems had the same requests."""
    neap, linux = rows_of(results)["get.4"].values()
    assert neap["count"] == linux["count"] >= 790
    for name in ("frames_in", "bytes_in"):
        assert linux["figures"][name]["mean"] == pytest.approx(neap["figures"][name]["mean"], rel=0.1)
    assert linux["ratios"]["instructions"] > 3
    assert neap["ratios"]["instructions"] == 1


def check_rounds(results: Path):
    """Two rounds differ by at most a percent."""
    for cell in rows_of(results)["get.4"].values():
        found = cell["figures"]["instructions"]
        # With two rounds the interval is 12.706 times the deviation of the mean, which is half of their distance.
        distance = (found["high"] - found["low"]) / 12.706
        assert found["rounds"] == 2
        assert 0 < distance < 0.01 * found["mean"]


def check_idle(results: Path):
    """An idle machine has no requests and no latency."""
    for cell in rows_of(results)["idle.4"].values():
        assert cell["each"] == "second"
        assert "p99_us" not in cell["figures"]
        assert cell["figures"]["frames_out"]["mean"] == 0
        assert cell["figures"]["watts"]["mean"] > 1


def check_logs(results: Path):
    """The logs of both arms are on one page."""
    page = (results / command.LOG_PAGE).read_text()
    assert "Neap" in page and "Linux static" in page
    for arm in ("Neap", "Linux-static"):
        assert (results / "logs" / arm / "core0.log").stat().st_size > 16384


def check_machines(results: Path):
    """The machines are described and compared."""
    document = json.loads((results / command.COMPARISON).read_text())
    assert document["machines"]["Neap"]["system"] == "neap"
    assert document["machines"]["Linux static"]["system"] == "linux"
    for name in ("cpu_model", "ram_bytes", "card_pci_id", "itr_us", "queues", "link_up"):
        assert name not in [one["name"] for one in document["machine_differences"]["Linux static"] if not one["by_nature"]], name


def check_second_call(results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A second call runs nothing."""
    before = (results / store.RUNS).read_bytes()
    monkeypatch.setattr(units, "run", lambda *_: pytest.fail("a unit ran again"))
    assert compare(results.parent) == 0
    assert (results / store.RUNS).read_bytes() == before
    assert "Linux static" in capsys.readouterr().out
