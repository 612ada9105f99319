# SPDX-License-Identifier: BSL-1.0
"""The plan of one run of `./neap soak model`: everything follows from its seed.

A plan is an Experiment: a small load on a machine of several cores, with faults of the card, the cable and the network, cores that are
late, clients that end connections, and commands to control in the middle. All faults end at a planned moment. After it the clients open all
connections again, and each of their requests has to be answered.

A card that is removed (`away`, `unplug`) is not drawn: the driver reports a removed card and does not start it again (docs/82599.md).
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

from tools.model.experiment import Experiment

MODEL = "e5-2690"
REQUESTS = 1000
RECOVERY_REQUESTS = 200
KEYS = 200
CORES = 4
WATCHDOG_MS = 500
INCIDENTS_MAX = 12
# Four cores that poll execute 7 instructions in a nanosecond, so a virtual second takes the host minutes. In a plan with this word the
# cores poll from the window's begin, not from the start, and all plans with polling are short.
POLL = "idle=poll"
POLLING_SPAN_MS_MAX = 20
# Then the cores halt as soon as control accepts it. Before, the last delayed frames arrive (5 ms) and the last held cores go on (5 ms): an
# earlier `idle,poll` that was executed after `idle,halt` would last.
HALT = "require idle,halt"
HALT_DELAY_MS = 10
# Most runs execute less than 100 million instructions, and those with polling less than a thousand. More than this is no end at all.
INSTRUCTIONS_MAX = 10_000_000_000
# Words of the image's command line.
BOOT_WORDS = (
    *("idle=halt", "idle=c1", "idle=c6", "idle=c7", "idle=deepest", POLL, "idle=monitor", "idle=menu", "itr=0", "itr=8us", "itr=100us"),
    *("poll_budget=20us", "tso=copy", "tso=chain", "rx_ring=64", "rx_ring=256", "tx_ring=128", "rx_budget=4", "head_write_back=on"),
    *("flow_control=both", "preset=study", "tx_interrupt=on", "pstate=12", "pstate=20", "rsc=on", "cores=2"),
    *("monitor_state=c3", "monitor_state=deepest", "adaptive_poll=20us", "adaptive_poll=200us", "wake_up_times=c1:2us,c6:20us"),
)
# Lines for control while the load runs. {core} is a random core. Some are refused, if they conflict with others.
COMMANDS = (
    *("itr,0us", "itr,8us", "itr,16us", "itr,50us,{core}", "itr,200us", "itr,1000us,{core}"),
    *("idle,halt", "idle,c1", "idle,c3,{core}", "idle,c6", "idle,c7", "idle,poll,{core}", "idle,poll", "idle,monitor", "idle,deepest"),
    *("idle,menu", "idle,menu,{core}", "idle,monitor,{core}", "monitor_state,c1", "monitor_state,c6", "monitor_state,c7,{core}"),
    *("adaptive_poll,0us", "adaptive_poll,5us", "adaptive_poll,100us", "adaptive_poll,1000us,{core}"),
    *("poll_budget,0us", "poll_budget,50us", "poll_budget,500us,{core}", "pstate,12", "pstate,29,{core}", "pstate,off", "power_limit,60W"),
    *("turbo,off", "turbo,on", "tso,off", "tso,copy", "tso,chain,{core}", "rx_ring,256", "rx_ring,1024", "tx_ring,256", "tx_ring,1024"),
    *("rx_budget,4", "rx_budget,64", "pthresh,8", "hthresh,1", "wthresh,8", "wthresh,0", "head_write_back,on", "head_write_back,off"),
    *("tx_interrupt,on", "tx_interrupt,off"),
    *("rsc,on", "rsc,off", "promiscuous,on", "promiscuous,off", "preset,study", "preset,default", "flow_control,both", "flow_control,off"),
    *("stats", "cores", "timers", "card", "policy", "dmesg"),
)
# Faults that may end or delay a request for longer than its time limit; each lasts until the calm. {n}: a queue, {chance}: a probability.
CARD_FAULTS = (
    *(
        "drop rx next 5",
        "drop tx next 5",
        "drop both chance {chance}",
        "corrupt rx next 3",
        "corrupt tx next 3",
        "corrupt both chance {chance}",
    ),
    *("reorder both chance {chance}", "delay rx 300000 chance {chance}", "delay tx 200000 chance {chance}", "delay both 5000000 next 4"),
    *("late 20000", "late 200000", "lose {n} next 3", "lose any chance {chance}", "lose any all", "hang tx {n}", "hang rx {n}"),
    *("stale-head 50000 chance {chance}", "ecc"),
)
CABLE_FAULTS = ("link flap 2000000 3", "link flap 200000 2", "link flap 20000000 1", "link down")
NETWORK_FAULTS = (
    *("network loss={chance}", "network duplicate={chance}", "network corrupt={chance}", "network reorder={chance},jitter_ns=300000"),
    "network loss={chance},duplicate={chance},corrupt={chance},reorder={chance}",
)
# Faults that no request is lost by: frames come late or twice, and interrupts are replaced by the next frame's.
HARMLESS = ("network duplicate={chance}", "network reorder={chance},jitter_ns=20000", "late 20000")


@dataclasses.dataclass(frozen=True)
class Plan:
    """harmless: no fault of the plan ends a request, except by a client that ends its connection. added: faults that were not drawn."""

    seed: int
    harmless: bool
    experiment: Experiment
    added: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The plan as text."""
        wanted = self.experiment
        stall = f"cores held every {wanted.stall[0]} us for up to {wanted.stall[1]} us" if wanted.stall else "no core held"
        return [
            f"seed {self.seed}: {wanted.cores} cores, {wanted.load} at {wanted.rate:.0f} requests/s for {wanted.window_ms:g} ms, {stall}"
            f"{', harmless' if self.harmless else ''}",
            f"words: {' '.join(wanted.arguments)}; world: {' '.join(wanted.world_options)}",
            *wanted.faults,
        ]


