# SPDX-License-Identifier: BSL-1.0
"""`./neap soak network`: the network's stack on bad links, under floods and many connections, and its fuzzers.

All parts but the fuzzers run on the model machine in virtual time, so a finding repeats with its seed:

  rounds       transfers over links with random impairments, damaged frames among them; then no byte may be held and no connection be open
  flood        a million SYNs beside a client with one request in flight, which keeps FLOOD_RATIO_MIN of its rate; memory stays flat;
               once with a core that sleeps between requests, and once with a core that polls
  churn        100,000 connections are opened, used and closed; then the heap is as after the first of them, and none is open
  crowd        10,000 open connections on a machine of 256 MB, each of which answers; then the heap is as before, and none is open
  fuzz         net/fuzz_* in slices of time, until all executions of equal programs are EXECUTIONS; a file keeps their number

Flood, churn and crowd have a fixed size and run once. Rounds and slices of the fuzzers then alternate until the time is over, with one
round and one slice at least. `--part` chooses parts. Without `rounds` the fuzzers end when there are EXECUTIONS.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools import build, fuzz_soak, progress, run
from tools.bench import modelled
from tools.errors import EXIT_FAILURE, Failure, UsageError
from tools.fuzz_soak import Fuzzer
from tools.model import experiment, transfer
from tools.model.campaign_checks import statistics
from tools.model.campaign_plan import Chance
from tools.model.experiment import Experiment, Load, System
from tools.model.results import Result
from tools.model.transfer import Idle, Network, Setting, Transfer

MODEL = "e5-2690"
TRANSFERS_A_ROUND = 8
MTUS = (1500, 1500, 1500, 576)
ROUND_WORDS = ("tso=off", "tso=copy", "tso=chain", "itr=2us", "itr=100us", "idle=c1")

FLOOD_SYNS = 1_000_000
FLOOD_RATE = 100_000
FLOOD_RATIO_MIN = 0.8
FLOOD_REQUESTS_RATE = 2000
# The image's idle state. An undisturbed core with `menu` sleeps in C7 between requests and needs 20 us to wake up. A flood keeps it out of
# C7, so the client even gains by it, whatever the SYNs cost. With `poll` the core is awake in both runs.
FLOOD_ARMS = {"asleep": "idle=menu", "polling": "idle=poll"}
CLIENT_PORT = 11211
# The forged sources are in no network of the guest. Its answers go by this gateway, a client, which drops them.
GATEWAY = "10.0.0.16"
# Half-open connections are bounded, and so is the memory that they hold (net/stack_cookies.cpp).
FLOOD_HEAP_BYTES_MAX = 4 << 20

CHURN_CONNECTIONS = 4000
CHURN_LOADS = 25
CROWD_CONNECTIONS = 10_000
CROWD_CLIENTS = 100
CROWD_MEMORY = "256M"
# Less than a byte for each connection of churn. The first load has filled the pools of spare objects, so nothing else may grow.
LEFT_HEAP_BYTES_MAX = 64 << 10
# While only the connection of `_look` and control's are open. The clients close first, so the machine has no connection in TIME-WAIT.
LEFT = {
    "net.connections_open": 2,
    "memcached.curr_connections": 1,
    "net.half_open": 0,
    "memcached.held_bytes": 0,
    "memcached.reply_bytes": 0,
    "control.held_bytes": 0,
    "memory.heap_refused": 0,
}

EXECUTIONS = 100_000_000
# In a slice, the fuzzer that makes nearly all executions has all cores but one for the whole time, and the last core after the others.
SLICE_SECONDS = 300
OTHERS_SECONDS = 20
MAIN_FUZZER = "fuzz_tcp_connection"
# Between the seeds of one slice's runs. The seeds of slices follow each other.
LANE_SEEDS = 1 << 40
FUZZERS = re.compile(r"fuzz_(stack|segments|shared_\w+|tcp\w*|ip\w*|network\w*)")
COUNT = re.compile(r"^(?P<name>\w+): (?P<count>\d+) ")


def soak(minutes: float, parts: Sequence[str] = ()) -> int:
    """Runs all parts, or those of `parts`. After a finding, continues and returns 1 at the end. Raises UsageError for an unknown part."""
    known = ("rounds", *PARTS, "fuzz")
    if unknown := [name for name in parts if name not in known]:
        raise UsageError(f"--part takes {', '.join(known)}, not '{unknown[0]}'")
    chosen = set(parts or known)
    deadline = time.monotonic() + 60 * minutes
    seed = int(os.environ.get("NEAP_SOAK_SEED") or int.from_bytes(os.urandom(4), "little"))
    with_memcached = [name for name in PARTS if name in chosen]
    if with_memcached or "rounds" in chosen:
        modelled.prepare(*(["memcached"] if with_memcached else []))
    server = transfer.neap_system() if "rounds" in chosen else None
    memcached = System(build.image("memcached", "image")) if with_memcached else None
    fuzzers = fuzz_soak.find(FUZZERS.fullmatch) if "fuzz" in chosen else []
    tally = Tally(build.BUILD / "network-fuzz.json")
    findings = [one for name in with_memcached for one in report(name, functools.partial(PARTS[name], memcached))]
    for number in itertools.count(seed) if chosen & {"rounds", "fuzz"} else ():
        if server is not None:
            findings += report(f"round {number}", functools.partial(play_round, number, server))
        if "fuzz" in chosen:
            findings += report(f"fuzz, seed {number}", functools.partial(fuzz_slice, fuzzers, number, tally))
        if time.monotonic() >= deadline or (server is None and tally.total(fuzzers) >= EXECUTIONS):
            break
    print(f"{len(findings)} findings; {tally.total(fuzzers)} executions of {len(fuzzers)} fuzzers, {EXECUTIONS} wanted", flush=True)
    return EXIT_FAILURE if findings else 0


def report(name: str, part: Callable[[], list[str]]) -> list[str]:
    """Runs a part and prints its findings. A part that fails is a finding."""
    with progress.step(f"soak network: {name}"):
        try:
            found = part()
        except Failure as failure:
            found = [failure.message, *(f"    {line}" for line in failure.details[-20:])]
    for line in found:
        print(f"neap: soak: network: {name}: FINDING: {line}", flush=True)
    return found[:1]


# --- Rounds ------------------------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Round:
    setting: Setting
    steps: list[Transfer | Idle]


def round_of(seed: int) -> Round:
    """The same for the same seed."""
    chance = Chance(seed)
    steps: list[Transfer | Idle] = []
    for number in range(TRANSFERS_A_ROUND):
        network = Network(
            rate_mbps=chance.of((10, 100, 1000)),
            delay_ms=chance.of((0.0, 0.0, 1.0, 10.0, 50.0)),
            loss=chance.of((0.0, 0.001, 0.01, 0.05)),
            duplicate=chance.of((0.0, 0.0, 0.02)),
            corrupt=chance.of((0.0, 0.001, 0.01)),
            reorder=chance.of((0.0, 0.0, 0.05)),
            jitter_ms=chance.scale(0.1, 20.0),
            queue_frames=chance.of((20, 100, 1000)),
        )
        count = round(chance.scale(1e3, 2e6))
        steps.append(Transfer(f"{seed}.{number}", network, chance.happens(0.5), count, seed=chance.number(1, 1 << 30)))
    steps.append(Idle(f"{seed}.idle"))
    words = [*transfer.NEAP_WORDS, chance.of(ROUND_WORDS)]
    # The last of two equal words counts neither here nor in the image.
    names = [word.partition("=")[0] for word in words]
    kept = [word for at, word in enumerate(words) if names[at] not in names[at + 1 :]]
    return Round(Setting(MODEL, seed=seed, mtu=chance.of(MTUS), congestion=chance.of(transfer.CONGESTION), neap_words=kept), steps)


def play_round(seed: int, server: System) -> list[str]:
    wanted = round_of(seed)
    with tempfile.TemporaryDirectory(prefix="neap-network-") as scratch:
        result = transfer.run(wanted.setting, server, wanted.steps, Path(scratch))
    steps = {step.name: step for step in wanted.steps}
    found = [f"{name}: {one.failed}; {steps[name]}" for name, one in result.outcomes.items() if one.failed]
    return [*found, *([f"again: NEAP_SOAK_SEED={seed} ./neap soak network"] if found else [])]


# --- Floods and crowds -------------------------------------------------------------------------------------------------------------------
def flood(memcached: System) -> list[str]:
    """A client with one request in flight has a rate of one over its mean latency."""
    seconds = FLOOD_SYNS / FLOOD_RATE
    flooding = [f"at window+0ns flood {FLOOD_RATE} {FLOOD_SYNS} {CLIENT_PORT}"]
    found = []
    for arm, idle in FLOOD_ARMS.items():
        calm, _ = _one_client(memcached, idle, 1.0, [])
        flooded, trial = _one_client(memcached, idle, seconds, flooding)
        found += [f"{arm}: {line}" for line in flood_findings(arm, calm, flooded, trial)]
    return found


def flood_findings(arm: str, calm: Result, flooded: Result, texts: Sequence[str]) -> list[str]:
    """`texts`: control's statistics before and after the log's begin and end, of the flooded run."""
    found = [f"{one.world['failed']} requests failed" for one in (calm, flooded) if one.world["failed"]]
    calm_us, flooded_us = (one.world["latency_ns"]["mean"] / 1e3 for one in (calm, flooded))
    ratio = calm_us / flooded_us
    before, *_, after = (statistics(text) for text in texts)
    syns = flooded.world["frames"]["to_card"]
    growth = after["memory.heap_used_bytes"] - before["memory.heap_used_bytes"]
    progress.say(
        f"neap: soak: network: flood, {arm}: {FLOOD_SYNS} SYNs at {FLOOD_RATE}/s, the client keeps {ratio:.3f} of its rate (mean latency "
        f"{calm_us:.2f} us, now {flooded_us:.2f} us), the heap has grown by {growth} bytes, {after.get('net.half_open', 0)} connections "
        "are half open"
    )
    if syns < FLOOD_SYNS:
        found.append(f"only {syns} frames came to the card")
    if ratio < FLOOD_RATIO_MIN:
        found.append(f"a client has {ratio:.2f} of its undisturbed rate, less than {FLOOD_RATIO_MIN}")
    if growth > FLOOD_HEAP_BYTES_MAX:
        found.append(f"the heap has grown by {growth} bytes, more than {FLOOD_HEAP_BYTES_MAX}")
    return found


def _one_client(memcached: System, idle: str, seconds: float, faults: Sequence[str]) -> tuple[Result, list[str]]:
    wanted = Experiment(
        MODEL,
        load="fixed",
        rate=FLOOD_REQUESTS_RATE,
        window_ms=1000 * seconds,
        connections=1,
        depth=1,
        keys=100,
        value_bytes=100,
        arguments=[*(word for word in transfer.NEAP_WORDS if not word.startswith("idle=")), idle],
        faults=faults,
        world_options=("--arrivals", "fixed", "--recovery", "1"),
    )
    with tempfile.TemporaryDirectory(prefix="neap-flood-") as scratch:
        result = experiment.run(wanted, dataclasses.replace(memcached, gateway=GATEWAY), Path(scratch))
    return result, list(result.world["trial"]["statistics"])


def churn(memcached: System) -> list[str]:
    loads = [_used_once(f"churn{number}", CHURN_CONNECTIONS) for number in range(CHURN_LOADS)]
    loads = [loads[0], _look("warm"), *loads[1:], _look("end")]
    return _connections("churn", memcached, loads, CHURN_LOADS * CHURN_CONNECTIONS, "512M")


def crowd(memcached: System) -> list[str]:
    loads = [_used_once("first", CHURN_CONNECTIONS), _look("warm"), _used_once("crowd", CROWD_CONNECTIONS), _look("end")]
    return _connections("crowd", memcached, loads, CHURN_CONNECTIONS + CROWD_CONNECTIONS, CROWD_MEMORY)


def _used_once(name: str, connections: int) -> Load:
    """A request takes the connection that has waited longest. So 1.2 requests a connection use each of them."""
    rate = 40_000
    options = {"time-out": "2s"}
    return Load(
        name,
        "fixed",
        rate,
        connections,
        depth=1,
        keys=100,
        value_bytes=100,
        arrivals="fixed",
        warm_up_ms=1,
        window_ms=1200 * connections / rate,
        options=options,
    )


def _look(name: str) -> Load:
    """Takes control's statistics while its connection and control's are the only ones."""
    return Load(name, "fixed", 1000, connections=1, depth=1, keys=100, value_bytes=100, window_ms=10, settings=["stats"])


def _connections(name: str, memcached: System, loads: Sequence[Load], wanted: int, memory: str) -> list[str]:
    setting = Experiment(MODEL, arguments=transfer.NEAP_WORDS, memory=memory, world_options=("--clients", str(CROWD_CLIENTS)))
    with tempfile.TemporaryDirectory(prefix="neap-crowd-") as scratch:
        worlds = [result.world for result in experiment.run_sequence(setting, loads, memcached, Path(scratch))]
    texts = [text for load, world in zip(loads, worlds, strict=True) if load.settings for text in world["answers"]]
    return [*connection_findings(worlds, wanted + len(texts)), *left_findings(name, texts)]


def connection_findings(worlds: Sequence[Mapping], wanted: int) -> list[str]:
    """`worlds`: the report of each load, all of one boot."""
    found = []
    for at, one in enumerate(worlds):
        if one["failed"] or one["answered"] != one["offered"]:
            found.append(f"load {at}: {one['offered']} requests, {one['answered']} were answered, {one['failed']} failed")
        if trouble := {name: one["connections"][name] for name in ("refused", "lost") if one["connections"][name]}:
            found.append(f"load {at}: connections: {trouble}")
    opened = sum(one["connections"]["opened"] for one in worlds)
    if opened < wanted:
        found.append(f"{opened} connections were opened, not {wanted}")
    return found


def left_findings(name: str, texts: Sequence[str]) -> list[str]:
    """`texts`: control's statistics when the connections of the first load are closed, and when those of the last load are."""
    before, after = (statistics(text) for text in texts)
    growth, held = (after[key] - before[key] for key in ("memory.heap_used_bytes", "net.held_bytes"))
    progress.say(
        f"neap: soak: network: {name}: {after['net.connections_accepted']} connections were accepted, {after['net.connections_open']} are "
        f"open, since the first load the heap has grown by {growth} bytes"
    )
    found = [f"{key} is {after.get(key)} at the end, not {wanted}" for key, wanted in LEFT.items() if after.get(key) != wanted]
    if held > 0:
        found.append(f"connections hold {held} bytes more than after the first load")
    if growth > LEFT_HEAP_BYTES_MAX:
        found.append(f"the heap has grown by {growth} bytes since the first load, more than {LEFT_HEAP_BYTES_MAX}")
    return found


