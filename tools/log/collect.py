# SPDX-License-Identifier: BSL-1.0
"""`./neap log collect`: copies all cores' log entries over one connection (control's command `stream`), each entry exactly once.

The machine sends numbered blocks, each with a checksum and the position of its entries. After a failure of the network or the machine, or a
damaged block, the collector connects again. It then requests each core's entries from the first position that the collector lacks. A
collector that finds a killed collector's files continues in the same way. Repeated entries are recognised by position and dropped.
"""

import json
import random
import time
from pathlib import Path

from tools import control_client, progress
from tools.errors import Failure
from tools.foreign import shown
from tools.log import layout
from tools.log.folder import LIMIT_BYTES, RUN, UNFINISHED, Folder, Identity, describe_run, log_files

# A connection that is silent for this time is given up. The machine sends a block at least once a second.
SILENCE_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = (0.1, 2.0)
REFUSALS = 5
# Largest number of reconnections, in case a machine ends the connection after each entry.
BREAKS_MAX = 100_000
STATUS_SECONDS_TERMINAL = 1.0
STATUS_SECONDS_PIPE = 10.0


class Tally:
    """Counts the entries that have arrived, and shows progress."""

    def __init__(self) -> None:
        self.entries = 0
        self.lost = 0
        self.doubles = 0
        self.breaks = 0
        self.waiting = True
        self.start = time.monotonic()
        self._shown_at = self.start
        self._shown_entries = 0

    def show(self) -> None:
        now = time.monotonic()
        seconds = now - self._shown_at
        if seconds < (STATUS_SECONDS_TERMINAL if progress.on_terminal() else STATUS_SECONDS_PIPE):
            return
        rate = (self.entries - self._shown_entries) / seconds
        self._shown_at, self._shown_entries = now, self.entries
        if self.waiting:
            progress.show_status(f"neap: waiting for the end of the run, {progress.duration(now - self.start)}")
            return
        progress.show_status(
            f"neap: {self.entries:,} entries, {rate:,.0f} entries/s, {rate * layout.ENTRY_BYTES / 1e6:.1f} MB/s, "
            f"lost {self.lost:,}, breaks {self.breaks}"
        )


