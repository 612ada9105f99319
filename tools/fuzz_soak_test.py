# SPDX-License-Identifier: BSL-1.0
"""`./neap soak fuzz` finds fuzzers by their names, runs each for the requested time, and prints seed and case of a finding."""

import os
from pathlib import Path

import pytest

from tools import build, fuzz_soak, testing
from tools.errors import UsageError
from tools.fuzz_soak import Fuzzer

TARGETS = """\
apps/memcached/fuzz_memcached: CXX_EXECUTABLE_LINKER__fuzz_memcached_Debug
fuzz_memcached: phony
apps/memcached/CMakeFiles/fuzz_memcached.dir/fuzz_protocol.cpp.o: CXX_COMPILER__fuzz_memcached_Debug
observe/fuzz_control: CXX_EXECUTABLE_LINKER__fuzz_control_Debug
observe/observe_test: CXX_EXECUTABLE_LINKER__observe_test_Debug
fuzz_new: CXX_EXECUTABLE_LINKER__fuzz_new_Debug
"""
GOOD = 'echo "$0: from stream 0 of seed $2" >&2; sleep 0.2; echo "$0: 7 streams, 9 bytes, in $1.0 s"'
BAD = 'echo "$0: from stream 0 of seed $2"; echo "$0: from stream 1000 of seed $2"; echo "AddressSanitizer: heap-buffer-overflow"; exit 1'


def shell(name: str, text: str) -> Fuzzer:
    return Fuzzer(name, ("/bin/sh", "-c", text, name))


@pytest.fixture(autouse=True)
def own_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BUILD", tmp_path)


def test_fuzzers_are_found_by_their_names() -> None:
    assert fuzz_soak.programs(TARGETS) == ["apps/memcached/fuzz_memcached", "fuzz_new", "observe/fuzz_control"]


def test_each_fuzzer_reports_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_soak.play([shell("fuzz_a", GOOD), shell("fuzz_b", GOOD)], 0.05, 42) == 0
    printed = capsys.readouterr().out
    for name in ("fuzz_a", "fuzz_b"):
        assert f"neap: soak: {name}: 7 streams, 9 bytes, in " in printed
    assert "no finding, seed 42" in printed and printed.splitlines()[-1].startswith("2 fuzzers without a finding, 0 with one")


def test_more_fuzzers_than_cores_share_the_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    fuzz_soak.play([shell(f"fuzz_{number}", GOOD) for number in range(4)], 10, 1)
    printed = capsys.readouterr()
    assert "4 fuzzers, 2 at a time, 5 min 00 s each" in printed.err
    assert printed.out.count("in 300.0 s") == 4 and "5 min 00 s each" in printed.out


def test_a_finding_is_named_with_seed_and_case_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_soak.play([shell("fuzz_a", BAD), shell("fuzz_b", GOOD)], 0.05, 5) == 1
    printed = capsys.readouterr().out
    assert "fuzz_a: FINDING within" in printed and "seed 5; from stream 1000 of seed 5" in printed
    assert "AddressSanitizer: heap-buffer-overflow" in printed and "again: /bin/sh" in printed and "soak-fuzz_a-5.log" in printed
    assert [path.name for path in (build.BUILD / "logs").iterdir()] == ["soak-fuzz_a-5.log"], "a finding's log is kept, no other"
    assert "fuzz_b: 7 streams" in printed and "1 fuzzers without a finding, 1 with one" in printed


def test_a_fuzzer_that_hangs_or_says_nothing_has_failed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fuzz_soak, "SPARE_SECONDS", 0)
    assert fuzz_soak.play([shell("fuzz_a", "sleep 60")], 0.01, 5) == 1
    assert "took longer than 1 s" in capsys.readouterr().out
    assert fuzz_soak.play([shell("fuzz_a", "true")], 0.5, 5) == 1
    assert "without saying how many cases" in capsys.readouterr().out


def test_soak_takes_fuzz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_soak, "find", lambda: [shell("fuzz_a", GOOD)])
    monkeypatch.setenv("NEAP_SOAK_SEED", "9")
    assert testing.soak(["fuzz"], 0.05) == 0
    with pytest.raises(UsageError):
        testing.soak(["fuzz"], 0)


def test_the_collectors_fuzzer_is_among_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fuzz_soak.packages, "require", lambda *_: None)
    monkeypatch.setattr(build, "configure_locked", lambda _preset: None)
    monkeypatch.setattr(build, "build_locked", lambda _preset, targets: None)
    monkeypatch.setattr(fuzz_soak, "output_of", lambda _argv: TARGETS)
    assert [fuzzer.name for fuzzer in fuzz_soak.find()] == ["fuzz_memcached", "fuzz_new", "fuzz_control", "fuzz_collector"]
