# SPDX-License-Identifier: BSL-1.0
"""Tests of `neap power` with a fake ipmitool and a fake curl on PATH, which record their arguments."""

import json
import os
from pathlib import Path

import pytest

from tools import power_control
from tools.errors import Failure, UsageError

SECRET = 'correct horse\\battery"staple'

IPMITOOL = """\
#!/bin/sh
echo "$@" >>"$LOG/asked"
[ "$IPMI_PASSWORD" = "$EXPECTED" ] || { echo "Error: wrong password $IPMI_PASSWORD" >&2; exit 1; }
for action; do :; done
case "$action" in
status) echo "Chassis Power is $(cat "$LOG/power")" ;;
cycle) echo "Chassis Power Control: Cycle" ;;
on | off) echo "$action" >"$LOG/power"; echo "Chassis Power Control: $action" ;;
esac
"""

CURL = """\
#!/bin/sh
echo "$@" >>"$LOG/asked"
cat >>"$LOG/given"
for url; do :; done
case "$url" in
*/redfish/v1/Systems) echo '{"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]}' ;;
*/redfish/v1/Systems/1) echo "{\\"PowerState\\": \\"$(cat "$LOG/power")\\"$(cat "$LOG/types" 2>/dev/null)}" ;;
*/Actions/ComputerSystem.Reset) : ;;
*) echo "curl: (22) 404" >&2; exit 22 ;;
esac
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("ipmitool", IPMITOOL), ("curl", CURL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path))
    monkeypatch.setenv("EXPECTED", SECRET)
    monkeypatch.setenv("BMC_PASSWORD", SECRET)
    (tmp_path / "password").write_text(f"{SECRET}\n")
    (tmp_path / "power").write_text("on\n")
    (tmp_path / "machines.toml").write_text(
        "[machines.a]\nserial='a'\n"
        f"[machines.a.bmc]\naddress='10.0.0.1'\nuser='admin'\npassword_file='{tmp_path}/password'\n"
        "[machines.b]\nserial='b'\n[machines.b.bmc]\naddress='bmc.example'\nuser='root'\nprotocol='redfish'\n"
        "password_variable='BMC_PASSWORD'\n[machines.c]\nserial='c'\n"
    )
    return tmp_path


def _asked(place: Path) -> list[str]:
    return (place / "asked").read_text().splitlines()


def _power(place: Path, action: str, name: str) -> int:
    return power_control.power(action, name, str(place / "machines.toml"))


def test_ipmi_cycles_a_machine_that_is_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _power(place, "cycle", "a") == 0
    start = "-I lanplus -H 10.0.0.1 -U admin -E chassis power"
    assert _asked(place) == [f"{start} status", f"{start} cycle"]
    assert capsys.readouterr().out == "a: cycle\n"


def test_a_machine_that_is_off_is_switched_on_in_place_of_a_cycle(place: Path) -> None:
    (place / "power").write_text("off\n")
    assert _power(place, "cycle", "a") == 0
    assert _asked(place)[-1].endswith("power on")


def test_a_state_that_already_holds_is_not_requested(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _power(place, "on", "a") == 0
    assert len(_asked(place)) == 1 and "on already" in capsys.readouterr().out
    assert (_power(place, "status", "a"), capsys.readouterr().out) == (0, "a is on\n")


def test_redfish_resets_the_one_system(place: Path) -> None:
    (place / "power").write_text("On\n")
    assert _power(place, "cycle", "b") == 0
    last = _asked(place)[-1]
    assert last.endswith("https://bmc.example/redfish/v1/Systems/1/Actions/ComputerSystem.Reset")
    assert json.dumps({"ResetType": "ForceRestart"}) in last
    assert "--insecure" not in last


# ipmitool's text is that of ipmi_chassis.c, with the texts of completion codes in ipmi_strings.c.
@pytest.mark.parametrize("code", ["Invalid command", "Invalid data field in request", "Command not supported in present state"])
def test_a_controller_without_a_cycle_resets_the_machine(place: Path, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    refusal = f'cycle) echo "Set Chassis Power Control to Cycle failed: {code}" >&2; exit 1 ;;'
    reset = 'reset) echo "Chassis Power Control: Reset" ;;'
    (place / "ipmitool").write_text(IPMITOOL.replace('cycle) echo "Chassis Power Control: Cycle" ;;', f"{refusal}\n{reset}"))
    assert _power(place, "cycle", "a") == 0
    assert [line.split()[-1] for line in _asked(place)] == ["status", "cycle", "reset"]
    assert capsys.readouterr().out == "a: reset, because its controller has no power cycle\n"


@pytest.mark.parametrize("code", ["Insufficient privilege level", "Node busy", "Timeout"])
def test_a_cycle_that_fails_otherwise_is_no_reset(place: Path, code: str) -> None:
    refusal = f'cycle) echo "Set Chassis Power Control to Cycle failed: {code}" >&2; exit 1 ;;'
    (place / "ipmitool").write_text(IPMITOOL.replace('cycle) echo "Chassis Power Control: Cycle" ;;', refusal))
    with pytest.raises(Failure, match=f"failed: {code}"):
        _power(place, "cycle", "a")
    assert [line.split()[-1] for line in _asked(place)] == ["status", "cycle"]


@pytest.mark.parametrize(
    ("types", "sent", "printed"),
    [
        ('["On", "ForceOff", "PowerCycle", "ForceRestart"]', "PowerCycle", "b: cycle\n"),
        ('["On", "ForceOff", "ForceRestart"]', "ForceRestart", f"b: {power_control.RESET_INSTEAD}\n"),
        ('"PowerCycle"', "ForceRestart", f"b: {power_control.RESET_INSTEAD}\n"),
    ],
)
def test_redfish_cycles_the_power_where_its_system_lists_that(
    place: Path, types: str, sent: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "power").write_text("On\n")
    listed = f', "Actions": {{"#ComputerSystem.Reset": {{"ResetType@Redfish.AllowableValues": {types}}}}}'
    (place / "types").write_text(listed)
    assert _power(place, "cycle", "b") == 0
    assert json.dumps({"ResetType": sent}) in _asked(place)[-1]
    assert capsys.readouterr().out == printed


def test_a_redfish_system_without_any_restart_is_one_error(place: Path) -> None:
    (place / "power").write_text("On\n")
    (place / "types").write_text(', "Actions": {"#ComputerSystem.Reset": {"ResetType@Redfish.AllowableValues": ["On", "ForceOff"]}}')
    with pytest.raises(Failure, match=r"b: its Redfish service lists no ForceRestart \(it accepts On, ForceOff\)"):
        _power(place, "cycle", "b")
    assert "Reset" not in _asked(place)[-1]


def test_the_password_is_in_no_argument_and_in_nothing_printed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _power(place, "status", "a")
    (place / "power").write_text("Off\n")
    _power(place, "on", "b")
    assert SECRET not in "\n".join(_asked(place))
    # curl gets the password as a quoted string, as its configuration syntax requires.
    assert (place / "given").read_text().splitlines()[0] == 'user = "root:correct horse\\\\battery\\"staple"'
    (place / "password").write_text("wrong secret\n")
    with pytest.raises(Failure) as refused:
        _power(place, "status", "a")
    assert "wrong secret" not in refused.value.report() and "***" in refused.value.report()
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err


def test_a_missing_part_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="there is no 'explode'"):
        _power(place, "explode", "a")
    with pytest.raises(Failure, match="names no bmc for c"):
        _power(place, "on", "c")
    with pytest.raises(Failure, match="no machine 'd'"):
        _power(place, "on", "d")
    monkeypatch.delenv("BMC_PASSWORD")
    with pytest.raises(Failure, match="the environment has no BMC_PASSWORD"):
        _power(place, "on", "b")
    (place / "password").write_text("\n")
    with pytest.raises(Failure, match="no password in its first line"):
        _power(place, "on", "a")
    (place / "password").unlink()
    with pytest.raises(Failure, match="cannot read the password file"):
        _power(place, "on", "a")


@pytest.mark.parametrize("name", ["IPMITOOL_PASSWORD", "IPMI_PASSWORD"])
def test_ipmitool_gets_the_machines_password_despite_the_environment(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # ipmitool takes IPMITOOL_PASSWORD if it is set, else IPMI_PASSWORD (ipmi_main.c, option -E). Older versions read only IPMI_PASSWORD.
    real = IPMITOOL.replace('"$IPMI_PASSWORD" =', '"${IPMITOOL_PASSWORD-$IPMI_PASSWORD}" =')
    for text in (real, IPMITOOL):
        (place / "ipmitool").write_text(text)
        monkeypatch.setenv(name, "of another machine")
        assert _power(place, "status", "a") == 0
    assert capsys.readouterr().out == "a is on\n" * 2


@pytest.mark.parametrize(
    "path", ["/redfish/\\u0000", "/redfish/\\ud800", "/redfish/v1/[1-100000]", "/redfish/../../x", "/redfish/a b", "/redfish/" + "a" * 300]
)
def test_a_bmc_names_a_path_of_redfish_or_is_refused(place: Path, path: str) -> None:
    (place / "curl").write_text(CURL.replace('/redfish/v1/Systems/1"}', path.replace("\\", "\\\\") + '"}'))
    with pytest.raises(Failure, match="names no path of its system"):
        _power(place, "status", "b")
    assert len(_asked(place)) == 1


@pytest.mark.parametrize("answer", ["yes [", "printf '[%.0s' $(seq 100000)", "printf '1e999'", "printf '\\377'"])
def test_a_bmc_that_answers_too_much_or_nonsense_is_one_line(place: Path, answer: str) -> None:
    (place / "curl").write_text(f"#!/bin/sh\n{answer}\n")
    with pytest.raises(Failure, match="printed more than|does not answer") as refused:
        _power(place, "status", "b")
    assert "\n" not in refused.value.report()


def test_text_of_a_bmc_moves_no_cursor(place: Path) -> None:
    (place / "ipmitool").write_text("#!/bin/sh\nprintf '\\033[2Jis gone'\n")
    with pytest.raises(Failure) as refused:
        _power(place, "status", "a")
    assert "\\x1b[2j" in refused.value.report() and "\x1b" not in refused.value.report()


def test_a_password_file_without_end_is_refused(place: Path) -> None:
    (place / "password").unlink()
    (place / "password").symlink_to("/dev/zero")
    with pytest.raises(Failure, match="control characters"):
        _power(place, "status", "a")
