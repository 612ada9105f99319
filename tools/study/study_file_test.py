# SPDX-License-Identifier: BSL-1.0
"""A mistake in a study's file is one sentence with the line and what to write instead, and nothing is started."""

import re
from pathlib import Path

import pytest

from tools import build
from tools.errors import Failure, UsageError
from tools.study import command, engine, plan, rigs, settings, study_file

EXAMPLES = Path(__file__).with_name("studies")
SMALL = """title = "small"
seed = 1
repeats = 2
warm_up_ms = 10
window_ms = 40
[[arms]]
name = "Neap"
cores = [1, 2]
words = ["rsc=off"]
[[arms]]
name = "Linux"
system = "linux"
words = ["governor=schedutil"]
[settings]
itr_us = [16,
  100]
frequency_ghz = [1.2, 2.9]
[[loads]]
name = "etc"
mix = "etc"
rate = [1000, 2000]
[[loads]]
name = "get"
[checks]
rate_within = 0.02
[[leave_out]]
arm = "Neap"
cores = 2
itr_us = 100
"""


def expanded(text: str) -> list[plan.Run]:
    return plan.runs(study_file.parsed(text, "study.toml"))


def test_a_study_is_expanded_with_fixed_words_and_without_what_is_left_out():
    found = [run for run in expanded(SMALL) if run.repeat == 1]
    neap = [run for run in found if run.arm.name == "Neap"]
    assert len(neap) == (2 * 2 + 1 * 2) * 3, "one core with all settings, two cores without the interval of 100 us"
    linux = [run for run in found if run.arm.name == "Linux"]
    assert {run.words for run in linux} == {("governor=schedutil", "itr=16us"), ("governor=schedutil", "itr=100us")}, "a fixed frequency"
    assert {run.load.rate_of(run.cores) for run in neap if run.load.name == "etc"} == {1000, 2000, 4000}
    assert {run.load.window_ms_of(1) for run in found} == {40}
    assert {run.seed for run in expanded(SMALL)} == {2, 3}


def test_the_order_is_random_within_a_repeat_and_repeats():
    titles = [run.title for run in expanded(SMALL)]
    given = [run.title for run in expanded(SMALL.replace("seed = 1", 'seed = 1\norder = "given"'))]
    assert titles != given and sorted(titles) == sorted(given) and titles == [run.title for run in expanded(SMALL)]
    half = len(titles) // 2
    assert all("repeat 1" in title for title in titles[:half]) and all("repeat 2" in title for title in titles[half:])
    assert titles != [run.title for run in expanded(SMALL.replace("seed = 1", "seed = 2"))]


def test_linux_measures_all_loads_of_a_setting_in_one_boot_and_in_one_order():
    text = SMALL.replace('"etc"\nmix', '"usr"\nmix').replace("[1000, 2000]", "[2000, 1000]")
    found = plan.units(study_file.parsed(text, "study.toml"))
    boots = [unit for unit in found if unit.arm.is_linux]
    assert len(boots) == 2 * 2
    loads = {tuple((run.load.name, run.rate) for run in unit.runs) for unit in boots}
    assert loads == {(("usr", 2000), ("usr", 1000), ("get", 25000))}, "the file's order"
    assert all(len(unit.runs) == 1 for unit in found if not unit.arm.is_linux)


def test_netpipe_s_sizes_are_rows_of_one_boot():
    text = SMALL + '[[leave_out]]\narm = "Linux"\nload = "ping_pong.*"\n[[ping_pong]]\nsizes = [8192, 64]\nrepeats = 20\n'
    study = study_file.parsed(text, "study.toml")
    found = [unit for unit in plan.units(study) if unit.message]
    # Two intervals at one core, one at two cores; two frequencies; two repeats.
    assert len(found) == 3 * 2 * 2 and {unit.arm.name for unit in found} == {"Neap"}
    assert {tuple(run.load.name for run in unit.runs) for unit in found} == {("ping_pong.64", "ping_pong.8192")}
    order = plan.order_of(found[0], study)
    assert (order["sizes"], order["trips"], order["loads"]) == ([64, 8192], 20, [])
    programs = {"model": {}, "neap": {"neap image": "a"}, "linux": {}, "netpipe": {"netpipe image": "b"}}
    before, after = (plan.names(found, study, {**programs, "neap": {"neap image": image}}) for image in "ac")
    assert set(before) == set(after), "its image is another one"


def test_a_run_is_named_by_all_that_it_depends_on():
    study = study_file.parsed(SMALL, "study.toml")
    programs = {"model": {"QEMU": "1"}, "neap": {"neap image": "a"}, "linux": {"linux image": "b"}}
    named = plan.names(plan.units(study), study, programs)
    assert len(named) == len(plan.runs(study)) and all(re.fullmatch("[0-9a-f]{16}", name) for name in named)
    changed = plan.names(plan.units(study), study, {**programs, "neap": {"neap image": "c"}})
    common = set(named) & set(changed)
    assert {named[name][1].arm.name for name in common} == {"Linux"}
    longer = study_file.parsed(SMALL.replace("window_ms = 40", "window_ms = 50"), "study.toml")
    assert not set(named) & set(plan.names(plan.units(longer), longer, programs))


