# SPDX-License-Identifier: BSL-1.0
"""`./neap soak histories`: records what concurrent clients do with Neap's memcached on four cores, and checks that it is linearizable.

A round is a minute with a seed of its own. The program tests/system/clients/go/history records and checks; its checker is porcupine.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from tools import build, client_programs, packages, progress, qemu, run
from tools.errors import EXIT_FAILURE, Failure
from tools.foreign import parse_json
from tools.machine import LOOPBACK, Machine
from tools.process import finished

CORES, CLIENTS, KEYS = 4, 4, 20
ROUND_SECONDS = 60.0
CHECK_SECONDS = 300
START_SECONDS = 60.0
MEMCACHED_PORT = 11211
LISTENING = rf"memcached: listening on [0-9.]+:{MEMCACHED_PORT}"
# Answers that a history must have, so that it shows more than one client alone would see.
EXPECTED = [
    "set STORED", "add STORED", "add NOT_STORED", "get VALUE", "get END", "gets VALUE", "cas STORED", "cas EXISTS", "cas NOT_FOUND",
    "incr NUMBER", "incr NOT_FOUND", "delete DELETED", "delete NOT_FOUND", "touch TOUCHED", "touch NOT_FOUND",
]  # fmt: skip


@dataclass(frozen=True)
class History:
    """The checker's report on one history."""

    operations: int
    overlaps: int  # operations that began while another one on the same key was in flight
    kinds: dict[str, int]
    result: str  # Ok, Illegal, or Unknown if the checker ran out of time
    check_seconds: float
    details: list[str]

    def faults(self) -> list[str]:
        """Returns what is wrong with the server, or with the history as a test of it. Empty: nothing."""
        faults = [] if self.result == "Ok" else [f"not linearizable ({self.result})", *self.details]
        faults += [f"no operation answered {kind}" for kind in EXPECTED if kind not in self.kinds]
        return faults if self.overlaps else [*faults, "no two operations on one key overlapped"]

    def summary(self) -> str:
        return f"{self.operations} operations, {self.overlaps} of them concurrent on their key, checked in {self.check_seconds:.1f} s"


def record(host: str, port: int, seconds: float, seed: int) -> History:
    """Records a history of CLIENTS clients on a memcached, and checks it."""
    words = ["--address", f"{host}:{port}", "--seconds", str(seconds), "--seed", str(seed)]
    words += ["--clients", str(CLIENTS), "--keys", str(KEYS)]
    return report([*words, "--limit", str(CHECK_SECONDS)], seconds)


def report(words: list[str], seconds: float = 0) -> History:
    """Runs the checker. Raises Failure if it breaks off."""
    done = finished([*client_programs.go("history"), *words], seconds + 2 * CHECK_SECONDS)
    if done.returncode != 0:
        raise Failure(f"the history ended: {done.stderr.strip()[-500:] or f'status {done.returncode}'}")
    fields = parse_json(done.stdout)
    assert isinstance(fields, dict), done.stdout
    kinds = fields["kinds"]
    return History(fields["operations"], fields["overlaps"], kinds, fields["result"], fields["check_seconds"], fields.get("details", []))


def soak(minutes: float) -> int:
    """Records and checks histories until the time is over. Returns 1 after the first one that is not linearizable."""
    packages.require("histories")
    run.require_build_packages()
    qemu.command()
    build.build("image", ["memcached.elf"])
    build.build_soft_card()
    left_seconds, rounds = 60 * minutes, 0
    machine = Machine(build.image("memcached"), cores=CORES, memory="512M", forward=[(0, MEMCACHED_PORT)], arguments=["memory=256M"])
    with machine:
        machine.wait_for_line(LISTENING, START_SECONDS)
        while rounds == 0 or left_seconds >= 1:
            seconds = min(ROUND_SECONDS, left_seconds)
            seed = random.randrange(1 << 31)
            history = record(LOOPBACK, machine.port(MEMCACHED_PORT), seconds, seed)
            rounds, left_seconds = rounds + 1, left_seconds - seconds
            faults = history.faults()
            progress.say(
                f"neap: soak: history {rounds}, seed {seed}, {seconds:.0f} s: {'FAILED' if faults else 'passed'}: {history.summary()}"
            )
            if faults:
                print("\n".join([json.dumps(history.kinds), *faults]), flush=True)
                return EXIT_FAILURE
    print(f"{rounds} histories are linearizable", flush=True)
    return 0
