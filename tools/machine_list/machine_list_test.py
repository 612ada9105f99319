# SPDX-License-Identifier: BSL-1.0
"""The machine list: differences and their weights, the texts, the command, and the list of this Linux."""

import json
import os
import platform
import re
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import cli
from tools.errors import Failure, UsageError
from tools.machine_list import commands, difference_text, differences, forbids, lines, text
from tools.machine_list.compare import value
from tools.machine_list.schema import ABSENT, GROUPS, MEMBERS, Weight

REPOSITORY = Path(__file__).resolve().parent.parent.parent
NEAP = {
    "system": "neap", "system_version": "0.1.0", "cpu_model": "modelled E5-2690", "cpu_threads": 4, "smt": False, "tsc_hz": 2_900_000_000,
    "itr_us": 8, "itr_adaptive": False, "link_mbps": 10_000, "queue_cores": ["0", "1"], "card_driver": "neap", "ram_bytes": 1 << 30,
}  # fmt: skip
LINUX = {**NEAP, "system": "linux", "system_version": "6.1.0-49-amd64", "card_driver": "ixgbe", "card_interface": "eth0"}


def test_equal_lists_have_no_difference() -> None:
    assert differences(NEAP, dict(NEAP)) == []
    assert not forbids([])


@pytest.mark.parametrize("name", [name for name, member in MEMBERS.items() if member.weight is Weight.FORBIDS])
def test_another_machine_forbids_a_comparison_on_any_systems(name: str) -> None:
    values = {"text": ("a", "b"), "number": (1, 2), "flag": (True, False), "list": (["a"], ["b"])}[MEMBERS[name].kind]
    for other in (NEAP, LINUX):
        found = differences({**NEAP, name: values[0]}, {**other, name: values[1]})
        assert name in [one.name for one in found if one.forbids] and forbids(found)


def test_a_setting_is_a_difference_that_only_strict_forbids() -> None:
    found = differences(NEAP, {**LINUX, "itr_us": 50})
    assert [one.name for one in found if not one.by_nature] == ["itr_us"]
    assert not forbids(found) and forbids(found, strict=True)
    assert lines(found) == [f"itr_us: 8 | 50 ({MEMBERS['itr_us'].why})"]


def test_what_differs_between_systems_by_nature_is_kept_apart() -> None:
    found = differences(NEAP, LINUX)
    assert {one.name for one in found} == {"system", "system_version", "card_driver", "card_interface"}
    assert all(one.by_nature for one in found) and not forbids(found, strict=True)
    assert lines(found) == [] and len(lines(found, all_members=True)) == 4


def test_the_same_system_shows_every_difference() -> None:
    found = differences(LINUX, {**LINUX, "system_version": "6.12.0", "mitigations": ["l1tf: Vulnerable"]})
    assert [(one.name, one.by_nature) for one in found] == [("system_version", False), ("mitigations", False)]
    assert not forbids(found), "another kernel forbids nothing by itself"


def test_a_value_that_is_not_known_forbids_nothing() -> None:
    without = {name: content for name, content in NEAP.items() if name != "link_mbps"}
    for other in (without, {**NEAP, "link_mbps": None}):
        found = differences(NEAP, other)
        assert [(one.name, one.weight, one.by_nature) for one in found] == [("link_mbps", Weight.SETTING, False)]
        assert found[0].why.startswith("known on one side only")
        assert not forbids(found)


def test_measured_numbers_are_equal_within_their_tolerance() -> None:
    assert differences(NEAP, {**NEAP, "tsc_hz": 2_900_500_000}) == []
    assert forbids(differences(NEAP, {**NEAP, "tsc_hz": 2_910_000_000}))
    assert differences(NEAP, {**NEAP, "ram_bytes": (1 << 30) - (4 << 20)}) == []
    assert forbids(differences(NEAP, {**NEAP, "ram_bytes": 1 << 31}))