def test_the_project_s_own_studies_are_valid():
    found = {path.name: plan.runs(study_file.read(path)) for path in EXAMPLES.glob("*.toml")}
    dvfs = [run for run in found["itr-dvfs.toml"] if not run.is_baseline]
    assert len(dvfs) == 6 * 4 * 2 * 3


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("seed = 1", "seed = ", 2, "no TOML: Invalid value; docs/study.md shows the form"),
        ("seed = 1", "sead = 1", 2, "there is no member 'sead'; the members are title"),
        ("seed = 1", "seed = -1", 2, "seed is a whole number from 0"),
        ('title = "small"', "title = 5", 1, "title is a text"),
        ("repeats = 2", "repeats = true", 3, "repeats is a whole number from 1 to 1000"),
        ("repeats = 2", 'repeats = 2\norder = "best"', 4, "order is random or given, not best"),
        ("warm_up_ms = 10", "warm_up_ms = 'long'", 4, "warm_up_ms is a number"),
        ("window_ms = 40", "window_ms = 0", 5, "window_ms is a number up to 60000, above 0"),
        ("repeats = 2", 'repeats = 2\nlog = "yes"', 4, "log is true or false"),
        ("repeats = 2", 'repeats = 2\nmodel = "i386"', 4, "model is one of"),
        ('name = "Neap"\n', "", 6, "arms[0] lacks the member 'name'"),
        ('name = "Neap"', 'name = "../x"', 7, "'../x' is no name"),
        ('name = "Linux"', 'name = "Neap"', 11, "two arms are named 'Neap'; give each its own name"),
        ("cores = [1, 2]", "cores = [1, 99]", 8, "cores is 1 to 16, not 99"),
        ("cores = [1, 2]", 'cores = "two"', 8, "arms[0].cores is a list of numbers"),
        ("cores = [1, 2]", "kores = 1", 8, "arms[0] has no member 'kores'; its members are name, system"),
        ('system = "linux"', 'system = "minix"', 12, "system is one of neap, linux, linux-13, not 'minix'"),
        ('"rsc=off"', '"rsc=off",\n "tso=loud"', 10, "tso takes off copy chain, not 'loud'"),
        ('"rsc=off"', '"dca=on"', 9, "dca=on needs a CPU and a chipset with direct cache access, which no modelled machine has"),
        ("[checks]", "[[ping_pong]]\nsizes = [100]\n[checks]", 25, "sizes is a list of powers of two from 2 to 1048576"),
        ("[checks]", "[[ping_pong]]\nname = 'np'\n[checks]", 25, "'np' is no name of a NetPIPE: ping_pong or netpipe"),
        ('"rsc=off"', '"ip=10.0.0.1"', 9, "ip= is the study's own word; leave it out"),
        ('"governor=schedutil"', '"rsc=off"', 13, "Linux on the model machine takes the words"),
        ('"governor=schedutil"', '"governor=schedutil", "pstate=12"', 13, "leave one of them out"),
        ("itr_us = [16,", "irt_us = [16,", 15, "irt_us is no setting of neap; write one of itr_us, frequency_ghz"),
        ("  100]", '  "fast"]', 16, "itr_us takes 0 to 1024 on neap, not 'fast'"),
        ("  100]", "  16]", 16, "itr_us has 16 twice; leave one out"),
        (
            "frequency_ghz = [1.2, 2.9]",
            "frequency_ghz = [1.2, 5.0]",
            17,
            "frequency_ghz takes 1.2 to 3.8 in steps of 0.1, or off on e5-2690",
        ),
        ("frequency_ghz = [1.2, 2.9]", "frequency_ghz = [1.2, 2.9]\npstate = 12", 18, "pstate and frequency_ghz are one setting"),
        ("frequency_ghz = [1.2, 2.9]", "tso = 'chain'", 17, "tso is no setting of linux; write one of itr_us"),
        ("frequency_ghz = [1.2, 2.9]", "rsc = [true, false]", 17, "rsc is no setting of linux"),
        ("itr_us = [16,\n  100]", "rapl_w = 40", 15, "rapl_w takes 50 to 200 watts on e5-2690, not 40"),
        ("frequency_ghz = [1.2, 2.9]", "frequency_ghz = []", 17, "frequency_ghz is a list of 1 to 2000 values"),
        ("itr_us = [16,\n  100]", "itr_us = 1", 15, "itr_us takes 2 to 1022 or adaptive on linux, not 1"),
        ('mix = "etc"', 'mix = "web"', 20, "etc: mix is fixed, etc or usr, not 'web'"),
        ("rate = [1000, 2000]", "rate = [1000, -1]", 21, "rate is a number of requests/s"),
        ("rate = [1000, 2000]", "rate = 1000\nconections = 4", 22, "loads[0] has no member 'conections'"),
        ("rate = [1000, 2000]", "rate = 1000\nconnections = 0", 22, "etc: connections is 1 to 4096, not 0"),
        ('name = "get"', 'name = "etc"', 23, "two loads are named 'etc'; give each its own name"),
        ('name = "get"', 'name = "baseline.idle"', 23, "is no name"),
        ("rate_within = 0.02", "rate_within = 2", 25, "checks.rate_within is a share below 1"),
        ("rate_within = 0.02", "log_is_load = true", 25, "checks.log_is_load needs the log; add log = true"),
        ("rate_within = 0.02", "rates_within = 1", 25, "checks has no member 'rates_within'"),
        ('arm = "Neap"\n', 'arm = "Naep"\n', 27, "no run has arm = Naep; there are Neap Linux"),
        ("cores = 2\n", "tso = 'off'\n", 28, "leave_out has no member 'tso'; write one of arm, cores, load, rate, itr_us"),
        ("itr_us = 100", "itr_us = 99", 29, "no run has itr_us = 99; there are 16 100"),
        ("[[leave_out]]", "[[leave_out]]\nload = '*'\n[[leave_out]]", 26, "all runs are left out"),
        ("cores = [1, 2]", 'machine = "rack1"', 8, "a real machine needs its address"),
        ("cores = [1, 2]", 'address = "rack1"', 6, "address, service and client belong to an arm with machine"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, line: int, said: str):
    def start(*_):
        raise AssertionError("a worker was started")

    monkeypatch.setattr(engine, "Worker", start)
    assert old in SMALL
    path = tmp_path / "study.toml"
    path.write_text(SMALL.replace(old, new, 1))
    with pytest.raises(Failure) as caught:
        command.sweep(str(path), str(tmp_path / "out"), 1, None, "machines.toml", False, False, False)
    assert f"study.toml, line {line}: " in caught.value.message and said in caught.value.message, caught.value.message
    assert "\n" not in caught.value.message and not (tmp_path / "out").exists()


