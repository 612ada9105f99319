# SPDX-License-Identifier: BSL-1.0
"""A run's configuration stands in run.json, summary, report, CSV and Parquet: members of the header, settings at the start, changes."""

import csv
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from tools.conftest import neap
from tools.log import about, collect, configuration, decode, diff, folder, layout, report, summary, synthetic, tables
from tools.log.by_hand import HZ, configured, record, setting, write_core
from tools.log.decode import POLICY, START, STOP
from tools.log.fake_machine import FakeMachine

# Numbers of settings in tools/log/format.json.
PSTATE, RX_RING, PTHRESH, HEAD_WRITE_BACK, RSC, PRESET, TSO = 2, 6, 9, 12, 13, 15, 21
BEFORE = {RX_RING: 1024, RSC: 1, TSO: 2, PTHRESH: 16, HEAD_WRITE_BACK: 0}
DURING = {RX_RING: 256, RSC: 0, TSO: 0, PTHRESH: 36, HEAD_WRITE_BACK: 1}
TEXTS_BEFORE = {"rx_ring": "1024", "rsc": "on", "tso": "chain", "pthresh": "16", "head_write_back": "off"}
TEXTS_DURING = {"rx_ring": "256", "rsc": "off", "tso": "off", "pthresh": "36", "head_write_back": "on"}


def core_entries(at_start: dict[int, int], changes: dict[int, int], late: int = 0) -> bytes:
    """Two seconds. The changes are a tenth of a second apart, from 0.5 s on, `late` ticks later."""
    made = record(START, HZ) + setting(HZ, 255, 0) + configured(HZ, at_start)
    for number, (changed, value) in enumerate(changes.items(), 2):
        tsc = HZ + HZ // 2 + (number - 2) * HZ // 10 + late
        made += record(POLICY, tsc, generation=number) + setting(tsc, changed, value, generation=number)
    return made + record(STOP, 3 * HZ, generation=1 + len(changes))


@pytest.fixture
def five(tmp_path: Path) -> Path:
    """A run of two cores: five settings had been changed before it, and were changed in it."""
    for core in range(2):
        write_core(tmp_path / "log", core, core_entries(BEFORE, DURING, late=1000 * core), **synthetic.FACTS)
    return tmp_path / "log"


def texts(rows: list[dict]) -> dict[str, str]:
    return {row["setting"]: row["value"] for row in rows}


def test_five_settings_changed_before_and_in_a_run_stand_in_run_json(five: Path) -> None:
    files = [(five / f"core{core}.log").read_bytes() for core in range(2)]
    with FakeMachine(files) as machine:
        assert collect.collect(machine.address, five.parent / "out", live=False, token=None, as_json=True, patience_seconds=5) == 0
    found = json.loads((five.parent / "out/run.json").read_text())["configuration"]
    assert texts(found["settings_at_start"]) == TEXTS_BEFORE
    assert all(row["cores"] == [0, 1] for row in (*found["settings_at_start"], *found["changes"]))
    assert texts(found["changes"]) == TEXTS_DURING
    assert {row["setting"]: row["before"] for row in found["changes"]} == TEXTS_BEFORE
    assert [row["seconds"] for row in found["changes"]] == [0.5, 0.6, 0.7, 0.8, 0.9]
    assert found["changes"][0]["wall_clock_ns"] == 1_700_000_001_500_000_000
    assert {name: found["header"][name] for name in synthetic.FACTS if name in found["header"]} == {
        name: value for name, value in synthetic.FACTS.items() if not name.startswith("card_counters")
    }
    assert found["card_counters"] == {"rx_packets": 1000, "rx_missed": 3}
    assert found == summary.summarise(decode.load([str(five)]))["configuration"], "the collector and the summary agree"


def test_the_summary_has_the_configuration_and_one_line_for_the_settings_of_all_cores(five: Path) -> None:
    text = summary.text(summary.summarise(decode.load([str(five)])))
    (start,) = [line for line in text.splitlines() if "start: " in line]
    assert "all cores  start: rx_ring=1024 rsc=on tso=chain pthresh=16 head_write_back=off  (generation 1)" in start
    for name, value in TEXTS_DURING.items():
        assert f"all cores  {name}={value}  (generation" in text
    for said in (
        "0123456789ab+, release, A compiler",
        "control_token=***",
        "microcode 0x71a",
        "c_state=c7 c_state_locked=yes",
        "id=0x10fb",
    ):
        assert said in text, said
    # A phase lists the settings that the run changed, and no others.
    phases = text.split("configuration:")[0]
    assert "rx_ring" in phases and "tx_ring" not in phases


