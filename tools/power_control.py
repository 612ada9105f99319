# SPDX-License-Identifier: BSL-1.0
"""`./neap power`: switches a rack machine by its management processor (BMC), with the tools that everybody uses for that.

The machines' file says which BMC is whose (tools/boot_machines.py). Its password comes from a file or from the environment, is given
to ipmitool by its environment and to curl by its standard input, and so is seen in no list of processes and in nothing printed.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tools import boot_machines
from tools.boot_machines import Bmc
from tools.errors import Failure, UsageError

ACTIONS = ("cycle", "on", "off", "status")
TOOL_SECONDS = 60
ON, OFF = "on", "off"


def power(action: str, name: str, machines: str) -> int:
    """Does it and prints a line. `machines`: the file."""
    if action not in ACTIONS:
        raise UsageError(f"power: there is no '{action}'", f"choose from {', '.join(ACTIONS)}")
    if not Path(machines).exists():
        raise Failure(f"there is no file {machines}", "--machines FILE names the one that describes the machines (docs/booting.md)")
    machine = boot_machines.read(Path(machines)).find(name)
    if machine.bmc is None:
        hint = f"add [machines.{machine.name}.bmc] with address, user and password_file"
        raise Failure(f"{machines} names no bmc for {machine.name}", hint)
    secret = _password(machine.bmc)
    try:
        control = (_Ipmi if machine.bmc.protocol == "ipmi" else _Redfish)(machine.bmc, secret)
        state = control.state()
        if action == "status":
            print(f"{machine.name} is {state}")
            return 0
        # A machine that is off cannot be cycled, and is left off by some BMCs then.
        wanted = ON if action == "cycle" and state == OFF else action
        if wanted == state:
            print(f"{machine.name} is {state} already")
            return 0
        control.switch(wanted)
    except Failure as failure:
        hidden = [line.replace(secret, "***") for line in (failure.message, failure.hint or "", *failure.details)]
        raise Failure(f"{machine.name}: {hidden[0]}", hidden[1] or None, hidden[2:]) from None
    print(f"{machine.name}: {'on' if wanted == ON and action == 'cycle' else action}")
    return 0


def _password(bmc: Bmc) -> str:
    if bmc.password_variable:
        secret = os.environ.get(bmc.password_variable, "")
        where = f"the environment has no {bmc.password_variable}"
    else:
        try:
            secret = Path(bmc.password_file).read_text().partition("\n")[0]
        except (OSError, UnicodeDecodeError):
            raise Failure(f"cannot read the password file {bmc.password_file}") from None
        where = f"{bmc.password_file} has no password in its first line"
    if not secret:
        raise Failure(where)
    if any(ord(character) < 0x20 for character in secret):
        raise Failure("the password holds control characters")
    return secret


class _Ipmi:
    """By ipmitool, over the network (IPMI 2.0, RMCP+)."""

    def __init__(self, bmc: Bmc, secret: str):
        # -E: the password is in the environment.
        self._argv = ["ipmitool", "-I", "lanplus", "-H", bmc.address, "-U", bmc.user, "-E", "chassis", "power"]
        self._environment = {**os.environ, "IPMI_PASSWORD": secret}

    def state(self) -> str:
        said = self._ask("status").lower()
        for state in (ON, OFF):
            if said.strip().endswith(f"is {state}"):
                return state
        raise Failure(f"ipmitool says '{said.strip()[:80]}' for the state of power")

    def switch(self, action: str) -> None:
        self._ask(action)

    def _ask(self, action: str) -> str:
        return _output([*self._argv, action], "", self._environment)


class _Redfish:
    """By curl (DMTF DSP0266: the systems' collection, then ComputerSystem.Reset)."""

    RESETS = {"cycle": "ForceRestart", "on": "On", "off": "ForceOff"}

    def __init__(self, bmc: Bmc, secret: str):
        quoted = f"{bmc.user}:{secret}".replace("\\", "\\\\").replace('"', '\\"')
        self._configuration = f'user = "{quoted}"\n'
        self._base = f"https://{bmc.address}"
        self._options = ["--insecure"] if bmc.insecure else []
        self._system = ""

    def state(self) -> str:
        members = self._ask("/redfish/v1/Systems").get("Members")
        if not isinstance(members, list) or len(members) != 1 or not isinstance(members[0], dict):
            raise Failure("its Redfish service has not exactly one system")
        self._system = str(members[0].get("@odata.id", ""))
        if not self._system.startswith("/redfish/"):
            raise Failure("its Redfish service names no path of its system")
        state = str(self._ask(self._system).get("PowerState", "")).lower()
        if state not in (ON, OFF):
            raise Failure(f"its Redfish service says '{state[:80]}' for the state of power")
        return state

    def switch(self, action: str) -> None:
        body = json.dumps({"ResetType": self.RESETS[action]})
        self._ask(f"{self._system}/Actions/ComputerSystem.Reset", ["--header", "Content-Type: application/json", "--data", body])

    def _ask(self, path: str, options: list[str] | None = None) -> dict:
        argv = ["curl", "--silent", "--show-error", "--fail", "--max-time", str(TOOL_SECONDS - 10), *self._options, "--config", "-"]
        said = _output([*argv, *(options or []), self._base + path], self._configuration, None)
        try:
            answer = json.loads(said) if said.strip() else {}
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Failure(f"its Redfish service does not answer {path} with JSON")
        return answer


def _output(argv: list[str], given: str, environment: dict[str, str] | None) -> str:
    try:
        done = subprocess.run(argv, input=given, capture_output=True, text=True, errors="replace", timeout=TOOL_SECONDS, env=environment)
    except FileNotFoundError:
        raise Failure(f"missing program: {argv[0]}", f"apt-get install {argv[0]}") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"{argv[0]} gave no answer within {TOOL_SECONDS} s") from None
    if done.returncode != 0:
        complaint = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()
        raise Failure(f"{argv[0]}: {complaint[-1]}")
    return done.stdout
