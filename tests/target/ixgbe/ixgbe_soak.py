# SPDX-License-Identifier: BSL-1.0
"""`./neap soak driver`: a random setting every 100 ms and faults at random while frames of all kinds flow, for as long as is asked for.

NEAP_SOAK_SECONDS says how long, NEAP_SOAK_SEED which settings, faults and frames. The verdict is one line in NEAP_SOAK_VERDICT.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import contextmanager
from pathlib import Path

from tests.target.ixgbe.ixgbe_echo_test import Echo, booted
from tests.target.ixgbe.mixed_traffic import MixedTraffic, Said

SETTINGS = (
    *("rx_ring=256", "rx_ring=1024", "tx_ring=256", "tx_ring=1024", "rx_budget=4", "rx_budget=64", "pthresh=8", "pthresh=32"),
    *("hthresh=1", "hthresh=8", "wthresh=0", "wthresh=1", "wthresh=8", "head_write_back=on", "head_write_back=off", "rsc=on", "rsc=off"),
    *("promiscuous=on", "promiscuous=off", "preset=study", "preset=default", "steer=udp:9,2", "steer=off,2", "itr=0", "itr=16", "itr=200"),
    *("poll_budget=100", "poll_budget=0", "idle=poll", "idle=halt", "flow_control=both", "flow_control=receive", "flow_control=off"),
)
# What each leaves behind is ended by `off` or by the next of its kind; {n} is a random queue, {seed} a random number.
FAULTS = (
    *("off", "drop rx next 5", "drop tx next 5", "drop both chance 0.01 {seed}", "corrupt rx next 3", "corrupt both chance 0.01 {seed}"),
    *("reorder both chance 0.02 {seed}", "delay rx 3000000 chance 0.02 {seed}", "delay tx 2000000 chance 0.02 {seed}", "late 200000"),
    *("lose {n} next 3", "lose any chance 0.1 {seed}", "hang tx {n}", "hang rx {n}", "ecc"),
)
FLAPS = ("link flap 20000000", "link flap 100000000 2", "link flap 2000000 5")
# A question in five is lost, as frames around it are: so a setting changes every 100 ms.
PERIOD_SECONDS = 0.08
PERIODS_PER_FAULT = 10
# Changes that wait for each other; more are not asked for. None answered for so long: those were lost.
MOST_ASKED_AHEAD = 6
PATIENCE_SECONDS = 0.5
FRAMES_OF_A_HANG = 200
FRAMES_UNTIL_FOUND = 5000
WORDS = "frame_bytes=9014 compare=off"
BASE = ("itr=16", "idle=halt", "poll_budget=0", "preset=default", "flow_control=off")


class Soak:
    """One machine under traffic, settings and faults, and the verdict at its end."""

    def __init__(self, echo: Echo, said: Said, seed: int):
        self.echo = echo
        self.said = said
        self.chance = random.Random(seed)
        self.traffic = MixedTraffic(echo, seed, self.let_go)
        self.faults = self.flaps = 0
        self._hung: dict[str, tuple[int, int]] = {}  # since this many frames and restarts

    def fault(self, text: str) -> None:
        self.said.line(f"    fault {text}")
        self.echo.machine.card_command(text if text.startswith("link") else f"fault {text}")
        self.faults += not text.startswith(("off", "free"))
        self.flaps += text.startswith("link")
        if text == "off":
            self._hung.clear()
        if text.startswith("hang"):
            self._hung[text.removeprefix("hang ")] = self.traffic.sent, self.said.restarts

    def let_go(self) -> None:
        """A queue hangs until the driver has found it (only a transmit queue can be) or many frames have gone: control may depend on it."""
        for queue, (sent, restarts) in list(self._hung.items()):
            found = queue.startswith("tx") and self.said.restarts > restarts
            if found or self.traffic.sent - sent > (FRAMES_UNTIL_FOUND if queue.startswith("tx") else FRAMES_OF_A_HANG):
                self._hung.pop(queue)
                self.fault(f"free {queue}")

    def random_fault(self) -> None:
        if self.chance.random() < 0.3:
            self.fault("off")
        text = self.chance.choice(FLAPS) if self.chance.random() < 0.2 else self.chance.choice(FAULTS)
        self.fault(text.format(n=self.chance.randrange(4), seed=self.chance.randrange(1 << 30)))

    def finish(self) -> str:
        """Ends faults and run; raises if a frame was lost that nobody admits, doubled, changed or late unasked, or a buffer leaks."""
        self.fault("off")
        for text in BASE:
            self.traffic.set(text)
        self.traffic.settle()
        statistics = self.echo.machine.card_command("statistics")
        rules = self.echo.machine.card_command("violations")
        account = self.traffic.account(statistics, self.said, self.echo.finish())
        verdict = (
            f"{account}; unexplained {max(0, account.unexplained)}; {self.said.changes} changes, {self.said.refused} refused, "
            f"{self.faults} faults, {self.flaps} of the link; started anew: {self.said.restarts} queues, {self.said.resets} times the card"
        )
        assert rules["total"] == 0, rules
        assert account.unexplained <= 0, verdict
        spoilt = sum(statistics.get(f"fault.{way}_corrupted", 0) for way in ("rx", "tx"))
        assert self.traffic.spoilt <= spoilt, f"{self.traffic.spoilt} answers are wrong, {spoilt} frames were spoilt; {verdict}"
        late = sum(statistics.get(f"fault.{way}_{what}", 0) for way in ("rx", "tx") for what in ("reordered", "delayed"))
        assert self.traffic.late <= late, f"{self.traffic.late} answers are late, {late} frames were made late; {verdict}"
        return verdict


@contextmanager
def told_in_full(said: Said):
    """A failure tells what happened before it."""
    try:
        yield
    except BaseException:  # a time-out of pytest is no Exception
        print("\n".join(said.last))
        raise


def test_soak_of_random_settings_and_faults_loses_nothing_unsaid() -> None:
    seed = int(os.environ.get("NEAP_SOAK_SEED", "1"))
    said = Said()
    with told_in_full(said), booted(cores=4, words=WORDS, card_options=("--strict",), on_line=said.line) as echo:
        soak = Soak(echo, said, seed)
        start = told_at = time.monotonic()
        end = start + float(os.environ.get("NEAP_SOAK_SECONDS", "10"))
        due = start + PERIOD_SECONDS
        told = lost = periods = 0
        while (now := time.monotonic()) < end:
            soak.traffic.send(5)
            soak.let_go()
            if soak.traffic.told != told:
                told, told_at = soak.traffic.told, now
            elif now - told_at > PATIENCE_SECONDS:
                lost = soak.traffic.asked - told  # on the wire, or with a queue that hung
            if now < due:
                continue
            due += PERIOD_SECONDS  # what was missed while traffic stood still is made up for
            if periods % PERIODS_PER_FAULT == 0:
                soak.random_fault()
            if soak.traffic.asked - told - lost < MOST_ASKED_AHEAD:
                soak.traffic.ask(soak.chance.choice(SETTINGS))
            periods += 1
        took = time.monotonic() - start
        rate = 1000 * took / max(1, said.changes + said.refused)
        verdict = f"seed {seed}, {took:.0f} s, a change every {rate:.0f} ms: {soak.finish()}"
    if path := os.environ.get("NEAP_SOAK_VERDICT"):
        Path(path).write_text(verdict + "\n")
    print(verdict)