class Collector:
    """A collection of one run into one folder, over any number of connections."""

    def __init__(self, address: tuple[str, int], folder: Folder, *, live: bool, token: str | None, patience_seconds: float):
        self._address = address
        self._folder = folder
        self._mode = "live" if live else "after"
        self._token = token
        self._patience_seconds = patience_seconds
        found = folder.unfinished()
        self.identity = Identity(found["boot_id"], found["run"]) if found else None
        self.tally = Tally()
        self._headers: dict[int, layout.Header] = {}
        self._expected: dict[int, int] = {}
        self._ended: set[int] = set()
        self._cores = 0
        self._connected_before = False

    def run(self) -> None:
        """Collects until the machine ends the stream. Raises Failure if the connection cannot be restored; a later call resumes."""
        quiet_since = time.monotonic()
        pause = PAUSE_SECONDS[0]
        refusals = 0
        while True:
            before = self.tally.entries
            began = time.monotonic()
            try:
                self._connection()
                return
            except control_client.Refused as refusal:
                refusals += 1
                if not self._connected_before or refusals >= REFUSALS:
                    raise
                problem: Failure = refusal
            except control_client.Lost as lost:
                problem = lost
            except layout.DamagedBlock as damage:
                problem = Failure(f"{control_name(self._address)}: {damage}")
            now = time.monotonic()
            if self.tally.entries > before or now - began > SILENCE_SECONDS + control_client.CONNECT_SECONDS:
                # A connection that brought entries, or lasted longer than its time-outs, resets the limits for retries.
                quiet_since, pause, refusals = now, PAUSE_SECONDS[0], 0
            if not self._connected_before or now - quiet_since > self._patience_seconds or self.tally.breaks >= BREAKS_MAX:
                raise Failure(problem.message, self._advice(problem))
            self.tally.breaks += 1
            progress.say(f"neap: {problem.message}; going on from there")
            time.sleep(pause * random.uniform(0.7, 1.3))
            pause = min(2 * pause, PAUSE_SECONDS[1])

    def _advice(self, problem: Failure) -> str | None:
        kept = self._folder.kept_entries()
        return f"{kept} entries are in {self._folder.path}; the same command goes on" if kept else problem.hint

    # ---- one connection ----

    def _request(self) -> str:
        words = ["stream", self._mode]
        if self.identity:
            words.append(f"run={self.identity.run}")
        done = {core for core in range(layout.CORES_MAX) if self._folder.done(core)}
        for core in sorted(done | set(self._folder.parts)):
            word = f"{core}={self._folder.position(core)}"
            # A word that does not fit into the line is left out. The machine then sends all entries of that core, and entries that are
            # already in the folder are dropped.
            if len(",".join([*words, word])) < control_client.LINE_BYTES_MAX and not word.endswith("=0"):
                words.append(word)
        return ",".join(words)

    def _connection(self) -> None:
        with control_client.Control(*self._address, self._token) as connection:
            answer = connection.ask(self._request())
            if answer != "ok" and not answer.startswith("ok "):
                raise control_client.Refused(f"{connection.name} answered '{answer}'", "./neap ctl ... status shows the runs")
            self._connected_before = True
            self._headers.clear()
            self._expected.clear()
            self._ended.clear()
            number = 0
            while True:
                block, payload = self._next(connection, number)
                number += 1
                if block.type != layout.BLOCK_ALIVE:
                    self._identify(block)
                if block.type == layout.BLOCK_END:
                    self._require_all()
                    return
                self._take(block, payload)
                self.tally.show()

    def _next(self, connection: control_client.Control, number: int) -> tuple[layout.Block, bytes]:
        raw = connection.read(layout.BLOCK_HEADER_BYTES, SILENCE_SECONDS)
        if len(raw) < layout.BLOCK_HEADER_BYTES:
            raise control_client.Lost(f"{connection.name} ended the stream before its end")
        block = layout.parse_block(raw)
        if block.number != number:
            raise layout.DamagedBlock(f"block {block.number} came where block {number} belongs")
        payload = connection.read(block.payload_bytes, SILENCE_SECONDS)
        if len(payload) < block.payload_bytes:
            raise control_client.Lost(f"{connection.name} ended the stream in the middle of a block")
        if layout.crc32c(payload) != block.payload_crc:
            raise layout.DamagedBlock(f"block {number} does not fit its checksum")
        return block, payload

    def _identify(self, block: layout.Block) -> None:
        identity = Identity(block.boot, block.run)
        if self.identity is None:
            if finished := self._folder.finished():
                self._folder.require_same(finished, identity)
            self._folder.write_json(UNFINISHED, {"boot_id": identity.boot_id, "run": identity.run, "from": control_name(self._address)})
            self.identity = identity
        elif identity != self.identity:
            self._folder.require_same({"boot_id": self.identity.boot_id, "run": self.identity.run}, identity)

    def _take(self, block: layout.Block, payload: bytes) -> None:
        core = block.core
        if block.type == layout.BLOCK_ALIVE or self._folder.done(core):
            return
        self.tally.waiting = False
        expected = self._expected.get(core, self._folder.position(core))
        if block.type == layout.BLOCK_ENTRIES:
            self._take_entries(core, expected, block, payload)
        elif block.type == layout.BLOCK_GAP:
            end = block.position + block.count
            self.tally.lost += max(0, end - max(expected, block.position))
            self._expected[core] = max(expected, end)
        elif block.type == layout.BLOCK_HEADER:
            header = layout.parse_header(payload, f"core {core}'s header in the stream")
            if header.core != core or (header.boot_id, header.run) != (block.boot, block.run) or header.size != len(payload):
                raise layout.DamagedBlock(f"core {core} was sent the header of something else")
            self._learn_cores(header)
            self._headers[core] = header
        elif block.type == layout.BLOCK_CORE_END:
            self._ended.add(core)
        self._require_known_cores()
        if core in self._ended and core in self._headers:
            self._folder.seal(self._headers[core])

    def _learn_cores(self, header: layout.Header) -> None:
        """Takes the number of cores from a core's header. Raises Failure if another core's header contradicts it."""
        other = next(iter(self._headers.values()), header)
        if header.run_of != other.run_of:
            raise Failure(f"{control_name(self._address)}: the headers of cores {other.core} and {header.core} contradict each other")
        self._cores = header.cores

    def _require_known_cores(self) -> None:
        """Raises Failure if entries of a core that does not exist have arrived. The number of cores arrives later, in the headers."""
        last = max(self._folder.parts, default=0)
        if self._cores and last >= self._cores:
            raise Failure(f"{control_name(self._address)} sent entries of core {last}, but has {self._cores} cores")

    def _take_entries(self, core: int, expected: int, block: layout.Block, payload: bytes) -> None:
        position, entries = block.position, payload
        if position > expected:
            # The machine announces missing entries by a gap block, except for entries that were overwritten before the stream began.
            self.tally.lost += position - expected
        elif position < expected:
            doubles = min(expected - position, block.count)
            self.tally.doubles += doubles
            position, entries = position + doubles, entries[doubles * layout.ENTRY_BYTES :]
        if entries:
            self._folder.append(core, position, entries)
            self.tally.entries += len(entries) // layout.ENTRY_BYTES
            self._expected[core] = position + len(entries) // layout.ENTRY_BYTES

    def _require_all(self) -> None:
        missing = [core for core in range(self._cores) if not self._folder.done(core)]
        if missing or not self._cores:
            raise layout.DamagedBlock(f"the stream ended without core {missing[0] if missing else 0}")


