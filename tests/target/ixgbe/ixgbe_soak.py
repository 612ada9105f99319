# SPDX-License-Identifier: BSL-1.0
"""`./neap soak driver`: a random setting every 100 ms and random faults while frames of all kinds flow, for the requested time.

NEAP_SOAK_SECONDS sets the time, NEAP_SOAK_SEED the choice of settings, faults and frames. The verdict is one line in the file that
NEAP_SOAK_VERDICT names.
"""

import os
import random
import time
from contextlib import contextmanager
from pathlib import Path

from tests.target.ixgbe.echo import Echo, booted
from tests.target.ixgbe.mixed_traffic import ConsoleCounts, MixedTraffic

SETTINGS = (
    *("rx_ring=256", "rx_ring=1024", "tx_ring=256", "tx_ring=1024", "rx_budget=4", "rx_budget=64", "pthresh=8", "pthresh=32"),
    *("hthresh=1", "hthresh=8", "wthresh=0", "wthresh=1", "wthresh=8", "head_write_back=on", "head_write_back=off", "rsc=on", "rsc=off"),
    *("tx_interrupt=on", "tx_interrupt=off"),
    *("promiscuous=on", "promiscuous=off", "preset=study", "preset=default", "steer=udp:9,2", "steer=off,2", "itr=0", "itr=16", "itr=200"),
    *("poll_budget=100", "poll_budget=0", "idle=poll", "idle=halt", "flow_control=both", "flow_control=receive", "flow_control=off"),
)
# Each fault lasts until `off` or the next fault of the same kind. {n} is a random queue, {seed} a random number.
FAULTS = (
    *("off", "drop rx next 5", "drop tx next 5", "drop both chance 0.01 {seed}", "corrupt rx next 3", "corrupt both chance 0.01 {seed}"),
    *("reorder both chance 0.02 {seed}", "delay rx 3000000 chance 0.02 {seed}", "delay tx 2000000 chance 0.02 {seed}", "late 200000"),
    *("lose {n} next 3", "lose any chance 0.1 {seed}", "hang tx {n}", "hang rx {n}", "ecc"),
)
FLAPS = ("link flap 20000000", "link flap 100000000 2", "link flap 2000000 5")
# A request for a setting is sent every 80 ms. Faults lose one request in five, so a setting changes every 100 ms on average.
PERIOD_SECONDS = 0.08
PERIODS_PER_FAULT = 10
# The maximum number of pending requests. After PATIENCE_SECONDS without an answer, they count as lost.
REQUESTS_AHEAD_MAX = 6
PATIENCE_SECONDS = 0.5
FRAMES_OF_A_HANG = 200
FRAMES_UNTIL_FOUND = 5000
WORDS = "frame_bytes=9014 compare=off"
BASE = ("itr=16", "idle=halt", "poll_budget=0", "preset=default", "flow_control=off")