PARTS: dict[str, Callable[[System], list[str]]] = {"flood": flood, "churn": churn, "crowd": crowd}


# --- Fuzzers -----------------------------------------------------------------------------------------------------------------------------
class Tally:
    """Executions of each fuzzer, in a file that outlives the run. A program that was built anew, and differs, begins at 0."""

    def __init__(self, path: Path):
        self._path = path
        try:
            self._counts: dict[str, int] = {str(name): int(count) for name, count in json.loads(path.read_text()).items()}
        except (OSError, ValueError, AttributeError, TypeError):
            self._counts = {}

    def add(self, fuzzer: Fuzzer, count: int) -> None:
        self._counts[self._key(fuzzer)] = self.of(fuzzer) + count
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._counts, indent=1) + "\n")

    def of(self, fuzzer: Fuzzer) -> int:
        return self._counts.get(self._key(fuzzer), 0)

    def total(self, fuzzers: Sequence[Fuzzer]) -> int:
        return sum(map(self.of, fuzzers))

    @staticmethod
    def _key(fuzzer: Fuzzer) -> str:
        return f"{fuzzer.name} {hashlib.sha256(Path(fuzzer.argv[0]).read_bytes()).hexdigest()[:16]}"


def fuzz_slice(fuzzers: Sequence[Fuzzer], seed: int, tally: Tally) -> list[str]:
    """All fuzzers for a slice of time. Does nothing when there have been enough executions."""
    if not fuzzers:
        return ["there is no fuzzer of the network"]
    if tally.total(fuzzers) >= EXECUTIONS:
        return []
    lanes = os.cpu_count() or 1
    others = [(fuzzer, OTHERS_SECONDS, seed) for fuzzer in fuzzers if fuzzer.name != MAIN_FUZZER]
    jobs = []
    for fuzzer in fuzzers:
        if fuzzer.name == MAIN_FUZZER:
            jobs += [(fuzzer, SLICE_SECONDS, seed + lane * LANE_SEEDS) for lane in range(1, lanes)]
            jobs += [(fuzzer, max(OTHERS_SECONDS, SLICE_SECONDS - OTHERS_SECONDS * len(others)), seed)]
    passed = run.in_lanes(lambda job: (job[0], fuzz_soak.run_one(*job)), [*jobs, *others], lanes)
    for fuzzer, summary in passed:
        if summary is not None:
            tally.add(fuzzer, executions(summary, fuzzer.name))
    return [f"{fuzzer.name} has a finding" for fuzzer, summary in passed if summary is None]


def executions(summary: str, name: str) -> int:
    """The number of cases in a fuzzer's last line. Raises Failure if there is none."""
    match = COUNT.match(summary)
    if match is None or match["name"] != name:
        raise Failure(f"{name} printed no number of executions")
    return int(match["count"])
