# SPDX-License-Identifier: BSL-1.0
"""The readers of other programs' bytes pass the fuzzer's cases, and the fuzzer finds errors that these readers once had."""

import os
from pathlib import Path

import pytest

from tools.errors import Failure
from tools.log import about, fuzz_collector, inventions, layout, synthetic

SEED = 20261122
# `./neap soak` sets a longer time. `./neap soak fuzz` starts the fuzzer itself, for the requested time.
SECONDS = min(600.0, float(os.environ.get("NEAP_SOAK_SECONDS") or 15))


@pytest.mark.timeout(SECONDS + 300)
def test_no_case_ends_otherwise_than_with_success_or_one_clear_error() -> None:
    count, findings = fuzz_collector.fuzz(SECONDS, SEED)
    assert count > 20 * SECONDS
    assert not findings, "\n".join(f"case {found.case} of seed {SEED}: {found.trace}" for found in findings.values())


def test_a_case_is_made_from_its_number_alone() -> None:
    first, again, other = (inventions.Inventor(seed).stream(fuzz_collector.FILES) for seed in (7, 7, 8))
    assert first == again != other


def test_a_field_that_is_believed_unread_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeats an old error, in which the header's values were used without checks."""
    import json

    monkeypatch.setattr(layout.about_text, "parse", lambda text: json.loads(text))
    _, findings = fuzz_collector.fuzz(60, SEED, cases_max=600)
    assert len(findings) >= 3, sorted(findings)


def test_terminal_escapes_in_an_error_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failure, "report", lambda self: f"neap: error: {self.args[0]}")
    _, findings = fuzz_collector.fuzz(60, SEED, cases_max=600)
    assert "an error holds control characters" in findings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("run", value) for value in (-1, 1 << 32, 0.5, True, "1", None, [])),
        *(("cores", value) for value in (0, 257, 1e300, "2")),
        *(("boot_id", value) for value in ("", "0123456789ABCDEF", "../../../../etc", 7)),
        *(("application", value) for value in ("\0", "\x1b[31m", "é", "a" * 257, None, {})),
        *(("tsc_at_boot", value) for value in (-1, 1 << 64, 10**30, 1.5)),
        ("energy_unit_exponent", 64),
        ("counters", ["\n"]),
        ("counters", ["a"] * 65),
        *(("idle_states", value) for value in ({}, ["C1"], ["=1"], ["a"] * 65)),
        *(("flags", value) for value in (None, ["a"] * 17, [7])),
        *(("fields", value) for value in ([], "", {"record": 7}, {"record": "x" * 2001})),
        *(("settings", value) for value in ([], {"0": 7})),
    ],
)
def test_a_header_with_a_field_that_cannot_be_is_refused_by_its_name(name: str, value: object) -> None:
    fields = {**synthetic.about(synthetic.Shape(), 0), name: value}
    with pytest.raises(layout.Damaged, match=f"its {name} cannot be|not finite|a number of"):
        layout.parse_header(layout.build_header(0, 0, 0, 0, 10**9, fields), "a file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"run":1e999}', "1e999, which is not finite"),
        (b'{"run":NaN}', "NaN, which is not finite"),
        (b'{"run":' + b"9" * 3000 + b"}", "a number of 3000 digits"),
        (b"[" * 2000 + b"]" * 2000, "nested too deeply"),
        ('{"cpu":"é"}'.encode(), "it is not ASCII"),
        (b"[]", "it is no object"),
        (b"{}", "it has no boot_id"),
    ],
)
def test_a_headers_text_is_refused_with_the_reason(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        about.parse(text)


def test_names_that_are_not_known_are_left_out_and_kept_in_the_file(tmp_path: Path) -> None:
    fields = {**synthetic.about(synthetic.Shape(), 0), "later": {"deep": [1e300]}}
    header = layout.parse_header(layout.build_header(0, 8, 0, 0, 10**9, fields), "a file")
    assert "later" not in header.about
    assert b'"later"' in layout.rebuild_header(header, 4, 4)
