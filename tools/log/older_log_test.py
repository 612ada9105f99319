# SPDX-License-Identifier: BSL-1.0
"""Logs of other builds are decoded, because the header says which fields and settings they have.

testdata/log_before_settings.tar.xz is a run of memcached, built from commit 1993dec, on two emulated cores. Its headers name no settings.
`log/` is the result of `./neap log collect`. `expected/` is the output of that commit's tools for `log/`.
"""

import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tools.errors import Failure
from tools.log import decode, folder, layout, schema, study, study_layout, summary, synthetic, tables
from tools.log.schema import DEFAULTS

ARCHIVE = Path(__file__).with_name("testdata") / "log_before_settings.tar.xz"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("older")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    return place


def without_values(rows: list[dict]) -> list[dict]:
    """Removes the text of a setting's value, which the older tools did not write."""
    return [{name: value for name, value in row.items() if name != "value"} for row in rows]


def test_the_summary_of_an_older_log_is_that_of_the_older_tools(older: Path) -> None:
    found = summary.summarise(decode.load([str(older / "log")]))
    # The older tools had no phases, no configuration, and one system. Without them, all else is compared.
    assert len(found["phases"]) > 1
    text = summary.text({**found, "phases": [], "transitions": [], "phase_remarks": []})
    assert "configuration:" not in text, "this log has no member of the header that the text lists"
    for name in ("phases", "transitions", "phase_remarks", "configuration", "system"):
        del found[name]
    figures, changes = (older / "expected/summary.txt").read_text().split("\nset:\n")
    assert text.split("\nset:\n")[0] == figures
    # The older tools wrote one line for each core; one line now stands for all cores that share a change.
    lines = [re.fullmatch(r" *([0-9.]+) s  core +(\d+)  (.*)  \(generation (\d+)\)", line) for line in changes.splitlines()]
    rows = [(line[1], int(line[2]), line[3], int(line[4])) for line in lines if line]
    assert len(rows) == len(lines) and rows == [
        (f"{row['seconds']:.6f}", row["core"], summary.change_text(row), row["generation"]) for row in found["settings"]
    ]
    assert len(text.split("\nset:\n")[1].splitlines()) == len({row[3] for row in rows}), "both cores made each change"
    found["settings"] = without_values(found["settings"])
    assert json.loads(json.dumps(found)) == json.loads((older / "expected/summary.json").read_text())


@pytest.mark.parametrize("which", ["records", "settings", "idle"])
def test_the_tables_of_an_older_log_are_those_of_the_older_tools(older: Path, tmp_path: Path, which: str) -> None:
    # Columns of later tools follow the older ones.
    columns = len((older / f"expected/{which}.csv").read_text().splitlines()[0].split(","))
    pieces = (piece.select(range(columns)) for piece in tables.tables(decode.load([str(older / "log")]), which, False))
    tables.write_csv(pieces, str(tmp_path / "table.csv"))
    assert (tmp_path / "table.csv").read_bytes() == (older / f"expected/{which}.csv").read_bytes()


def test_the_configuration_of_an_older_log_has_what_the_log_says(older: Path) -> None:
    run = decode.load([str(older / "log")])
    found = summary.configure(run)
    start, *_ = run.cores[0].settings
    assert {row["setting"]: row["value"] for row in found["settings_at_start"]} == {
        "idle": start["idle"],
        "itr": f"{start['itr_us']}us",
        "poll_budget": f"{start['poll_budget_us']}us",
        "pstate": "none",
        "power_limit": "none",
        "turbo": start["turbo"],
    }
    assert all(row["cores"] == [0, 1] for row in found["settings_at_start"])
    assert len(found["changes"]) == len({row["generation"] for core in run.cores for row in core.settings if row["changed"] != "start"})
    assert found["marks"] == [] and found["card_counters"] is None and found["load"] is None and "slow" not in found["header"]
    assert {row["name"] for row in tables.configuration_table(run).to_pylist() if row["part"] == "start"} >= {"itr", "turbo"}


def test_the_study_files_of_an_older_log_are_those_of_the_older_tools(older: Path, tmp_path: Path) -> None:
    wanted = study.Wanted(study_layout.LAYOUTS["log"], study_layout.Setting("8", "0x1800", "135"))
    written, _ = study.write(decode.load([str(older / "log")]), wanted, tmp_path)
    # The older tools left no file of the packages.
    written = [path for path in written if ".packages." not in path.name]
    assert [path.name for path in written] == sorted(path.name for path in (older / "expected/study").iterdir())
    for path in written:
        assert path.read_bytes() == (older / "expected/study" / path.name).read_bytes()


def test_the_collector_describes_an_older_log_as_the_older_one_did(older: Path) -> None:
    described = folder.describe_run(folder.log_files(older / "log"), **{"from": "machine:5002", "mode": "after", "breaks": 0})
    described["settings"] = without_values(described["settings"])
    assert described.pop("configuration") == summary.configure(decode.load([str(older / "log")]))
    assert described == json.loads((older / "log/run.json").read_text())


def write(path: Path, entries: np.ndarray, **types: object) -> None:
    text = {**synthetic.about(synthetic.Shape(cores=1), 0), **types}
    path.write_bytes(layout.build_header(0, len(entries), 0, 0, 10**9, text) + entries.tobytes())


