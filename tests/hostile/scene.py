# SPDX-License-Identifier: BSL-1.0
"""A booted memcached, a bystander whose latency is measured, and one attack.

The bystander is `neap-load`: sets and gets on a few connections at a fixed rate, with every reply checked. It measures before, during and
after the attack. At the same time a thread, the newcomer, repeatedly opens one new connection to memcached and one to control. It sends the
token that control requires. Memory use is read through control before and after the attack.
"""

import contextlib
import json
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from linux_guest.namespace import TAP

from hostile.attack import CONTROL, MEMCACHED, Attack
from hostile.raw_peer import RawPeer, mac_of
from tools import build, control_client
from tools.errors import Failure
from tools.machine import Machine
from tools.process import spawn

NETWORK = "10.0.3"
OWN_ADDRESS, ADDRESS = f"{NETWORK}.1", f"{NETWORK}.2"
CARD_MAC = "02:82:59:90:00:03"
TOKEN = "owner-of-this-machine"
START_SECONDS = 60.0
CONNECTIONS = 8
NEWCOMER_PAUSE_SECONDS = 0.25
NEWCOMER_SECONDS = 10.0
CONTROL_ATTEMPTS = 3
SAMPLE_SECONDS = 0.3
# After an attack, heap use may exceed its earlier value by this much: connections in TIME-WAIT, free lists of cores, and the log of a run.
LEVEL_SLACK_BYTES = 2 << 20
REQUEST_SECONDS = 20
# The result includes the counters with these prefixes: refused work, and memory use.
REPORTED = ("net.", "control.", "memory.", "memcached.")
# When the attack's clients have left, these counters MUST return to their level before the attack.
RETURNED = frozenset({"memcached.reply_bytes", "memcached.held_bytes", "memcached.upload_bytes", "memcached.curr_connections"})


class Newcomer(threading.Thread):
    """Opens connections and counts those that are served and those that are not."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._end_wanted = threading.Event()
        self.served = 0
        self.failures: list[str] = []
        self.slowest_seconds = 0.0

    def run(self) -> None:
        while not self._end_wanted.wait(NEWCOMER_PAUSE_SECONDS):
            for name, ask in (("memcached", self._version), ("control", self._status)):
                began = time.monotonic()
                try:
                    ask()
                    self.served += 1
                except Exception as error:
                    self.failures.append(f"{name}: {error}")
                self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)

    def end(self) -> None:
        self._end_wanted.set()
        if self.is_alive():
            self.join(3 * NEWCOMER_SECONDS)

    @staticmethod
    def _version() -> None:
        with socket.create_connection((ADDRESS, MEMCACHED), NEWCOMER_SECONDS) as connection:
            connection.sendall(b"version\r\n")
            assert connection.recv(100).startswith(b"VERSION")

    @staticmethod
    def _status() -> None:
        assert answer("status").startswith("ok")


class Scene:
    """The target's addresses, and the peer that sends frames to the target."""

    device = TAP
    own_address = OWN_ADDRESS
    address = ADDRESS

    def __init__(self, peer: RawPeer, cores: int) -> None:
        self.peer = peer
        self.cores = cores

    @staticmethod
    def numbers(command: str) -> dict[str, int]:
        return numbers(command)

    @staticmethod
    def foreign_address(number: int) -> str:
        """Returns an address of the test network. None of these addresses (up to 200) belongs to the host's kernel."""
        return f"{NETWORK}.{50 + number}"

    @staticmethod
    def bystander_ports() -> list[int]:
        """Returns the local ports of the host's open connections to memcached (proc_pid_net(5)). MUST NOT be called more than about once a
        second. The kernel takes 5 ms to write its list of connections, and blocks the calling CPU meanwhile."""
        remote = f"{int.from_bytes(socket.inet_aton(ADDRESS), 'little'):08X}:{MEMCACHED:04X}"
        lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
        return [int(words[1].partition(":")[2], 16) for words in lines if words[2] == remote and words[3] == "01"]


