# SPDX-License-Identifier: BSL-1.0
"""`./neap soak protocols` prints a table and its findings; the verdicts of `./neap soak crowd`."""

import copy
from pathlib import Path

import pytest

from tools import build, memcached_soak, testing
from tools.errors import UsageError

GOOD = 'echo "fuzz_protocols $2: ${0%b} bytes, 7 commands, 3 streams, 0.5 s"'
RESULT = {
    "findings": {"unserved": 0},
    "newcomers": 3,
    "newcomers_failed": [],
    "newcomer_slowest_s": 0.1,
    "alive": True,
    "console": ["neap: panic"],
    "during": {"errors": 0, "count": 100, "p99_us": 1500.0, "outcomes": {"done": 50, "hit": 50}},
    "memory": {"before": 10, "after": 11, "left": 0, "kept": {}},
    "bounds": {"memcached.reply_bytes": {"peak": 30, "limit": 40}},
    "measured": {"samples": 9},
}


@pytest.fixture(autouse=True)
def own_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BUILD", tmp_path)


def test_each_protocol_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert memcached_soak.play(["/bin/sh", "-c", GOOD], 500, 1) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["protocol", "bytes", "commands", "streams", "findings", "seconds"],
        *([protocol, "500", "7", "3", "0", "0.5"] for protocol in memcached_soak.PROTOCOLS),
    ]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('[ $2 = meta ] && { echo "AddressSanitizer: heap-use-after-free"; exit 1; }; ' + GOOD, "AddressSanitizer: heap-use-after-free"),
        ("[ $2 = meta ] && exit 0; " + GOOD, "without 500 bytes"),
        ('[ $2 = meta ] && echo "fuzz_protocols meta: 499 bytes, 7 commands, 3 streams, 0.5 s" && exit 0; ' + GOOD, "without 500 bytes"),
    ],
)
def test_a_protocol_with_a_finding_fails(script: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert memcached_soak.play(["/bin/sh", "-c", script], 500, 1) == 1
    printed = capsys.readouterr().out
    assert said in printed and ["meta", "-", "-", "-", "1", "-"] in [line.split() for line in printed.splitlines()]


def test_a_crowd_that_is_served_within_its_limits_has_no_fault() -> None:
    assert memcached_soak.faults_of(RESULT, may_miss=False) == []
    assert "    memcached.reply_bytes: peak 30 of 40 (75%)" in memcached_soak.report(RESULT)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"broken": "OSError: no answer"}, "broke off"),
        ({"findings": {"memcached.reply_bytes over its limit": 5}}, "over its limit: 5"),
        ({"newcomers_failed": ["memcached: refused"]}, "a new client was not served"),
        ({"alive": False}, "neap: panic"),
        ({"during": RESULT["during"] | {"errors": 1}}, "the bystander was not served"),
        ({"during": RESULT["during"] | {"count": 0}}, "the bystander was not served"),
        ({"during": RESULT["during"] | {"outcomes": {"hit": 99, "miss": 1}}}, "the bystander was not served"),
        ({"memory": RESULT["memory"] | {"left": 5}}, "memory has not returned"),
        ({"memory": RESULT["memory"] | {"kept": {"memcached.held_bytes": 7}}}, "held_bytes"),
    ],
)
def test_faults(change: dict, said: str) -> None:
    assert said in "\n".join(memcached_soak.faults_of(copy.deepcopy(RESULT) | change, may_miss=False))


def test_evictions_may_cost_the_bystander_its_items() -> None:
    missed = RESULT | {"during": RESULT["during"] | {"outcomes": {"hit": 99, "miss": 1}}}
    assert memcached_soak.faults_of(missed, may_miss=True) == []


def test_both_are_commands_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memcached_soak, "soak_protocols", lambda count=5: ("protocols", count))
    monkeypatch.setattr(memcached_soak, "soak_crowd", lambda cores=4: ("crowd", cores))
    assert testing.soak(["protocols"]) == ("protocols", 5) and testing.soak(["protocols"], count=9) == ("protocols", 9)
    assert testing.soak(["crowd"], cores=2) == ("crowd", 2)
    for names, options, said in (
        (["protocols"], {"cores": 2}, "--cores does not belong to soak protocols"),
        (["crowd"], {"count": 2}, "--bytes does not belong to soak crowd"),
        (["fuzz"], {"count": 2}, "--bytes belongs to soak protocols"),
    ):
        with pytest.raises(UsageError, match=said):
            testing.soak(names, **options)


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (0, 10**13):
        with pytest.raises(UsageError, match="--bytes takes"):
            memcached_soak.soak_protocols(count)
    for cores in (0, 257):
        with pytest.raises(UsageError, match="--cores takes"):
            memcached_soak.soak_crowd(cores)