def test_settings_that_exclude_each_other_are_named():
    text = SMALL[: SMALL.index('[[arms]]\nname = "Linux"')].replace('words = ["rsc=off"]\n', "")
    text += "[settings]\nitr_us = [2, 16]\nrsc = [true, false]\n[[loads]]\nname = 'get'\n"
    with pytest.raises(UsageError, match="line 9: rsc=on needs an itr of 6 us or more, not 2us; leave this combination out by"):
        expanded(text)
    assert len(expanded(f"{text}[[leave_out]]\nitr_us = 2\nrsc = true\n")) == 3 * 2 * 2


def test_a_machine_that_no_file_describes_is_named(tmp_path: Path):
    path = tmp_path / "study.toml"
    path.write_text('[[arms]]\nname = "rack"\nmachine = "rack1"\naddress = "10.0.0.5"\n[[loads]]\nname = "get"\n')
    with pytest.raises(
        UsageError, match="line 3: the arm needs the machine 'rack1', and there is no file .*none.toml; --machines names it"
    ):
        command.sweep(str(path), str(tmp_path / "out"), 1, None, str(tmp_path / "none.toml"), False, False, False)
    (tmp_path / "none.toml").write_text('[machines.rack2]\nserial = "1"\n')
    with pytest.raises(UsageError, match="line 3: no machine 'rack1' in .*none.toml; machines: rack2"):
        command.sweep(str(path), str(tmp_path / "out"), 1, None, str(tmp_path / "none.toml"), False, False, False)


def test_a_mistake_in_a_rigs_file_is_named(tmp_path: Path):
    path = tmp_path / "rigs.toml"
    for text, said in (
        ("", "line 1: there is no rig"),
        ("[[rigs]]\nname = 'a'\njobs = 0\n", "line 3: jobs is 1 to 256, not 0"),
        ("[[rigs]]\nname = 'a'\n[[rigs]]\nname = 'a'\n", "line 4: two rigs are named 'a'"),
        ("[[rigs]]\nname = 'a'\nhost = 'b'\n", "line 3: rigs\\[0\\] has no member 'host'"),
        ("[[rig]]\nname = 'a'\n", "line 1: there is no member 'rig'"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=said):
            rigs.read(path)
    path.write_text("[[rigs]]\nname = 'a'\nmachines = ['rack1']\n")
    study = tmp_path / "study.toml"
    study.write_text(SMALL)
    with pytest.raises(UsageError, match="no rig runs the model machine of the arm"):
        command.sweep(str(study), str(tmp_path / "out"), None, str(path), "machines.toml", False, False, False)


def test_the_settings_are_those_of_the_policy():
    rows = re.findall(r"^\| `([a-z_]+),", (build.REPOSITORY / "docs/policy.md").read_text(), re.M)
    assert set(rows) == set(settings.NEAP_SETTINGS)
