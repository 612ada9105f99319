# SPDX-License-Identifier: BSL-1.0
"""Plans of `./neap soak model` follow from their seeds, and each check of a run's end finds what it is for."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.conftest import REPOSITORY
from tools.errors import UsageError
from tools.log import synthetic
from tools.model import campaign, campaign_checks, campaign_plan
from tools.model.campaign_plan import HALT, HARMLESS, Plan, plan

SEEDS = range(300)
PLANS = [plan(seed) for seed in SEEDS]
CONNECTIONS = PLANS[0].experiment.connections


def text(counts: dict[str, int]) -> str:
    return "; ".join(f"{name}={count}" for name, count in counts.items())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two cores with some traffic, a part of it control's."""
    synthetic.write(tmp_path, synthetic.Shape(cores=2, records=100))
    return tmp_path


def good(log: Path) -> dict[str, Any]:
    """The report of a run in which all is well, with statistics that fit the log."""
    logged = campaign_checks.log_totals(log)
    before = {
        **dict.fromkeys(campaign_checks.UNCHANGED, 40),
        **{"memcached.requests": 200, "log.requests": 0, "memcached.curr_connections": CONNECTIONS, "net.joined_copied_bytes": 0},
        **{f"ixgbe.{way}.{unit}": 1000 for way in ("rx", "tx") for unit in ("frames", "bytes")},
        **{f"net.control_{unit}_{way}": 100 for way in ("received", "sent") for unit in ("frames", "bytes")},
        "memory.heap_used_bytes": 1 << 20,
        campaign_checks.SPARE: 16 << 10,
    }
    after = dict(before)
    after["memcached.requests"] += 95
    after["log.requests"] += 95
    for way in ("rx", "tx"):
        for unit in ("frames", "bytes"):
            after[f"ixgbe.{way}.{unit}"] += logged[f"{way}_{unit}"] + 7
    for way in ("received", "sent"):
        for unit in ("frames", "bytes"):
            after[f"net.control_{unit}_{way}"] += 7
    frames = after["ixgbe.rx.frames"]
    return {
        "offered": 90,
        "answered": 80,
        "failed": 10,
        "operations": {"get": {"hit": 60}, "set": {"done": 20}},
        "failures": {"timed_out": 10},
        "connections": {"opened": 50, "refused": 1, "lost": 2, "ended": 1},
        "frames": {"to_card": frames, "from_card": 5},
        "card": {"rx_frames[0]": frames},
        "trial": {
            "requests": {"submitted": 100, "answered": 90},
            "recovery": {"offered": 10, "operations": {"get": {"hit": 10}}, "failures": {}},
            "statistics": [before, before, after, after],
        },
    }


def findings(report: dict[str, Any], log: Path, console: tuple[str, ...] = (), harmless: bool = False) -> list[str]:
    report = copy.deepcopy(report)
    report["trial"]["statistics"] = [text(counts) for counts in report["trial"]["statistics"]]
    return campaign_checks.check(dataclasses.replace(PLANS[0], harmless=harmless), report, log, console)


def test_a_good_run_has_no_finding(log: Path) -> None:
    assert campaign_checks.log_totals(log)["rx_frames"] > 100
    assert findings(good(log), log, ("neap: command line: panic=1", "memcached: listening on 10.0.0.2:11211")) == []


def after(name: str, by: int = 1) -> Callable[[dict[str, Any]], None]:
    """A change of one of the statistics at the end."""

    def change(report: dict[str, Any]) -> None:
        last = report["trial"]["statistics"][-1]
        report["trial"]["statistics"][2:] = [{**last, name: last.get(name, 0) + by}] * 2

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda report: report["operations"]["get"].update(wrong_bytes=1), "1 answers to get are wrong: wrong_bytes"),
        (lambda report: report["failures"].update(garbage=2), "2 requests ended by garbage"),
        (lambda report: report.update(answered=79), "90 requests, but 79 answered"),
        (lambda report: report["trial"]["recovery"]["failures"].update(timed_out=1), "after the faults, 1 requests ended by timed_out"),
        (lambda report: report["trial"]["recovery"].update(offered=11), "after the faults, 10 of 11"),
        (
            lambda report: report["trial"]["recovery"].update(operations={"get": {"miss": 10}}),
            "after the faults, 10 answers to get are wrong",
        ),
        (after("memcached.requests", 6), "101 requests were executed; 100 were sent"),
        (after("memcached.requests", -6), "89 requests were executed; 100 were sent and 90 answered"),
        (after("log.requests"), "95 requests were executed, and 96 logged"),
        (after("ixgbe.tx.frames"), "tx_frames, the counters"),
        (after("net.control_bytes_received"), "rx_bytes, the counters"),
        (lambda report: report["card"].update({"rx_frames[0]": 10}), "the card gave it 10"),
        (lambda report: report["frames"].update(to_card=10), "10 frames came to the card"),
        (after("memcached.held_bytes"), "memcached.held_bytes was 40 and is 41"),
        (after("net.half_open"), "1 connections are half open"),
        (after("memcached.curr_connections", 5), f"{CONNECTIONS + 5} connections are open, although the clients have {CONNECTIONS}"),
        (after("memcached.curr_connections", -1), f"{CONNECTIONS - 1} connections are open"),
        (after("memory.heap_used_bytes", 200 << 10), "the heap has grown by 204800 bytes"),
        (after(campaign_checks.SPARE, 4 << 20), "4210688 bytes of chunks are spare, more than 4 cores keep"),
        (after("log.unwritten"), "log.unwritten is 1"),
    ],
)
def test_a_broken_invariant_is_found(log: Path, change: Callable[[dict[str, Any]], None], said: str) -> None:
    report = good(log)
    change(report)
    found = findings(report, log)
    assert any(said in finding for finding in found), found