def test_phases_have_the_settings_in_force(five: Path) -> None:
    first, *_, last = summary.summarise(decode.load([str(five)]))["phases"]
    assert {name: first["settings"][name] for name in TEXTS_BEFORE} == TEXTS_BEFORE
    assert {name: last["settings"][name] for name in TEXTS_DURING} == TEXTS_DURING


def test_the_report_has_the_configuration(five: Path) -> None:
    page = report.build(report.load([str(five)]))
    section = page.split("<summary>Configuration</summary>")[1].split("</details>")[0]
    for name, value in TEXTS_BEFORE.items():
        assert f"<td>{name}</td><td>{value}</td><td>all cores</td>" in section
    for said in ("<td>commit</td><td>0123456789ab+</td>", "<td>rx_packets</td><td>1,000</td>", "control_token=***", "mbps=10000"):
        assert said in section, said
    changes = page.split("<summary>Settings</summary>")[1].split("</details>")[0]
    for name, value in TEXTS_DURING.items():
        assert f"<td>{name}={value}</td>" in changes


def test_parquet_has_the_configuration_as_metadata_and_the_settings_as_a_table(five: Path, tmp_path: Path) -> None:
    for table in ("records", "settings", "configuration"):
        assert neap("log", "parquet", str(five), "--table", table, "--out", str(tmp_path / f"{table}.parquet")).returncode == 0
        metadata = parquet.read_schema(tmp_path / f"{table}.parquet").metadata
        assert json.loads(metadata[b"neap.configuration"]) == summary.configure(decode.load([str(five)]))
        assert json.loads(metadata[b"neap"])[1]["card"] == synthetic.FACTS["card"]
    rows = parquet.read_table(tmp_path / "settings.parquet").to_pylist()
    for core in range(2):
        stated = {row["changed"]: row["value"] for row in rows if row["core"] == core and row["entry"] == "configured"}
        changes = {row["changed"]: row["value"] for row in rows if row["core"] == core and row["entry"] == "change"}
        assert (stated, changes) == (TEXTS_BEFORE, TEXTS_DURING)
    assert [row["changed"] for row in rows if row["entry"] == "start"] == ["start", "start"]


def test_csv_has_the_configuration_in_a_second_file(five: Path, tmp_path: Path) -> None:
    out = tmp_path / "records.csv"
    assert neap("log", "csv", str(five), "--out", str(out)).returncode == 0
    rows = list(csv.DictReader((tmp_path / "records.configuration.csv").read_text().splitlines()))
    assert {row["name"]: row["value"] for row in rows if row["part"] == "start"} == TEXTS_BEFORE
    assert {row["name"]: row["value"] for row in rows if row["part"] == "change"} == TEXTS_DURING
    assert {(row["name"], row["value"]) for row in rows} >= {
        ("limits.c_state", "c7"),
        ("c_states.c6.wake_up_us", "104"),
        ("link.up", "yes"),
        ("rx_missed", "3"),
    }
    done = neap("log", "csv", str(five), "--table", "configuration")
    assert done.stdout == (tmp_path / "records.configuration.csv").read_text()


def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    lines = ("=1+1", "-1", "+1", "@x", "plain =1")
    for number, line in enumerate(lines):
        write_core(tmp_path / str(number), 0, core_entries(BEFORE, {}), cores=1, command_line=line, cpu=line)
        rows = tables.configuration_table(decode.load([str(tmp_path / str(number))])).to_pylist()
        (cell,) = [row["value"] for row in rows if row["name"] == "command_line"]
        assert cell == (line if line == "plain =1" else f"'{line}")


def test_diff_names_settings_and_members_that_differ(five: Path, tmp_path: Path) -> None:
    facts = {**synthetic.FACTS, "slow": 10, "limits": {"c_state": "c3"}, "card_counters_stop": {"rx_packets": 3010, "rx_missed": 3}}
    for core in range(2):
        write_core(tmp_path / "b", core, core_entries({**BEFORE, RX_RING: 512}, {**DURING, RSC: 1}), **facts)
    found = diff.compare(str(five), str(tmp_path / "b"))
    assert found["settings_at_start"] == [{"name": "rx_ring", "first": "1024", "second": "512"}]
    names = {row["name"]: (row["first"], row["second"]) for row in found["configuration"]}
    assert names == {
        "limits.c_state": ("c7", "c3"),
        **{f"limits.{name}": (value, "absent") for name, value in synthetic.FACTS["limits"].items() if name != "c_state"},
        "slow": ("absent", 10),
    }
    assert ("rsc=off", "rsc=on") in [(row["first"]["change"], row["second"]["change"]) for row in found["changes"]]
    (counter,) = [row for row in found["figures"] if row["name"] == "card: rx_packets"]
    assert (counter["first"], counter["second"], counter["difference"]) == (1000, 3000, 2000)
    text = diff.text(found)
    assert "rx_ring" in text and "rsc=on" in text and "10 times slower" in text


