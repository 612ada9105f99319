# SPDX-License-Identifier: BSL-1.0
"""The tables that the published studies' cleaners print are read as tables of runs, for the page and for analysis."""

from pathlib import Path

import pytest

from tools.errors import Failure
from tools.study import published_runs, runs_table
from tools.study.view_source import Source

MCD = (
    "2 ['clean.py', '.']\n"
    "sys i itr dvfs rapl read_5th read_10th read_50th read_90th read_95th read_99th measure_QPS target_QPS time joules rx_bytes tx_bytes "
    "instructions cycles ref_cycles llc_miss c1 c1e c3 c6 c7 num_interrupts\n"
    "linux_core_tuned 0 3 300 0x1d00 95 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n"
    "linux_tuned 0 300 0x1d00 95 70 90 214.5 330.8 351.4 379.9 200000 200000 20.0 1900.0 7e8 9e8 9e10 1.8e11 2.1e11 0 1 2 3 0 4 1040000\n"
    "linux_default 1 1 0xffff 135 nan nan 62.5 79.1 86.2 104.1 199867.1 200000 20.0 0 7e8 9e8 9e10 1.8e11 2.1e11 5 0 0 0 0 0 8255473\n"
    "ebbrt_poll 2 666 0xd00 135 1 1 38.2 43.2 45.1 52.4 200025.6 200000 20 1296.02 0 0 5e11 4e11 9.2794e11 1 0 0 0 0 0 319865\n"
)
NETPIPE = (
    "sys i msg_size itr dvfs rapl time tput joules rx_bytes tx_bytes instructions cycles ref_cycles llc_miss c1 c1e c3 c6 c7 interrupts\n"
    "ebbrt_tuned 0 64 6 0x1d00 135 0.2 27 1.5 650000 650000 1 0 0 1 0 0 0 0 9 15000\n"
)
NODE = (
    "sys i itr dvfs rapl lat50 lat90 lat99 requests time joules ref_cycles\nlinux_tuned 1 8 0x1500 135 101 110 117 100000 10.0 250.0 1e10\n"
)


@pytest.fixture
def mcd(tmp_path: Path) -> Path:
    path = tmp_path / "mcdsilo_combined.csv"
    path.write_text(MCD)
    return path


def test_memcached(mcd: Path) -> None:
    tuned, default, polling = runs_table.read([mcd]).table.to_pylist()
    assert [row["arm"] for row in (tuned, default, polling)] == ["Linux", "Linux dynamic", "EbbRT polling"]
    wanted = {"load": "mcdsilo", "itr_us": 300, "frequency_ghz": 2.9, "rapl_w": 95, "repeat": 1, "requests": 4_000_000, "cores": 16}
    wanted |= {"energy_uj": 475, "power_w": 95, "p50_us": 214.5, "p99_us": 379.9, "rate_wanted": 200_000, "wake_ups": 10}
    assert {name: tuned[name] for name in wanted} == pytest.approx(wanted)
    assert tuned["llc_misses"] is None and tuned["mean_us"] is None
    assert (default["itr_us"], default["frequency_ghz"], default["energy_j"], default["wake_ups"]) == (None, None, None, None)
    assert polling["c0"] == pytest.approx(1, rel=1e-3) and polling["bytes_in"] is None


def test_other_applications(tmp_path: Path) -> None:
    (tmp_path / "netpipe.csv").write_text(NETPIPE)
    (tmp_path / "node.csv").write_text(NODE)
    (row,) = runs_table.read([tmp_path / "netpipe.csv"]).table.to_pylist()
    # 5,000 round trips in 0.2 s are 20 us one way.
    assert (row["load"], row["p50_us"], row["energy_uj"], row["wake_ups"]) == ("netpipe 64", pytest.approx(20), pytest.approx(300), None)
    (row,) = runs_table.read([tmp_path / "node.csv"]).table.to_pylist()
    assert (row["load"], row["requests"], row["rate_reached"], row["p99_us"], row["cores"]) == ("node", 100_000, 10_000, 117, 1)


def test_the_page_has_the_same_rows(mcd: Path) -> None:
    source = Source([str(mcd)])
    assert source.all("SELECT arm, p99_us FROM runs ORDER BY repeat") == [
        ("Linux", 379.9),
        ("Linux dynamic", 104.1),
        ("EbbRT polling", 52.4),
    ]


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("sys,i,itr,dvfs,rapl,time\n")
    assert not published_runs.is_published(path) and not published_runs.is_published(tmp_path / "none.csv")
    heading = MCD.splitlines(keepends=True)[1]
    path.write_text(heading)
    with pytest.raises(Failure, match="no line has the 27 columns"):
        runs_table.read([path])
    path.write_text(heading + MCD.splitlines()[3].replace("379.9", "slow"))
    with pytest.raises(Failure, match="line 2: could not convert string to float: 'slow'"):
        runs_table.read([path])