def answer(command: str, attempts: int = CONTROL_ATTEMPTS) -> str:
    """Returns control's answer. A client is sure of its place for 100 ms, in which it must send the token (observe/admission.hpp). On a
    busy host it may be later, and then tries again."""
    try:
        with control_client.Control(ADDRESS, CONTROL, TOKEN, NEWCOMER_SECONDS) as connection:
            return connection.ask(command)
    except control_client.Lost:
        if attempts == 1:
            raise
        return answer(command, attempts - 1)


def numbers(command: str) -> dict[str, int]:
    """Returns the counters in the answer to control's `stats`."""
    fields = (field.partition("=") for field in answer(command).removeprefix("ok ").split("; "))
    return {name: int(value) for name, _, value in fields if value.isdecimal()}


class Sampler(threading.Thread):
    """Reads control's `stats` all the time, and keeps the largest value of each counter of `attack.bounds`. Reads nothing for an attack
    without bounds."""

    def __init__(self, attack: Attack) -> None:
        super().__init__(daemon=True)
        self._attack = attack
        self._end_wanted = threading.Event()
        self.wanted = type(attack).bounds is not Attack.bounds
        self.samples = 0
        self.failures: list[str] = []
        self.peaks: dict[str, dict[str, int]] = {}

    def run(self) -> None:
        while self.wanted and not self._end_wanted.wait(SAMPLE_SECONDS):
            try:
                stats = numbers("stats")
                for name, limit in self._attack.bounds(stats).items():
                    peak = self.peaks.setdefault(name, {"peak": 0, "limit": limit})
                    if stats[name] - limit > peak["peak"] - peak["limit"] or not self.samples:
                        peak |= {"peak": stats[name], "limit": limit}
                self.samples += 1
            except Exception as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    def end(self) -> None:
        self._end_wanted.set()
        if self.is_alive():
            self.join(3 * NEWCOMER_SECONDS)

    def findings(self) -> dict[str, int]:
        over = {f"{name} over its limit": max(0, peak["peak"] - peak["limit"]) for name, peak in self.peaks.items()}
        return over | {"samples_failed": len(self.failures), "samples_missing": int(self.wanted and self.samples == 0)}


class Load:
    """The bystander: one run of the load generator."""

    def __init__(self, seconds: float, rate: float, words: Sequence[str] = ()) -> None:
        argv = [str(build.LOAD), f"{ADDRESS}:{MEMCACHED}", "--quiet", "--json", "-", "--warm-up", "0.5", "--check-bytes"]
        argv += ["--keys", "500", "--connections", str(CONNECTIONS), "--time-out", str(REQUEST_SECONDS)]
        argv += [] if "--update" in words else ["--update", "1:1"]
        argv += ["--seconds", f"{seconds:g}", "--rate", f"{rate:g}", *words]
        # A file, because nobody reads while the load runs, and its figures may be more than a pipe holds.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - `result` closes it
        self._process = spawn(argv, stdout=self._output, stderr=subprocess.STDOUT)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def result(self) -> dict:
        """Returns the run's figures. Raises RuntimeError if the run failed."""
        self._process.wait()
        with self._output as output:
            output.seek(0)
            text = output.read().decode()
        _, brace, found = text.partition("\n{\n")
        if not brace:
            raise RuntimeError(f"the load ended with status {self._process.returncode}: {text[-500:]}")
        run = json.loads(brace + found)["runs"][0]
        requests = run["loading"]["requests"]
        return {
            "p50_us": run["loading"]["latency"]["p50_ns"] / 1000,
            "p99_us": run["loading"]["latency"]["p99_ns"] / 1000,
            "count": run["loading"]["latency"]["count"],
            "errors": requests["errors"],
            "outcomes": {name: count for name, count in {**requests["outcomes"], **requests["failures"]}.items() if count},
        }