def test_a_log_with_other_settings_and_states_is_decoded_by_its_header(tmp_path: Path) -> None:
    entries = np.zeros(8, synthetic.TYPES["settings"])
    entries["kind"], entries["idle_state"] = decode.SETTINGS, 1
    entries["changed"], entries["card_value"] = [255, 0, 1, 2, 2, 3, 4, 200], [0, 3, 1, 0, 7, 8, 1500, 9]
    settings = {
        "0": "lamp::choice::off|red|green|blue",
        "1": "fan::switch",
        "2": "delay:::laps:0=never",
        "3": "pause:::us",
        "4": "watts:::mW",
    }
    write(tmp_path / "core0.log", entries, settings=settings, idle_states=["awake", "asleep"])
    run = decode.load([str(tmp_path)])
    assert [summary.change_text(row) for row in run.cores[0].settings] == [
        *("start", "lamp=blue", "fan=on", "delay=never", "delay=7", "pause=8us", "watts=1.5W", "200=9"),
    ]
    changed = [piece["changed"].to_pylist() for piece in tables.tables(run, "settings", True)]
    assert changed == [["start", "lamp", "fan", "delay", "delay", "pause", "watts", "200"]]


def test_a_log_with_moved_and_further_fields_is_decoded_by_its_header(tmp_path: Path) -> None:
    words = DEFAULTS["fields"]["record"].split(" ")
    words.remove("rx_bytes:u32:B")
    moved = " ".join([*words[:2], "rx_bytes:u32:B", *words[2:]])
    entry = np.zeros(64, np.uint8)
    entry[8], entry[9] = decode.INTERRUPT, 77
    types = {"fields": {**DEFAULTS["fields"], "record": moved, "later": "tsc:u64: kind:u8: reserved:u8x55:"}}
    later = np.zeros(64, np.uint8)
    later[8] = 99
    write(tmp_path / "core0.log", np.concatenate([entry, later]).view("V64"), **types, lines={**DEFAULTS["lines"], "99": "later"})
    core = decode.load([str(tmp_path)]).cores[0]
    assert core.records["rx_bytes"].tolist() == [77] and core.unknown == 0


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ({"fields": {}}, "its fields have no record"),
        ({"fields": {**DEFAULTS["fields"], "idle": "tsc:u64: kind:u8: x:u8x55:"}}, "its idle has no idle_state"),
        ({"fields": {**DEFAULTS["fields"], "x": "tsc:u64: kind:u8: x:u8x54:"}}, "its x has not 64 bytes"),
        ({"fields": {**DEFAULTS["fields"], "x": "kind:u8: tsc:u64: x:u8x55:"}}, "its x does not begin with tsc and kind"),
        ({"fields": {**DEFAULTS["fields"], "x": "tsc:u64: kind:u8: =x:u8x55:"}}, "its x has a field that cannot be"),
        (
            {"fields": {**DEFAULTS["fields"], "anchor": DEFAULTS["fields"]["anchor"].replace("requests:u64", "requests:u8x8")}},
            "no requests",
        ),
        ({"fields": {**DEFAULTS["fields"], "record": DEFAULTS["fields"]["record"].replace("flags:u16", "flags:u32")}}, "64 bytes"),
        ({"lines": {"1": "nothing"}}, "its lines have a form that its fields have not"),
        ({"lines": {"256": "record"}}, "a number that cannot be"),
        ({"lines": {"1": "record", "01": "anchor"}}, "a number twice"),
        ({"settings": {"0": "Idle"}}, "its settings have one that cannot be"),
        ({"settings": {"0": "idle:nothing"}}, "its settings have one that cannot be"),
        ({"settings": {"0": "idle::button"}}, "its setting idle has a kind or a unit that cannot be"),
        ({"settings": {"0": "idle::choice::a|=b"}}, "its settings have choices that cannot be"),
        ({"settings": {"0": "idle::choice::" + "|".join("a" * 65)}}, "its settings have choices that cannot be"),
    ],
)
def test_types_that_cannot_be_are_refused_with_the_reason(types: dict, said: str) -> None:
    with pytest.raises(layout.Damaged, match=said):
        layout.parse_header(layout.build_header(0, 0, 0, 0, 10**9, {**synthetic.about(synthetic.Shape(), 0), **types}), "a file")


def test_headers_with_other_types_are_of_another_run(tmp_path: Path) -> None:
    for core, settings in enumerate(({"0": "a"}, {"0": "b"})):
        text = {**synthetic.about(synthetic.Shape(cores=2), core), "settings": settings}
        (tmp_path / f"core{core}.log").write_bytes(layout.build_header(core, 0, 0, 0, 10**9, text))
    with pytest.raises(Failure, match="are of different runs"):
        decode.load([str(tmp_path)])


def test_the_default_types_are_whole() -> None:
    found = schema.parse({})
    assert found.idle_states[found.idle_poll] == "poll"
    assert set(found.form) == {
        "record",
        "sample",
        "residency",
        "settings",
        "anchor",
        "idle",
        "events",
        "mark",
        "collection",
        "transactions",
    }
    assert set(found.flags) <= {name for form in ("sample", "residency", "events") for name in found.form[form].by_name}