def test_growth_by_spare_chunks_of_replies_is_no_finding(log: Path) -> None:
    """Seed 291 reset 40 connections whose replies waited for the link. Their chunks were kept for later replies."""
    report = good(log)
    after("memory.heap_used_bytes", 141_344)(report)
    assert any("the heap has grown by 141344 bytes" in finding for finding in findings(report, log))
    after(campaign_checks.SPARE, 122_880)(report)
    assert findings(report, log) == []


def test_a_frame_beside_the_logs_begin_or_end_is_no_finding(log: Path) -> None:
    report = good(log)
    for name in ("ixgbe.rx.frames", "ixgbe.tx.frames"):
        report["trial"]["statistics"][0] = {**report["trial"]["statistics"][0], name: 999}
        last = report["trial"]["statistics"][-1]
        report["trial"]["statistics"][-1] = {**last, name: last[name] + 1}
    report["card"]["rx_frames[0]"] += 1
    report["frames"]["to_card"] += 1
    assert findings(report, log) == []


def test_the_console_is_read(log: Path) -> None:
    for line in ("neap: panic: heap", "neap: watchdog: core 1: an event takes 600 ms", "neap: setting rx_ring is not accepted"):
        assert findings(good(log), log, (line,)) == [f"the console says: {line}"]


def test_a_harmless_plan_allows_no_failure_and_no_loss(log: Path) -> None:
    report = good(log)
    assert "10 requests ended by timed_out without a fault" in findings(report, log, harmless=True)
    report["failures"] = {}
    assert findings(report, log, harmless=True) == []
    report["frames"]["to_card"] += 1
    assert any("were lost at a counter" in finding for finding in findings(report, log, harmless=True))
    report["card"]["MPC[0]"] = 1
    assert findings(report, log, harmless=True) == []


def test_a_plan_follows_from_its_seed() -> None:
    assert [plan(seed) for seed in SEEDS] == PLANS
    assert len({tuple(one.lines()[1:]) for one in PLANS}) == len(PLANS)
    for one in PLANS:
        one.experiment.check()
    assert plan(3, cores=2).experiment.cores == 2


def without_halt(one: Plan) -> list[str]:
    faults = list(one.experiment.faults)
    return faults[:-1] if faults[-1].endswith(f" {HALT}") else faults


def test_cores_that_poll_halt_after_the_faults() -> None:
    polling = [one for one in PLANS if "control idle,poll" in " ".join(one.experiment.faults)]
    assert len(polling) > 10 and not any("idle=poll" in one.experiment.arguments for one in PLANS)
    for one in PLANS:
        assert (len(without_halt(one)) < len(one.experiment.faults)) == (one in polling), one.lines()
    for one in polling:
        times_us = [int(us) for us in re.findall(r"at window\+([0-9]+)us ", "\n".join(one.experiment.faults))]
        # After the others, by a time in which delayed frames arrive; and early, because polling takes long.
        assert max(times_us[:-1]) + 9_999 <= times_us[-1] <= 30_000, one.lines()


def test_all_kinds_of_faults_are_drawn_and_end() -> None:
    for one in PLANS:
        assert [fault.split()[2:] for fault in without_halt(one)[-3:]] == [["off"], ["link", "up"], ["network"]]
    drawn = " ".join(fault for one in PLANS for fault in one.experiment.faults)
    for word in ("drop", "corrupt", "reorder", "delay", "late", "lose", "hang", "stale-head", "ecc", "eeprom", "link flap", "link down",
                 "network loss", "network duplicate", "control", "close", "reset"):  # fmt: skip
        assert f" {word} " in f" {drawn} ".replace("=", " "), word
    assert 0.4 < sum(one.experiment.stall is not None for one in PLANS) / len(PLANS) < 0.8


def test_a_harmless_plan_has_no_fault_that_loses_a_request() -> None:
    kinds = {words.partition("=")[0] for words in HARMLESS}
    for one in (one for one in PLANS if one.harmless):
        for fault in without_halt(one)[:-3]:
            words = fault.split(" ", 2)[2]
            assert words.startswith(("control ", "close ", "reset ")) or words.partition("=")[0] in kinds, fault


def test_the_command_of_a_finding_repeats_its_plan() -> None:
    outcome = campaign.Outcome(plan(7, 2, ["drop tx all"]), ["a finding"], "digest", 0, [])
    assert outcome.again() == "./neap soak model --first-seed 7 --seeds 1 --cores 2 --fault 'drop tx all'"
    assert outcome.plan.experiment.faults == [*plan(7, 2).experiment.faults, "drop tx all"]
    assert "seed 7: FINDING: a finding" in outcome.text() and outcome.again() in outcome.text()


def test_a_campaign_that_cannot_be_is_refused() -> None:
    for wrong, said in (
        ({"seeds": 0}, "--seeds"),
        ({"cores": 17}, "--cores"),
        ({"jobs": 0}, "--jobs"),
        ({"first_seed": -1}, "--first-seed"),
    ):
        with pytest.raises(UsageError, match=said):
            campaign.soak(**wrong)


def test_statistics_are_numbers_by_name() -> None:
    assert campaign_checks.statistics("a.b=1; c[0]=22; d=text; e=") == {"a.b": 1, "c[0]": 22}


def test_plans_use_known_words() -> None:
    """A command that is misspelled would be refused in each run, and test nothing."""
    settings = {line.partition(",")[0] for line in campaign_plan.COMMANDS} | {word.partition("=")[0] for word in campaign_plan.BOOT_WORDS}
    named = "".join((REPOSITORY / "docs" / name).read_text() for name in ("policy.md", "control.md", "82599.md"))
    for name in settings:
        assert f"`{name}" in named, name