class Chance:
    """Random choices. Only `random()` is used, whose sequence is the same in all versions of Python."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def real(self, low: float, high: float) -> float:
        return low + (high - low) * self._random.random()

    def number(self, low: int, high: int) -> int:
        """From `low` to `high`, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def happens(self, probability: float) -> bool:
        return self._random.random() < probability

    def of(self, choices: Sequence):
        return choices[int(self._random.random() * len(choices))]

    def scale(self, low: float, high: float) -> float:
        """Evenly distributed logarithm."""
        return low * (high / low) ** self._random.random()


def plan(seed: int, cores: int = CORES, added: Sequence[str] = ()) -> Plan:
    """`added`: faults after the drawn ones. They do not end with them."""
    chance = Chance(seed)
    rate = float(round(chance.scale(10_000, 300_000)))
    window_ms = round(1e3 * REQUESTS / rate, 3)
    harmless = chance.happens(0.2)
    connections, clients = chance.number(8, 40), chance.number(3, 12)
    options = ["--strict=stop", "--check-bytes", "--clients", str(clients), "--recovery", str(RECOVERY_REQUESTS)]
    options += ["--time-out", "5s" if harmless else chance.of(("300ms", "1s", "3s"))]
    protocol = chance.of(("text", "binary"))
    network = f"delay_ns={chance.number(500, 20_000)},rate_mbps={chance.of((1000, 10_000))}"
    if not harmless and chance.happens(0.2):
        network += f",loss={chance.scale(0.001, 0.05):.5f},reorder={chance.real(0, 0.2):.5f}"
    boot_words = _boot_words(chance)
    faults = _faults(chance, harmless, window_ms, cores, boot_words)
    mean_us = round(chance.scale(100, 5000))
    wanted = Experiment(
        MODEL,
        load=chance.of(("etc", "etc", "usr", "fixed")),
        rate=rate,
        window_ms=window_ms,
        warm_up_ms=1.0,
        cores=cores,
        connections=connections,
        keys=KEYS,
        protocol=protocol,
        depth=chance.of((1, 1, 4, 16)),
        seed=seed,
        arguments=[f"watchdog={WATCHDOG_MS}ms", *(word for word in boot_words if word != POLL)],
        faults=[*faults, *added],
        world_options=[*options, "--network", network],
        stall=(mean_us, max(1, round(mean_us * chance.real(0.05, 1.0)))) if chance.happens(0.6) else None,
        instructions_max=INSTRUCTIONS_MAX,
    )
    return Plan(seed, harmless, wanted, tuple(added))


def _boot_words(chance: Chance) -> list[str]:
    drawn = {}
    for _ in range(chance.number(0, 3)):
        word = chance.of(BOOT_WORDS)
        drawn.setdefault(word.partition("=")[0], word)
    # The card's rule: coalesced segments wait 4 us for each other (docs/policy.md).
    if drawn.get("rsc") and drawn.get("itr") == "itr=0":
        del drawn["itr"]
    return list(drawn.values())


def _faults(chance: Chance, harmless: bool, window_ms: float, cores: int, boot_words: Sequence[str]) -> list[str]:
    """Words of --fault: what happens, and then the end of all of it."""

    def drawn(words: str) -> str:
        return words.format(chance=f"{chance.scale(0.001, 0.3):.5f}", n=chance.number(0, cores - 1), core=chance.number(0, cores - 1))

    span_ms = window_ms * chance.real(0.5, 1.5)
    if chance.happens(0.15):
        span_ms = chance.scale(100, 3000)
    kinds: list[Callable[[], str]] = [
        lambda: "control " + drawn(chance.of(COMMANDS)),
        lambda: f"{chance.of(('close', 'reset'))} {chance.number(0, 1000)}",
    ]
    if harmless:
        kinds.append(lambda: drawn(chance.of(HARMLESS)))
        kinds[0] = lambda: "control " + drawn(chance.of([line for line in COMMANDS if not line.startswith(_STOPS_QUEUES)]))
    else:
        kinds += [lambda: drawn(chance.of(CARD_FAULTS))] * 3 + [lambda: drawn(chance.of(NETWORK_FAULTS))] * 2
        kinds.append(lambda: chance.of(CABLE_FAULTS))
    incidents = [(chance.real(0, 1), chance.of(kinds)()) for _ in range(chance.number(1, INCIDENTS_MAX))]
    early = []
    if not harmless and chance.happens(0.15):
        words = chance.of(("link flap 2000000 3", "lose any next 2", "ecc", "drop both next 2"))
        early.append(f"at {chance.number(10, 100)}ms {words}")
    if not harmless and chance.happens(0.1):
        early.append("eeprom")
    ends = ["off", "link up", "network"]
    halt = []
    if POLL in boot_words:
        incidents.insert(0, (0, "control idle,poll"))
    if any(words.startswith("control idle,poll") for _, words in incidents):
        span_ms = min(span_ms, POLLING_SPAN_MS_MAX)
        halt.append(f"at window+{(span_ms + HALT_DELAY_MS) * 1e3:.0f}us {HALT}")
    incidents += [(1, words) for words in ends]
    return [*early, *(f"at window+{part * span_ms * 1e3:.0f}us {words}" for part, words in incidents), *halt]


# Commands that stop queues cost frames. An `itr` below 6 us turns RSC off.
_STOPS_QUEUES = ("rx_ring", "tx_ring", "pthresh", "hthresh", "wthresh", "head_write_back", "rsc", "preset", "itr,0us")
