# SPDX-License-Identifier: BSL-1.0
"""The rows of `./neap bench network`, from results that are made up: no machine runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.bench import network
from tools.bench.network import LINKS, Run
from tools.bench.rows import Row, Selection
from tools.errors import Failure, UsageError
from tools.model import transfer
from tools.model.experiment import System
from tools.model.transfer import Outcome, Setting


def at(mbps: float) -> Outcome:
    return Outcome(byte_count=1_000_000, seconds=8 / mbps)


def found(neap: list[Outcome], linux: list[Outcome], link: str = "loss_1") -> list[Row]:
    """`neap`, `linux`: of the direction `out`, by seed. The other direction is equal in both arms."""
    outcomes = {}
    for arm, given in (("neap", neap), ("linux", linux)):
        for seed, one in enumerate(given, 1):
            outcomes |= {(arm, network.step_name(link, "out", seed)): one, (arm, network.step_name(link, "in", seed)): at(50)}
    return network.rows_of([link], outcomes, "cubic", len(neap))


def by_name(rows: list[Row]) -> dict[str, Row]:
    return {row.name: row for row in rows}


def test_a_value_is_all_bytes_by_all_seconds_and_the_ratio_has_to_reach_its_target() -> None:
    # Transfers of equal size take 1/15 + 1/60 + 1/20 = 8/60 and 3/24 units of time.
    rows = by_name(found([at(15), at(60), at(20)], [at(24), at(24), at(24)]))
    rate, ratio = rows["loss_1.out.mbps"], rows["loss_1.out.ratio"]
    assert (rate.value, rate.peer, rate.peer_is) == (pytest.approx(22.5), pytest.approx(24), "Linux, cubic")
    assert "15.0 to 60.0" in rate.unit
    assert ratio.value == pytest.approx(22.5 / 24) and ratio.missed, "0.9375"
    assert not by_name(found([at(22.8)], [at(24)]))["loss_1.out.ratio"].missed
    assert by_name(found([at(18)], [at(20)]))["loss_1.out.ratio"].missed
    assert rows["loss_1.in.ratio"].value == 1 and not rows["loss_1.in.ratio"].missed


def test_a_failed_transfer_of_one_seed_fails_the_row_and_says_why() -> None:
    rows = by_name(found([at(20), Outcome(failed="the sums of both ends differ"), at(20)], [at(20)] * 3))
    ratio = rows["loss_1.out.ratio"]
    assert ratio.missed and ratio.value is None and ratio.unit == "neap: the sums of both ends differ"
    assert not rows["loss_1.in.ratio"].missed
    assert "out: neap: the sums of both ends differ" in network.show(list(rows.values()))


def test_the_table_has_a_line_for_each_link_and_names_what_is_below_the_target() -> None:
    lines = network.show([*found([at(5)], [at(50)], "clean"), *found([at(50)], [at(50)], "delay_50")]).splitlines()
    assert len(lines) == 4 and lines[0].endswith("Linux, cubic")
    assert lines[2].split("  ")[0] == LINKS["clean"].about and "0.10" in lines[2] and lines[2].endswith("out below 0.95")
    assert lines[3].endswith("1.00")


def test_patterns_choose_links_and_both_directions_are_run() -> None:
    assert network.chosen(Selection(["delay_50"])) == ["delay_50"]
    assert network.chosen(Selection(["delay_50.in"])) == ["delay_50"]
    assert network.chosen(Selection(["loss*"])) == ["loss_0.1", "loss_1", "loss_5"]
    assert network.chosen(Selection()) == list(LINKS)
    with pytest.raises(UsageError, match="no row .* matches speed"):
        network.chosen(Selection(["speed"]))
    steps = Run("neap", ("loss_1",)).steps(2, 0.5)
    assert [step.name for step in steps] == [f"loss_1.{name}" for name in ("out.1", "out.2", "in.1", "in.2")]
    assert {step.byte_count for step in steps} == {500_000}
    assert steps == Run("linux", ("loss_1",)).steps(2, 0.5), "both arms have the same steps and seeds"
    assert Run("neap", ("delay_50",)).steps(1, None)[0].byte_count == LINKS["delay_50"].megabytes * 1e6
    for name, link in LINKS.items():
        by_chance = link.network.loss or link.network.reorder or link.network.duplicate
        assert len(Run("neap", (name,)).steps(None, None)) == 2 * link.seeds and (link.seeds == 1) != bool(by_chance), name


def test_a_word_takes_the_place_of_the_usual_one() -> None:
    assert network.words([], "reno") == [*transfer.NEAP_WORDS, "tcp_congestion=reno"]
    assert network.words(["itr=2us", "tso=copy"], "cubic") == ["pstate=38", "idle=menu", "tcp_congestion=cubic", "itr=2us", "tso=copy"]
    assert network.words(["tcp_congestion=dctcp"], "cubic")[-1] == "tcp_congestion=dctcp"


def test_links_with_equal_settings_share_a_boot() -> None:
    runs = network.runs_of(list(LINKS))
    assert [(one.arm, LINKS[one.links[0]].mtu) for one in runs] == [(arm, mtu) for mtu in (1500, 576, 9000) for arm in ("neap", "linux")]
    assert sorted(link for one in runs if one.arm == "neap" for link in one.links) == sorted(LINKS)


def test_a_run_that_ends_early_keeps_what_it_has_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_setting: object, _server: object, _steps: object, _out: object, on_line: Callable[[str, str], None]) -> None:
        on_line("client", "transfer: loss_1.out.1 ok 1000000 1000000000 00ff")
        raise Failure("the server of the transfers ended early: panic")

    monkeypatch.setattr(network.transfer, "run", run)
    outcomes = network.measure(Run("neap", ("loss_1",)), Setting(), System(Path("image")), 1, None)
    assert outcomes["loss_1.out.1"].mbps == pytest.approx(8)
    assert outcomes["loss_1.in.1"].failed == "the server of the transfers ended early: panic"


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (Selection(seeds=0), "--seeds takes"),
        (Selection(megabytes=0), "--megabytes takes"),
        (Selection(congestion="vegas"), "--congestion takes"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(selection: Selection, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        network.rows(selection)


def test_a_row_may_have_a_least_value() -> None:
    least = Row("a", "", 0.95, 0.95, at_least=True)
    assert not least.missed and Row("a", "", 0.94, 0.95, at_least=True).missed
    assert least.fields() == {"name": "a", "unit": "", "value": 0.95, "target": 0.95, "at_least": True}
    assert Row("a", "", 0.95, 0.95).missed and "at_least" not in Row("a", "", 1, 2).fields()