def test_diff_names_another_load(tmp_path: Path) -> None:
    for name, rate in (("a", 100000), ("b", None)):
        write_core(tmp_path / name / "log", 0, core_entries(BEFORE, {}), cores=1)
        (tmp_path / name / "load.json").write_text(json.dumps({"runs": [{"rate": {"asked": rate}}]}))
    found = diff.compare(*(str(tmp_path / name / "log") for name in "ab"))
    assert found["configuration"] == [{"name": "load.offered_per_second.1", "first": 100000, "second": "closed loop"}]


def test_repeats_of_one_experiment_name_members_that_differ(tmp_path: Path) -> None:
    for name, facts in (("a", {}), ("b", {"commit": "ba9876543210", "slow": 7}), ("c", {})):
        write_core(tmp_path / name / "log", 0, core_entries(BEFORE, {}), cores=1, **{**synthetic.FACTS, **facts})
    (tmp_path / "c/load.json").write_text(json.dumps({"runs": [{"rate": {"asked": 5}}]}))
    done = neap("log", "summary", *(str(tmp_path / name) for name in "abc"))
    assert done.returncode == 0, done.stderr
    said = [line.rpartition(" differ in ")[2] for line in done.stdout.splitlines() if " differ in " in line]
    assert said == ["commit, slow", "offered load"]


def test_settings_that_differ_by_core_are_folded(tmp_path: Path) -> None:
    for core in range(2):
        write_core(tmp_path, core, core_entries({RX_RING: 512, RSC: core}, {}))
    run = decode.load([str(tmp_path)])
    assert summary.configure(run)["settings_at_start"] == [
        {"setting": "rx_ring", "value": "512", "cores": [0, 1]},
        {"setting": "rsc", "value": "off", "cores": [0]},
        {"setting": "rsc", "value": "on", "cores": [1]},
    ]
    text = summary.text(summary.summarise(run))
    assert "all cores  start: rx_ring=512  (" in text and "core 0     start: rsc=off  (" in text and "core 1     start: rsc=on  (" in text


def test_a_value_with_a_field_of_its_own_is_read_from_it(tmp_path: Path) -> None:
    # card_value holds the low part only. It is no granted ratio here.
    entries = record(START, HZ) + setting(HZ, 255, 0, performance=0x100001800)
    entries += configured(HZ, {PSTATE: 0x1800}, performance=0x100001800) + record(STOP, 2 * HZ)
    write_core(tmp_path, 0, entries, cores=1)
    assert summary.configure(decode.load([str(tmp_path)]))["settings_at_start"] == [
        {"setting": "pstate", "value": "0x100001800", "cores": [0]}
    ]


def test_values_after_a_preset_are_not_known_unless_the_log_states_them(tmp_path: Path) -> None:
    preset = record(POLICY, 2 * HZ, generation=2) + setting(2 * HZ, PRESET, 1, generation=2)
    for name, stated in (("a", b""), ("b", configured(2 * HZ + 1, {RX_RING: 512, RSC: 0}, generation=2))):
        entries = record(START, HZ) + setting(HZ, 255, 0) + configured(HZ, BEFORE) + preset + stated + record(STOP, 3 * HZ, generation=2)
        write_core(tmp_path / name, 0, entries, cores=1)
    found = [summary.summarise(decode.load([str(tmp_path / name)])) for name in "ab"]
    assert all(each["phases"][0]["settings"]["rx_ring"] == "1024" for each in found)
    unknown, known = (each["phases"][1]["settings"] for each in found)
    assert (unknown["preset"], unknown["rx_ring"], unknown["rsc"]) == ("study", None, None)
    assert (known["preset"], known["rx_ring"], known["rsc"]) == ("study", "512", "off")
    assert any("preset" in remark for remark in found[0]["phase_remarks"]) and not found[1]["phase_remarks"]


