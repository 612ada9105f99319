# SPDX-License-Identifier: BSL-1.0
"""`./neap load`: builds the load generator (bench/load) and runs it against the target that the user names.

The load generator parses its own options. The launcher builds it. If the target is an application that `./neap run` runs on this host, the
launcher takes the address from that run's description. By default, the load generator then also starts the machine's log before the
measured window, marks it, and stops it afterwards. Finally the load generator replaces this process (exec), so it gets Ctrl-C and gives the
exit status. With `./neap run APP --load`, the load generator is a child of the launcher instead.
"""

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools import build, control_client, machine, machine_registry, packages, progress, run_directory
from tools.cli import Parser
from tools.control_client import fields_of
from tools.errors import Failure, UsageError
from tools.log import collect
from tools.process import spawn

# Ports in the guest, by application. Other applications are loaded as memcached.
GUEST_PORT = 11211
GUEST_PORTS = {"memcached": GUEST_PORT, "tpcc": GUEST_PORT, "webserver": 8080}
HTTP = "http"
WEB_SERVER = "webserver"
TPCC = "tpcc"  # an application, its preset and the protocol: each get runs a transaction
PRESETS = {"memcached": ("etc", "usr", "fixed"), TPCC: (TPCC,), WEB_SERVER: (HTTP, "hello", "study", "json")}
# After Ctrl-C the load generator waits for requests in flight and prints the results so far. The launcher kills it after this time.
END_SECONDS = 20.0
LISTEN_SECONDS = 120.0
# An emulated machine is slow, and its network loses segments. TCP sends a lost segment again after one second, and once more three seconds
# later. This time limit is longer than several such waits.
TIME_OUT_SECONDS = 20
JSON, HISTOGRAM, LOG = "load.json", "load.hlog", "log"

_OURS = Parser(add_help=False, allow_abbrev=False)
_OURS.add_argument("--pid", type=int)
_OURS.add_argument("--no-control", action="store_true")
# The load generator's options that the launcher also uses.
_THEIRS = Parser(add_help=False, allow_abbrev=False)
_THEIRS.add_argument("--control")
_THEIRS.add_argument("--control-token-file")
_THEIRS.add_argument("--log-from")
_THEIRS.add_argument("--protocol")
_THEIRS.add_argument("-h", "--help", "-V", "--version", dest="help", action="store_true")


def load(words: Sequence[str]) -> int:
    """Replaces this process by the load generator. `words`: the load generator's arguments, and the launcher's --pid N and --no-control.
    Raises Failure if the load generator cannot start."""
    ours, words = _OURS.parse_known_args(words)
    words = spelled_out(words)
    theirs, _ = _THEIRS.parse_known_args(words)
    place = _place_of_target(words)
    if ours.pid is not None and place is None:
        raise UsageError("--pid chooses among applications that run here", "./neap load APP --pid N")
    if place is not None:
        run = machine_registry.find(words[place], ours.pid)
        assert run is not None
        words[place] = f"{machine.LOOPBACK}:{service_port(run)}"
        if run.application == WEB_SERVER and not theirs.protocol:
            words += ["--protocol", HTTP]
        if run.application == TPCC and not any(word.startswith("--preset") for word in words):
            words += ["--preset", TPCC]
        if not ours.no_control and run.control_port is not None and theirs.control is None and not theirs.help:
            words += control_words(run.control_port, theirs.control_token_file, theirs.log_from)
    if not build.has_programs():
        packages.require("card", "rust")
    program = build.build_load()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [str(program), *words])


def spelled_out(words: list[str]) -> list[str]:
    """Returns the words with `--protocol http` in place of a leading `http`. If no target follows, it is the web server."""
    if words[:1] != [HTTP]:
        return words
    rest = words[1:]
    return [*([WEB_SERVER] if not rest or rest[0].startswith("-") else []), *rest, "--protocol", HTTP]


def _place_of_target(words: Sequence[str]) -> int | None:
    """Returns the position of the target: the first or the last word, if it is an application's name. Otherwise returns None."""
    names = {
        *build.applications(),
        *(run.application for run in machine_registry.machines(run_directory.run_base(), run_directory.RUN_PREFIX)),
    }
    places = [0, len(words) - 1] if words else []
    return next((place for place in places if words[place] in names), None)


