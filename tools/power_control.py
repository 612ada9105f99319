# SPDX-License-Identifier: BSL-1.0
"""`./neap power`: switches a rack machine by its management processor (BMC), with ipmitool (IPMI) or curl (Redfish).

The machines' file names each machine's BMC (tools/boot_machines.py). The BMC's password comes from a file or from the environment. ipmitool
gets the password in its environment and curl on its standard input, so the password appears in no list of processes and in no output.

A BMC may be hostile. So its answers are limited in size, and a path in an answer is used in a URL only if it is valid.
"""

import json
import os
import re
import resource
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from tools import boot_machines
from tools.boot_machines import Bmc
from tools.errors import Failure, UsageError
from tools.foreign import is_word, parse_json

ACTIONS = ("cycle", "on", "off", "status")
TOOL_SECONDS = 60
# Largest size of a tool's output. The output goes to a file, so that the kernel can enforce this limit.
OUTPUT_BYTES = 1 << 20
PASSWORD_BYTES = 1024
# Bounds of the list of reset types. The schema has about ten.
TYPES_MAX = 32
TYPE_CHARACTERS = 40
SYSTEM_PATH = re.compile(r"/redfish/[A-Za-z0-9_./~-]{1,200}")
ON, OFF = "on", "off"
# The result of a cycle by a controller that has none: the machine is reset, and its power stays on. In IPMI 2.0 (28.3, Chassis Control) the
# power cycle is optional and the hard reset is not. Redfish lists the types that a system accepts.
RESET_INSTEAD = "reset, because its controller has no power cycle"
# ipmitool's texts for the completion codes C1h, C9h, CCh, D5h and D6h (IPMI 2.0, table 5-2) of a controller that lacks a function.
LACKING = (
    "Invalid command",
    "Parameter out of range",
    "Invalid data field in request",
    "Command not supported in present state",
    "Cannot execute command, command disabled",
)


def power(action: str, name: str, machines: str) -> int:
    """Switches the machine, and prints the result in one line. `machines`: the path of the machines' file."""
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
        # A machine that is off is switched on instead of cycled, because some BMCs would leave it off.
        wanted = ON if action == "cycle" and state == OFF else action
        if wanted == state:
            print(f"{machine.name} is {state} already")
            return 0
        done = control.switch(wanted)
    except Failure as failure:
        hidden = [line.replace(secret, "***") for line in (failure.message, failure.hint or "", *failure.details)]
        raise Failure(f"{machine.name}: {hidden[0]}", hidden[1] or None, hidden[2:]) from None
    print(f"{machine.name}: {done}")
    return 0


def _password(bmc: Bmc) -> str:
    if bmc.password_variable:
        secret = os.environ.get(bmc.password_variable, "")
        where = f"the environment has no {bmc.password_variable}"
    else:
        try:
            with open(bmc.password_file, "rb") as data:
                secret = data.read(PASSWORD_BYTES).decode().partition("\n")[0]
        except (OSError, ValueError):
            raise Failure(f"cannot read the password file {bmc.password_file}") from None
        where = f"{bmc.password_file} has no password in its first line"
    if not secret:
        raise Failure(where)
    if not secret.isprintable():
        raise Failure("the password holds control characters")
    return secret


class _Ipmi:
    """ipmitool, over the network (IPMI 2.0, RMCP+)."""

    def __init__(self, bmc: Bmc, secret: str):
        # With -E the password is in the environment. ipmitool uses IPMITOOL_PASSWORD if it is set, else IPMI_PASSWORD (ipmi_main.c). Older
        # versions read only IPMI_PASSWORD. So both are set, and the user's environment has no effect.
        self._argv = ["ipmitool", "-I", "lanplus", "-H", bmc.address, "-U", bmc.user, "-E", "chassis", "power"]
        self._environment = {**os.environ, "IPMITOOL_PASSWORD": secret, "IPMI_PASSWORD": secret}

    def state(self) -> str:
        output = self._ask("status").lower()[-80:]
        for state in (ON, OFF):
            if output.strip().endswith(f"is {state}"):
                return state
        raise Failure(f"ipmitool says '{output.strip()}' for the state of power")

    def switch(self, action: str) -> str:
        """Performs `action`, or a reset if the controller has no cycle. Returns what was done."""
        try:
            self._ask(action)
        except Failure as failure:
            if action != "cycle" or not failure.message.endswith(LACKING):
                raise
            self._ask("reset")
            return RESET_INSTEAD
        return action

    def _ask(self, action: str) -> str:
        return _output([*self._argv, action], "", self._environment)