def run(name: str, kind: type[Attack], *, cores: int, seconds: float, rate: float, calm: bool) -> dict:
    """Boots a machine, attacks it, and returns the observations. If `calm`, also measures before and after the attack."""
    result: dict = {"attack": name, "row": kind.row, "cores": cores}
    words = [kind.address_word(ADDRESS, OWN_ADDRESS), f"control_token={TOKEN}", *kind.words]
    seconds = max(seconds, kind.seconds_min)

    def measure() -> dict:
        return Load(seconds, rate, kind.load_words).result()

    with RawPeer(TAP, ADDRESS, mac_of(CARD_MAC)) as peer:
        attack = kind(Scene(peer, cores))
        image = build.image("memcached", "image")
        # A tap device with queues, as a virtio card has it, does not serve a card that has one.
        queues = max(cores, 2)
        machine = Machine(image, cores=cores, memory=kind.memory, arguments=words, net=f"tap:{TAP}", mac=CARD_MAC, card_queues=queues)
        newcomer, sampler = Newcomer(), Sampler(attack)
        with contextlib.ExitStack() as stack:
            stack.callback(attack.end_of_scene)
            stack.enter_context(machine)
            machine.wait_for_line("memcached: listening on", START_SECONDS)
            try:
                Load(1, rate, [word for word in kind.load_words if word != "--no-preload"]).result()  # fills the free lists of the heap
                attack.prepare()
                if calm:
                    result["before"] = measure()
                level = numbers("stats")
                sampler.start()
                attack.begin()
                stack.callback(attack.end)
                load = Load(seconds, rate, kind.load_words)
                newcomer.start()
                while load.running:
                    attack.press()
                result["during"] = load.result()
                counters = numbers("stats")
                newcomer.end()
                attack.after_load()
                sampler.end()
                attack.end()
                result["findings"] = attack.findings() | over_limit(attack, level, counters) | sampler.findings()
                result["bounds"] = sampler.peaks
                result["measured"] = {**attack.measured, "samples": sampler.samples}
                result["counters"] = {name: count for name, count in counters.items() if count and name.startswith(REPORTED)}
                result["memory"] = settle(level, attack)
                if calm:
                    result["after"] = measure()
            except (OSError, RuntimeError, AssertionError, Failure) as error:
                result["broken"] = f"{type(error).__name__}: {error}"
            newcomer.end()
            sampler.end()
            result["alive"] = machine.running
            result["console"] = machine.lines[-20:]
    result["newcomers"] = newcomer.served
    result["newcomers_failed"] = newcomer.failures[:5]
    result["sample_failures"] = sampler.failures[:5]
    result["newcomer_slowest_s"] = round(newcomer.slowest_seconds, 3)
    return result


def over_limit(attack: Attack, level: dict[str, int], during: dict[str, int]) -> dict[str, int]:
    """Returns the number of bytes by which the heap exceeded the attack's limit."""
    if attack.limit_bytes is None:
        return {}
    grown = during["memory.heap_used_bytes"] - level["memory.heap_used_bytes"]
    return {"bytes_over_limit": max(0, grown - attack.limit_bytes - LEVEL_SLACK_BYTES)}


def settle(level: dict[str, int], attack: Attack) -> dict:
    """Deletes the attack's items and waits until heap use and the counters of RETURNED are at `level` again. Returns the heap's use before
    and after, the difference, and the counters that have not returned."""
    with socket.create_connection((ADDRESS, MEMCACHED), NEWCOMER_SECONDS) as connection:
        connection.sendall(b"".join(b"delete %s noreply\r\n" % key for key in attack.keys) + b"version\r\n")
        connection.recv(100)
    before = used_bytes(level)
    deadline = time.monotonic() + attack.level_seconds
    while True:
        stats = numbers("stats")
        now = used_bytes(stats)
        kept = {name: stats[name] for name in RETURNED - attack.stays if stats[name] > level[name]}
        if (now <= before + LEVEL_SLACK_BYTES and not kept) or time.monotonic() > deadline:
            return {"before": before, "after": now, "left": max(0, now - before - LEVEL_SLACK_BYTES), "kept": kept}
        time.sleep(0.5)


def used_bytes(stats: dict[str, int]) -> int:
    """Returns the heap's use without the spare chunks of replies, which have a counter and a limit of their own (docs/caveats.md)."""
    return stats["memory.heap_used_bytes"] - stats["memcached.reply_spare_bytes"]