def test_a_flag_is_no_number_and_a_list_is_compared_in_order() -> None:
    assert [one.name for one in differences({**NEAP, "smt": 0}, NEAP)] == ["smt"]
    assert [one.name for one in differences(NEAP, {**NEAP, "queue_cores": ["1", "0"]})] == ["queue_cores"]
    assert [one.name for one in differences(NEAP, {**NEAP, "itr_us": [8, 50]})] == ["itr_us"]


def test_a_member_of_a_later_version_is_compared_too() -> None:
    found = differences({**NEAP, "later": 1}, {**NEAP, "later": 2})
    assert [(one.name, one.weight) for one in found] == [("later", Weight.SETTING)]
    assert "later" in text({**NEAP, "later": 1})


def test_the_text_is_aligned_by_groups_and_has_no_unknown_member() -> None:
    shown = text({**NEAP, "link_mbps": None, "card_driver": "a\x1b[2Jb", "mitigations": ["x" * 60, "y" * 60]}, 100).splitlines()
    assert [line for line in shown if not line.startswith(" ")] == ["system:", "cpu:", "time:", "card:"]
    columns = {line.index(word) for line in shown for word in ("neap", "modelled", "2900000000", "x" * 60, "y" * 60) if word in line}
    assert len(columns) == 1, shown
    assert not any("link_mbps" in line or "\x1b" in line for line in shown)
    assert all(len(line) <= 100 for line in shown)


def test_the_table_of_differences_puts_what_forbids_first() -> None:
    found = differences(NEAP, {**LINUX, "itr_us": 50, "cpu_threads": 8})
    shown = difference_text(found, ("a", "b"), False)
    assert shown.index("cpu_threads") < shown.index("itr_us") and "card_interface" not in shown
    assert "card_interface" in difference_text(found, ("a", "b"), True).partition("by nature")[2]
    assert value(True) == "yes" and value(None) == "not known" and value(["a", 1]) == "a, 1"


# --- The command -------------------------------------------------------------------------------------------------------------------------
def keep(path: Path, machine: dict) -> str:
    path.write_text(json.dumps(machine))
    return str(path)


