# SPDX-License-Identifier: BSL-1.0
"""The configuration of a real run: what was set before and in it stands in run.json, summary, report and Parquet, and `diff` names it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet
from servers import NeapServer

from tools import build
from tools.log import decode, report, summary
from tools.process import finished

pytestmark = [pytest.mark.image_only, pytest.mark.names_the_82599]  # its moderation of interrupts

CORES = 2
COMMAND_SECONDS = 180
NEAP = [sys.executable, str(build.REPOSITORY / "neap")]
BEFORE = {"rx_ring": "1024", "rsc": "on", "tso": "chain", "pthresh": "16", "head_write_back": "off"}
DURING = {"rx_ring": "256", "rsc": "off", "tso": "copy", "pthresh": "24", "head_write_back": "on"}


def neap(*words: str) -> subprocess.CompletedProcess:
    done = finished([*NEAP, *words], COMMAND_SECONDS)
    assert done.returncode == 0, done.stderr + done.stdout
    return done


def lines(settings: dict[str, str]) -> list[str]:
    return [f"{name},{value}" for name, value in settings.items()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Two runs of one boot. The first one has changes and marks. The second one begins with the values that the first one ended with."""
    place = tmp_path_factory.mktemp("runs")
    arguments = ["memory=128M", "itr=10us", "log=65536", "control_token=open-sesame"]
    token = place / "token"
    token.write_text("open-sesame\n")
    with NeapServer(cores=CORES, arguments=arguments) as server:
        address = server.control_target
        ctl = ("ctl", address, "--token-file", str(token))
        neap(*ctl, *lines(BEFORE), "start", "mark,warm_up", "mark,window", *lines(DURING), "mark,drain", "mark,end", "stop")
        neap("log", "collect", address, "--token-file", str(token), "--out", str(place / "first"))
        neap(*ctl, "start", "stop")
        neap("log", "collect", address, "--token-file", str(token), "--out", str(place / "second"))
    yield place / "first", place / "second"


def texts(rows: list[dict]) -> dict[str, str]:
    return {row["setting"]: row["value"] for row in rows}


def test_run_json_has_settings_changes_marks_and_machine(runs: tuple[Path, Path]) -> None:
    found = json.loads((runs[0] / "run.json").read_text())["configuration"]
    start = {**texts(found["settings_at_start"])}
    assert {name: start[name] for name in BEFORE} == BEFORE and start["itr"] == "10us"
    assert all(row["cores"] == list(range(CORES)) for row in found["settings_at_start"])
    changes = [row for row in found["changes"] if row["setting"] in DURING]
    assert texts(changes) == DURING and {row["setting"]: row["before"] for row in changes} == BEFORE
    assert all(row["cores"] == list(range(CORES)) and row["seconds"] > 0 for row in changes)
    assert [row["what"] for row in found["marks"]] == ["warm_up", "window", "drain", "end"]
    header = found["header"]
    assert "memory=128M" in header["command_line"] and "sesame" not in json.dumps(header)
    assert header["card"]["name"] and header["card"]["queues"] >= CORES and header["link"]["up"] is True and "slow" not in header
    assert found["card_counters"] and any(grown and grown > 0 for grown in found["card_counters"].values())


def test_summary_report_and_parquet_have_the_five_settings(runs: tuple[Path, Path], tmp_path: Path) -> None:
    run = decode.load([str(runs[0])])
    assert [core.unknown for core in run.cores] == [0] * CORES
    assert summary.configure(run) == json.loads((runs[0] / "run.json").read_text())["configuration"]
    text = neap("log", "summary", str(runs[0])).stdout
    page = report.build(report.load([str(runs[0])]))
    neap("log", "parquet", str(runs[0]), "--table", "settings", "--out", str(tmp_path / "settings.parquet"))
    rows = parquet.read_table(tmp_path / "settings.parquet").to_pylist()
    for name in BEFORE:
        assert f"{name}={BEFORE[name]}" in text and f"{name}={DURING[name]}" in text
        assert f"<td>{name}</td><td>{BEFORE[name]}</td>" in page and f"<td>{name}={DURING[name]}</td>" in page
        for entry, value in (("configured", BEFORE[name]), ("change", DURING[name])):
            assert sum((row["entry"], row["changed"], row["value"]) == (entry, name, value) for row in rows) == CORES
    (phase,) = [row for row in summary.summarise(run)["phases"] if row["load_part"] == "warm_up"]
    assert {name: phase["settings"][name] for name in BEFORE} == BEFORE and not phase["in_load_window"]


def test_diff_names_the_settings(runs: tuple[Path, Path]) -> None:
    found = json.loads(neap("log", "diff", *map(str, runs), "--json").stdout)
    named = {row["name"]: (row["first"], row["second"]) for row in found["settings_at_start"]}
    assert named == {name: (BEFORE[name], DURING[name]) for name in BEFORE}
    assert found["configuration"] == [], "one boot has one configuration"
    text = neap("log", "diff", *map(str, runs)).stdout
    assert all(name in text for name in BEFORE)