class Soak:
    """One machine under traffic, settings and faults, and the verdict at its end."""

    def __init__(self, echo: Echo, console: ConsoleCounts, seed: int):
        self.echo = echo
        self.console = console
        self.chance = random.Random(seed)
        self.traffic = MixedTraffic(echo, seed, self.release_queues)
        self.faults = self.flaps = 0
        self._hung: dict[str, tuple[int, int]] = {}  # for each hung queue: the numbers of frames and restarts when the hang began

    def fault(self, text: str) -> None:
        self.console.line(f"    fault {text}")
        self.echo.machine.card_command(text if text.startswith("link") else f"fault {text}")
        self.faults += not text.startswith(("off", "free"))
        self.flaps += text.startswith("link")
        if text == "off":
            self._hung.clear()
        if text.startswith("hang"):
            self._hung[text.removeprefix("hang ")] = self.traffic.sent, self.console.restarts

    def release_queues(self) -> None:
        """Releases hung queues, because requests for settings may use them. A transmit queue is released when the driver has detected the
        hang. Any queue is released after many frames."""
        for queue, (sent, restarts) in list(self._hung.items()):
            found = queue.startswith("tx") and self.console.restarts > restarts
            if found or self.traffic.sent - sent > (FRAMES_UNTIL_FOUND if queue.startswith("tx") else FRAMES_OF_A_HANG):
                self._hung.pop(queue)
                self.fault(f"free {queue}")

    def random_fault(self) -> None:
        if self.chance.random() < 0.3:
            self.fault("off")
        text = self.chance.choice(FLAPS) if self.chance.random() < 0.2 else self.chance.choice(FAULTS)
        self.fault(text.format(n=self.chance.randrange(4), seed=self.chance.randrange(1 << 30)))

    def finish(self) -> str:
        """Ends the faults and the run. Raises if a loss of frames is unexplained, if a frame was doubled, changed, or late without a fault,
        or if a buffer leaks."""
        self.fault("off")
        for text in BASE:
            self.traffic.set(text)
        self.traffic.settle()
        statistics = self.echo.machine.card_command("statistics")
        rules = self.echo.machine.card_command("violations")
        account = self.traffic.account(statistics, self.console, self.echo.finish())
        verdict = (
            f"{account}; unexplained {max(0, account.unexplained)}; {self.console.changes} changes, {self.console.refused} refused, "
            f"{self.faults} faults, {self.flaps} of the link; restarts: {self.console.restarts} queues, {self.console.resets} cards"
        )
        assert rules["total"] == 0, rules
        assert account.unexplained <= 0, verdict
        corrupt = sum(statistics.get(f"fault.{way}_corrupted", 0) for way in ("rx", "tx"))
        assert self.traffic.corrupt <= corrupt, f"{self.traffic.corrupt} answers are wrong, {corrupt} frames were corrupt; {verdict}"
        late = sum(statistics.get(f"fault.{way}_{what}", 0) for way in ("rx", "tx") for what in ("reordered", "delayed"))
        assert self.traffic.late <= late, f"{self.traffic.late} answers are late, {late} frames were made late; {verdict}"
        return verdict


@contextmanager
def events_shown_on_failure(console: ConsoleCounts):
    try:
        yield
    except BaseException:  # pytest's time-out is not derived from Exception
        print("\n".join(console.last))
        raise


def test_soak_of_random_settings_and_faults_reports_every_loss() -> None:
    seed = int(os.environ.get("NEAP_SOAK_SEED", "1"))
    console = ConsoleCounts()
    with events_shown_on_failure(console), booted(cores=4, words=WORDS, on_line=console.line) as echo:
        soak = Soak(echo, console, seed)
        start = answered_at = time.monotonic()
        end = start + float(os.environ.get("NEAP_SOAK_SECONDS", "10"))
        due = start + PERIOD_SECONDS
        answers = lost = periods = 0
        while (now := time.monotonic()) < end:
            soak.traffic.send(5)
            soak.release_queues()
            if soak.traffic.setting_answers != answers:
                answers, answered_at = soak.traffic.setting_answers, now
            elif now - answered_at > PATIENCE_SECONDS:
                lost = soak.traffic.setting_requests - answers  # requests lost on the wire, or in a queue that hung
            if now < due:
                continue
            due += PERIOD_SECONDS  # changes that became due while traffic stopped are made afterwards
            if periods % PERIODS_PER_FAULT == 0:
                soak.random_fault()
            if soak.traffic.setting_requests - answers - lost < REQUESTS_AHEAD_MAX:
                soak.traffic.ask(soak.chance.choice(SETTINGS))
            periods += 1
        took = time.monotonic() - start
        rate = 1000 * took / max(1, console.changes + console.refused)
        verdict = f"seed {seed}, {took:.0f} s, a change every {rate:.0f} ms: {soak.finish()}"
    if path := os.environ.get("NEAP_SOAK_VERDICT"):
        Path(path).write_text(verdict + "\n")
    print(verdict)