def test_diff_reads_files_and_folders_and_its_status_says_whether_they_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = keep(tmp_path / "a.json", NEAP), keep(tmp_path / "machine.json", LINUX)
    assert cli.main(["machine", "diff", first, str(tmp_path)]) == 0
    assert "may be compared" in (shown := capsys.readouterr().out) and "4 members differ by nature" in shown
    assert cli.main(["machine", "diff", first, second, "--all"]) == 0
    assert "ixgbe" in capsys.readouterr().out
    keep(tmp_path / "machine.json", {**LINUX, "itr_us": 50})
    assert cli.main(["machine", "diff", first, second]) == 0
    assert cli.main(["machine", "diff", first, second, "--strict"]) == 1
    keep(tmp_path / "machine.json", {**LINUX, "smt": True})
    capsys.readouterr()
    assert cli.main(["machine", "diff", first, second, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["forbidden"] and [row["name"] for row in found["differences"]] == ["smt"]


@pytest.mark.parametrize(
    "content",
    ["", "[1]", "{}", '{"system": 1}', '{"system": "linux", "smt": 1}', '{"system": "linux", "cpu_threads": true}',
     '{"system": "linux", "cpu_threads": [1, "x"]}', '{"system": "linux", "mitigations": "off"}', '{"system": "linux", "later": {}}',
     '{"system": "linux", "command_line": "' + "x" * 9000 + '"}'],
)  # fmt: skip
def test_a_file_that_is_no_list_is_one_error_with_a_remedy(tmp_path: Path, content: str) -> None:
    (tmp_path / "machine.json").write_text(content)
    with pytest.raises(Failure, match="has no machine list|is no machine list") as caught:
        commands.read(str(tmp_path))
    assert caught.value.hint and "\n" not in caught.value.message


def test_wrong_words_are_refused(tmp_path: Path) -> None:
    for words in (["a", "b"], ["diff", "a"], ["diff", "a", "b", "c"], ["local", "--all"], ["diff", "a", "b", "--out", "x"]):
        arguments = cli._parser().parse_args(["machine", *words])
        with pytest.raises(UsageError):
            cli._call(arguments)
    with pytest.raises(UsageError, match="--interface belongs to"):
        commands.machine(["10.0.0.2"], interface="eth0")
    with pytest.raises(Failure, match="has no machine list"):
        commands.read(str(tmp_path))
    with pytest.raises(Failure, match="has no machine list"):
        commands.read("missing.json")


@pytest.fixture
def server() -> Iterator[tuple[list[str], int]]:
    """A control server that gives the answers in the list, one for each line."""
    answers: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write((answers.pop(0) if line.strip() == b"machine" else "error: another line").encode() + b"\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield answers, serving.server_address[1]
        serving.shutdown()


def test_a_running_machine_is_asked_over_control(server: tuple[list[str], int]) -> None:
    answers, port = server
    answers += ["ok " + json.dumps({**NEAP, "epp": None}), "error: there is no command 'machine' (help lists them)", "ok what"]
    assert commands.read(f"127.0.0.1:{port}") == NEAP
    with pytest.raises(Failure, match="there is no command 'machine'"):
        commands.read(f"127.0.0.1:{port}")
    with pytest.raises(Failure, match="has no machine list"):
        commands.read(f"127.0.0.1:{port}")


# --- The list of this Linux --------------------------------------------------------------------------------------------------------------
def test_this_linux_has_a_list_whose_members_are_those_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = commands.local()
    assert set(found) <= set(MEMBERS)
    assert (found["system"], found["system_version"], found["system_build"]) == ("linux", platform.release(), platform.version())
    assert found["cpu_threads"] == os.cpu_count()
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert cpu is None or found["cpu_model"].split() == cpu[1].split()
    assert 1 <= found["cpu_packages"] <= found["cpu_cores"] <= found["cpu_threads"] <= found["cpu_threads_present"]
    assert found["smt"] == (found["cpu_threads"] > found["cpu_cores"])
    assert cli.main(["machine", "local", "--out", str(tmp_path / "here.json")]) == 0
    assert f"cpu_threads              {os.cpu_count()}\n" in capsys.readouterr().out
    assert cli.main(["machine", "diff", "local", str(tmp_path / "here.json")]) == 0


def test_an_interface_is_described_without_being_a_card_of_ours() -> None:
    found = commands.local("lo")
    assert found["card_interface"] == "lo" and found["mtu_bytes"] == int(Path("/sys/class/net/lo/mtu").read_text())
    assert "card_pci_id" not in found and "wthresh_descriptors" not in found


@pytest.mark.parametrize("name", ["nothing0", "", "..", "../net/lo", "x" * 40])
def test_an_interface_that_does_not_exist_is_one_sentence(name: str) -> None:
    done = subprocess.run([str(commands.program()), name], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1 and done.stdout == "" and "there is no network interface" in done.stderr


def test_a_list_that_cannot_be_written_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(commands.program())], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20, check=False)
    assert done.returncode == 1 and "was not written" in done.stderr


def test_the_document_has_the_members_of_the_table() -> None:
    document = (REPOSITORY / "docs/machine-list.md").read_text()
    rows = [
        f"| `{one.name}` | {one.kind} | {one.weight.value} | {one.meaning} | {one.linux} | {one.neap} | {one.why} |"
        for members in GROUPS.values()
        for one in members
    ]
    assert [line for line in document.splitlines() if line.startswith("| `")] == rows


def test_each_system_writes_the_members_that_the_table_gives_it() -> None:
    linux = "".join((REPOSITORY / f"tools/linux_log/{name}").read_text() for name in commands.PROGRAM_SOURCES)
    neap = (REPOSITORY / "observe/machine_list.cpp").read_text()
    for name, member in MEMBERS.items():
        assert (f'"{name}"' in linux) == (member.linux != ABSENT), name
        assert (f'"{name}"' in neap) == (member.neap != ABSENT), name