def service_port(run: machine_registry.Running) -> int:
    """Returns the port of this host that reaches a run's application. Raises Failure if there is none or more than one."""
    usual = GUEST_PORTS.get(run.application, GUEST_PORT)
    if usual in run.ports:
        return run.ports[usual]
    served = [host for host in run.ports.values() if host != run.control_port]
    if len(served) == 1:
        return served[0]
    which = "none of its ports leads there" if not served else "which of its ports is meant is not clear"
    raise Failure(f"{run.application} (process {run.pid}): {which}", "./neap load HOST:PORT names one")


def control_words(port: int, token_file: str | None, log_from: str | None = None) -> list[str]:
    """Returns `--control` for a machine on this host. If its log is already running, the load marks that log, but MUST NOT stop it.
    `log_from`: the user's --log-from."""
    with control_client.Control(machine.LOOPBACK, port, control_client.read_token(token_file)) as connection:
        answer = connection.ask("status")
    if not answer.startswith("ok"):
        raise Failure(
            f"control on {machine.LOOPBACK}:{port} answered {answer!r}",
            "--no-control does without the log, --control-token-file unlocks it",
        )
    if fields_of(answer).get("logging") == "on":
        if log_from not in (None, "never"):
            raise UsageError(f"--log-from {log_from}: a run of its log is on", "./neap ctl APP stop ends it, --log-from never marks it")
        progress.say("neap: a run of its log is on; it goes on, and is not stopped after the load")
        return ["--control", f"{machine.LOOPBACK}:{port}", *([] if log_from else ["--log-from", "never"])]
    return ["--control", f"{machine.LOOPBACK}:{port}"]


@dataclasses.dataclass(frozen=True)
class Offer:
    """The settings of `./neap run APP --load`."""

    preset: str
    rate: float = 1000.0
    seconds: float = 5.0
    out: Path | None = None

    @property
    def protocol(self) -> str:
        """The protocol that the preset implies."""
        if self.preset == TPCC:
            return TPCC
        return HTTP if self.preset in PRESETS[WEB_SERVER] else "text"

    def check(self, served: str | None = None) -> None:
        """Raises UsageError for a wrong setting. `served`: a name of PRESETS; None: the application may be any."""
        known = PRESETS[served] if served else [preset for presets in PRESETS.values() for preset in presets]
        if self.preset not in known:
            raise UsageError(f"--load takes {', '.join(known)}, not '{self.preset}'")
        for name, value in (("--rate", self.rate), ("--load-seconds", self.seconds)):
            if not 0 < value <= 1e9:
                raise UsageError(f"{name} takes a number above 0, not {value:g}")
        if self.out is not None and self.out.exists() and any(self.out.iterdir() if self.out.is_dir() else [self.out]):
            raise UsageError(f"--load-out: {self.out} is not an empty folder", "choose another one")


def offer(wanted: Offer, vm: machine.Machine, application: str, served_control: int | None) -> int:
    """Waits until the application listens, and runs the load generator against it. Returns the load generator's status. `served_control`:
    the guest's control port. If `wanted` names a folder, the machine's log is written to it. If interrupted, the load generator prints its
    results so far."""
    line = vm.wait_for_line(rf"^{re.escape(application)}: listening on ", LISTEN_SECONDS)
    listening = re.search(r":(\d+)", line.partition("listening on")[2])
    guest_port = int(listening[1]) if listening else GUEST_PORTS.get(application, GUEST_PORT)
    try:
        port = vm.port(guest_port)
    except KeyError:
        raise Failure(
            f"{application} listens on port {guest_port}, which is not forwarded", f"--forward {guest_port}:{guest_port}"
        ) from None
    argv = [str(build.LOAD), f"{machine.LOOPBACK}:{port}", "--preset", wanted.preset]
    argv += ["--rate", f"{wanted.rate:.15g}", "--seconds", f"{wanted.seconds:.15g}", "--time-out", str(TIME_OUT_SECONDS)]
    if served_control is not None:
        argv += control_words(vm.port(served_control), None)
    if wanted.out is not None:
        wanted.out.mkdir(parents=True, exist_ok=True)
        argv += ["--json", str(wanted.out / JSON), "--histogram", str(wanted.out / HISTOGRAM)]
    status = _run_to_its_end(argv)
    if status == 0 and wanted.out is not None and served_control is not None:
        address = (machine.LOOPBACK, vm.port(served_control))
        status = collect.collect(address, wanted.out / LOG, live=False, token=None, as_json=False, patience_seconds=END_SECONDS)
    return status


def _run_to_its_end(argv: Sequence[str]) -> int:
    """Runs the load generator as a child. Only this process gets an interrupt, and forwards it to the child."""
    child = spawn(argv)
    try:
        return child.wait()
    except BaseException:
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(END_SECONDS)
        raise
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
