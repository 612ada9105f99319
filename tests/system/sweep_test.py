# SPDX-License-Identifier: BSL-1.0
"""`./neap sweep` on a machine that answers to control: a Neap in plain emulation in the place of a rack machine."""

from pathlib import Path

import pytest
from pyarrow import parquet
from servers import NeapServer

from tools.errors import Failure
from tools.machine import LOOPBACK
from tools.study import command, schema

pytestmark = [pytest.mark.image_only, pytest.mark.names_the_82599]  # its moderation of interrupts

# A busy host delays the emulated machine, so the checks of the rate are wide.
STUDY = """
title = "a real machine"
warm_up_ms = 200
window_ms = 1000
log = true
[[arms]]
name = "rack"
machine = "rack1"
address = "{address}"
service = "{service}"
[settings]
itr_us = [8, 100]
poll_budget = ["0us", "50us"]
[[loads]]
name = "etc"
mix = "etc"
rate = 200
connections = 4
depth = 1
arrivals = "poisson"
[baselines]
idle = true
window_ms = 200
[checks]
rate_within = 0.9
log_is_load = true
"""


def sweep(folder: Path, text: str) -> int:
    (folder / "study.toml").write_text(text)
    (folder / "machines.toml").write_text('[machines.rack1]\nserial = "1"\n')
    return command.sweep(str(folder / "study.toml"), str(folder / "out"), 2, None, str(folder / "machines.toml"), False, False, False)


def test_settings_load_and_log_of_a_machine(tmp_path: Path):
    with NeapServer(arguments=["log=64K"]) as server:
        text = STUDY.format(address=server.control_target, service=f"{LOOPBACK}:{server.address[1]}")
        assert sweep(tmp_path, text) == 0
        rows = parquet.read_table(tmp_path / "out" / schema.RUNS).to_pylist()
        assert [row["load"] for row in rows].count("etc") == 4 and len(rows) == 6
        for row in rows:
            assert row["machine"] == "rack1" and not row["modelled"] and row["energy_j"] is None, "the emulator counts no energy"
            assert row["load"] != "etc" or (row["requests"] > 20 and row["p99_us"] >= row["p50_us"] > 0 and row["interrupts"] > 0)
        # A value that this machine refuses fails the run, with the machine's answer.
        refused = text.replace('poll_budget = ["0us", "50us"]', 'idle = ["halt", "c6"]').replace("itr_us = [8, 100]", "itr_us = 8")
        assert sweep(tmp_path, refused) == 1
        failed = [row for row in parquet.read_table(tmp_path / "out" / schema.RUNS).to_pylist() if row["status"] == "failed"]
        assert {row["idle"] for row in failed} == {"c6"} and all("rack1 refuses idle,c6: error: idle:" in row["failure"] for row in failed)
    assert sweep(tmp_path, text) == 0, "all runs are there, so nobody asks the machine"
    with pytest.raises(Failure, match="rack1 does not answer: nothing answers on") as caught:
        sweep(tmp_path, text.replace("[8, 100]", "[8, 200]"))
    assert caught.value.hint == "./neap power cycle rack1 starts it again"