def collect(
    address: tuple[str, int],
    out: Path,
    *,
    live: bool,
    token: str | None,
    as_json: bool,
    patience_seconds: float,
    limit_bytes: int = LIMIT_BYTES,
) -> int:
    """Collects a run into `out`. Prints a report, or with `as_json` the text of run.json. `limit_bytes` bounds the size of all logs."""
    with Folder(out, limit_bytes) as folder:
        finished = folder.finished()
        collector = Collector(address, folder, live=live, token=token, patience_seconds=patience_seconds)
        if finished and collector.identity is None:
            raise Failure(f"{out} holds run {finished['run']} of boot {finished['boot_id']} already, whole", "choose another folder: --out")
        try:
            collector.run()
        finally:
            progress.show_status("")
        tally = collector.tally
        seconds = time.monotonic() - tally.start
        about = {"from": control_name(address), "mode": "live" if live else "after", "breaks": tally.breaks}
        content = describe_run(log_files(out), **about)
        folder.finish(content)
    return report(content, out, tally.entries, seconds, as_json)


def report(content: dict, out: Path, entries: int, seconds: float, as_json: bool) -> int:
    """Prints the result of a collection: one line per core, the losses, and a line of sums."""
    if as_json:
        print(json.dumps(content, indent=2))
        return 0
    for row in content["files"]:
        full = f", {row['unwritten']:,} more found the log full" if row["unwritten"] else ""
        print(f"core {row['core']}: {row['lines']:,} entries in {', '.join(row['files'])}{full}")
    for gap in content["gaps"]:
        print(f"core {gap['core']}: {gap['lines']:,} entries from {gap['first']:,} on are lost: overwritten before they were sent")
    total = sum(row["lines"] for row in content["files"])
    lost = sum(gap["lines"] for gap in content["gaps"]) + sum(row["unwritten"] for row in content["files"])
    rate = entries / max(seconds, 1e-3)
    print(
        f"run {content['run']} of {shown(content['application'])}: {total:,} entries of {len(content['files'])} cores in {out}; "
        f"{entries:,} came now in {seconds:.1f} s ({rate:,.0f} entries/s, {rate * layout.ENTRY_BYTES / 1e6:.1f} MB/s); lost {lost:,}; "
        f"{len(content['settings'])} settings in {RUN}"
    )
    return 0


def control_name(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