class _Redfish:
    """curl for Redfish (DMTF DSP0266): reads the collection of systems, then sends ComputerSystem.Reset."""

    ACTION = "#ComputerSystem.Reset"
    TYPES = {"cycle": "PowerCycle", "on": "On", "off": "ForceOff"}
    # A service that does not list its types may be older than PowerCycle; ForceRestart is in the first version of the schema.
    WITHOUT_CYCLE = "ForceRestart"

    def __init__(self, bmc: Bmc, secret: str):
        quoted = f"{bmc.user}:{secret}".replace("\\", "\\\\").replace('"', '\\"')
        self._configuration = f'user = "{quoted}"\n'
        self._base = f"https://{bmc.address}"
        self._options = ["--insecure"] if bmc.insecure else []
        self._system = ""
        self._types: list[str] = []

    def state(self) -> str:
        members = self._ask("/redfish/v1/Systems").get("Members")
        if not isinstance(members, list) or len(members) != 1 or not isinstance(members[0], dict):
            raise Failure("its Redfish service has not exactly one system")
        self._system = str(members[0].get("@odata.id", ""))
        if not SYSTEM_PATH.fullmatch(self._system) or ".." in self._system:
            raise Failure("its Redfish service names no path of its system")
        system = self._ask(self._system)
        self._types = self._listed_types(system)
        state = str(system.get("PowerState", "")).lower()
        if state not in (ON, OFF):
            raise Failure(f"its Redfish service says '{state[:80]}' for the state of power")
        return state

    def switch(self, action: str) -> str:
        """Sends the reset type of `action`, or a restart if the system lists no power cycle. Returns what was done. MUST follow state()."""
        kind = self.TYPES[action]
        if action == "cycle" and kind not in self._types:
            kind = self.WITHOUT_CYCLE
        if self._types and kind not in self._types:
            raise Failure(f"its Redfish service lists no {kind}", f"it accepts {', '.join(self._types)}")
        self._ask(
            f"{self._system}/Actions/ComputerSystem.Reset",
            ["--header", "Content-Type: application/json", "--data", json.dumps({"ResetType": kind})],
        )
        return RESET_INSTEAD if kind == self.WITHOUT_CYCLE else action

    def _listed_types(self, system: dict) -> list[str]:
        """Returns the reset types that the system lists (DSP0266, "Allowable values"); empty if it lists none."""
        actions = system.get("Actions")
        reset = actions.get(self.ACTION) if isinstance(actions, dict) else None
        types = reset.get("ResetType@Redfish.AllowableValues") if isinstance(reset, dict) else None
        return [word for word in types if is_word(word, TYPE_CHARACTERS)][:TYPES_MAX] if isinstance(types, list) else []

    def _ask(self, path: str, options: list[str] | None = None) -> dict:
        # Without --globoff, a path with [1-1000000] would cause a million requests.
        argv = ["curl", "--globoff", "--silent", "--show-error", "--fail", "--max-time", str(TOOL_SECONDS - 10), *self._options]
        output = _output([*argv, "--config", "-", *(options or []), self._base + path], self._configuration, None)
        try:
            answer = parse_json(output) if output.strip() else {}
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Failure(f"its Redfish service does not answer {path} with JSON")
        return answer


def _output(argv: list[str], given: str, environment: dict[str, str] | None) -> str:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES, OUTPUT_BYTES))

    try:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            text = given.encode(errors="surrogateescape")
            done = subprocess.run(argv, input=text, stdout=out, stderr=err, timeout=TOOL_SECONDS, env=environment, preexec_fn=bound)
            output, complaint = (_content(file) for file in (out, err))
    except FileNotFoundError:
        raise Failure(f"missing program: {argv[0]}", f"apt-get install {argv[0]}") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"{argv[0]} gave no answer within {TOOL_SECONDS} s") from None
    if done.returncode == -signal.SIGXFSZ or len(output) >= OUTPUT_BYTES:
        raise Failure(f"{argv[0]} printed more than {OUTPUT_BYTES} bytes")
    if done.returncode != 0:
        lines = (complaint.strip() or output.strip() or f"status {done.returncode}").splitlines()
        raise Failure(f"{argv[0]}: {lines[-1]}")
    return output


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(OUTPUT_BYTES).decode(errors="replace")