def test_the_offered_load_beside_the_logs_is_recorded(five: Path) -> None:
    assert folder.describe_run(folder.log_files(five))["configuration"]["load"] is None
    (five.parent / "world.json").write_text(json.dumps({"rate": 5000.0, "window": {"from_ns": 0, "to_ns": 1}}))
    assert folder.describe_run(folder.log_files(five))["configuration"]["load"] == {"file": "world.json", "offered_per_second": [5000.0]}
    (five.parent / "load.json").write_text(json.dumps({"runs": [{"rate": {"asked": 1e5}}, {"rate": {"asked": None}}, {"rate": 7}]}))
    load = folder.describe_run(folder.log_files(five))["configuration"]["load"]
    assert load == {"file": "load.json", "offered_per_second": [1e5, None, None]}
    for place in (five, five.parent):
        assert "100,000 requests/s" in summary.text(summary.summarise(decode.load([str(place)])))
    for hostile in ("[]", "7", "{", '{"runs": 7}', '{"runs": [{"rate": {"asked": -1}}, 7]}', '{"window": 7, "rate": 1e400}'):
        (five.parent / "load.json").write_text(hostile)
        summary.text(summary.summarise(decode.load([str(five)])))


def test_the_factor_of_a_slow_card_is_a_remark(tmp_path: Path) -> None:
    write_core(tmp_path, 0, core_entries(BEFORE, {}), cores=1, slow=100)
    found = summary.summarise(decode.load([str(tmp_path)]))
    assert "the soft card's clock ran 100 times slower than the CPUs': itr=1us lasted 100 us" in found["remarks"]


def test_a_log_whose_start_was_overwritten_has_its_changes_only(tmp_path: Path) -> None:
    data = core_entries(BEFORE, DURING)
    write_core(tmp_path, 0, data[64 * (2 + len(BEFORE)) :], cores=1)
    found = folder.describe_run(folder.log_files(tmp_path))["configuration"]
    assert found["settings_at_start"] == [] and texts(found["changes"]) == TEXTS_DURING
    assert found["changes"][0]["before"] is None and found["changes"][0]["seconds"] == 0
    assert found == summary.configure(decode.load([str(tmp_path)]))
    summary.text(summary.summarise(decode.load([str(tmp_path)])))


def test_counters_of_the_card_that_were_reset_or_are_missing_are_no_numbers() -> None:
    first, last = {"a": 5, "b": 7, "c": 1}, {"a": 9, "b": 2}
    assert configuration.counter_growth({"card_counters_start": first, "card_counters_stop": last}) == {"a": 4, "b": None}
    assert configuration.counter_growth({"card_counters_start": first}) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("commit", value) for value in ("", "0123456789a", "0123456789ab++", "0123456789AB", "0" * 39, 7, "=1+1")),
        *(("build", value) for value in ("\x1b[2J", "x" * 257, 7, None)),
        *(("command_line", value) for value in ("\n", "x" * 16385, ["a"], "é")),
        *(("microcode", value) for value in (7, "71a", "0x", "0x" + "1" * 17, "0X1")),
        *(("cpu_signature", value) for value in ("06-2d", "06-2d-07-1", "gg-00-00", 6)),
        *(("limits", value) for value in ([], "c7", {"c_state": 7}, {"c_state_locked": 1}, {"power_limit_mw": -1}, {"x y": 1})),
        *(("limits", value) for value in ({"later": [1]}, {"later": {}}, {f"m{number}": 1 for number in range(65)})),
        *(("frequencies_mhz", value) for value in ({"base": "2900"}, {"base": -1}, {"base": True})),
        *(("c_states", value) for value in ({}, [7], [{"name": 7}], [{"hint": "32"}], [{"name": "c1"}] * 33, [{"wake_up_us": -1}])),
        *(("card", value) for value in (7, {"id": 0x10FB}, {"queues": -1}, {"queues": 1 << 64}, {"name": "\0"})),
        *(("link", value) for value in ({"up": 1}, {"up": "yes"}, {"mbps": 0.5})),
        *(("slow", value) for value in (0, -1, 1.5, "10", 1 << 32, True)),
        *(("card_counters_start", value) for value in ([], {"a": -1}, {"a": 0.5}, {"a": None}, {"": 1}, {"=1": 1})),
        ("card_counters_stop", {f"c{number}": 1 for number in range(1025)}),
    ],
)
def test_a_member_that_cannot_be_is_refused_by_its_name(name: str, value: object) -> None:
    text = {**synthetic.about(synthetic.Shape(facts=True), 0), name: value}
    with pytest.raises(layout.Damaged, match=f"its {name} cannot be"):
        layout.parse_header(layout.build_header(0, 0, 0, 0, 10**9, text, 65536), "a file")


def test_members_of_later_versions_are_kept(tmp_path: Path) -> None:
    later = {"limits": {"c_state": "c7", "later": 1.5}, "card": {"name": "x", "port": None, "sfp": "SR"}}
    text = {**synthetic.about(synthetic.Shape(facts=True), 0), **later}
    found = about.parse(json.dumps(text).encode())
    assert found["limits"] == later["limits"] and configuration.member_text(found["card"]) == "name=x port=null sfp=SR"
