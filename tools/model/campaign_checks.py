# SPDX-License-Identifier: BSL-1.0
"""What must hold after a run of `./neap soak model`, whatever its faults were.

Each check returns sentences; a sentence is a finding. The figures are the world's report (docs/model-machine.md), control's statistics
before and after the log's begin and end, the cores' logs, and the console.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.log.folder import log_files
from tools.log.layout import ENTRY_BYTES, KIND_OFFSET, read_header
from tools.model.campaign_plan import Plan

GOOD = {"hit", "done"}
# Failures that a fault of card or network may cause. Others are the guest's mistakes: noise, half a reply, a request without an end.
EXPECTED_FAILURES = {"timed_out", "reset", "closed"}
COMPLAINTS = re.compile(r"panic|watchdog:|assert|is not accepted|out of memory", re.IGNORECASE)
# Counters of control that are mistakes if they are not 0.
MISTAKES = ("memcached.protocol_overrun", "memcached.no_progress", "log.unwritten", "kernel.remote_refused", "memory.heap_refused")
# Gauges that have to be as they were, because the same keys are stored and all replies were read.
UNCHANGED = ("memcached.curr_items", "memcached.bytes", "memcached.held_bytes", "memcached.reply_bytes")
# Without the spare chunks of memcached, which have their own statistic. The stack also keeps spare segments and headers, up to 1024 of
# a kind on each core (net/object_pool.hpp); in 38 of 46 seeds the growth was at most 22 KB. Larger rings (`rx_ring,1024`) take 64 KiB
# more.
HEAP_GROWTH_BYTES_MAX = 128 << 10
# A core keeps the chunks of replies that waited for a link which was down, and uses them for later replies. More than these
# (apps/memcached/reply.hpp: free_chunks_max chunks of 4 KiB) are a finding.
SPARE_CHUNKS_BYTES_OF_A_CORE = 64 * 4096
SPARE = "memcached.reply_spare_bytes"
# A connection whose RST was lost stays open until its keep-alive ends.
HEAP_BYTES_OF_A_CONNECTION = 16 << 10
# The stack may hold segments of the setting tso=copy, each in one block (net/outgoing_segment.hpp).
COPY_BUFFERS_BYTES_OF_A_CORE = 32 * (65 << 10)
# The kind of the first record, whose counts are from before the run (docs/log-format.md).
START = 4
# Frames of control between the last statistics and the end: the requests for the logs, and their acknowledgements.
CONTROL_FRAMES_MAX = 60
LOG_BYTES_OF_A_FRAME = 700

Counts = Mapping[str, int]


def statistics(text: str) -> dict[str, int]:
    """The fields of an answer to `stats`."""
    fields = (field.partition("=") for field in text.split("; "))
    return {name: int(value) for name, _, value in fields if value.isdigit()}


def check(plan: Plan, report: Mapping[str, Any], out_log: Path, console: Sequence[str]) -> list[str]:
    """All findings of a run that came to its end."""
    trial = report["trial"]
    before, started, ending, after = (statistics(text) for text in trial["statistics"])
    logged = log_totals(out_log)
    return [
        *_complaints(console),
        *_answers(plan, report),
        *_recovery(trial["recovery"]),
        *_executed(plan, trial["requests"], before, after, report),
        *_log(_traffic_between(started, ending), logged, _traffic_between(before, after)),
        *_traffic(plan, report, after, logged["bytes"]),
        *_memory(plan, report["connections"], before, after),
        *(f"{name} is {after[name]}" for name in MISTAKES if after.get(name)),
    ]


def _complaints(console: Sequence[str]) -> list[str]:
    return [f"the console says: {line}" for line in console if COMPLAINTS.search(line) and not line.startswith("neap: command line:")]


def _bad_answers(operations: Mapping[str, Counts]) -> list[str]:
    return [
        f"{count} answers to {operation} are wrong: {outcome}"
        for operation, outcomes in operations.items()
        for outcome, count in outcomes.items()
        if outcome not in GOOD
    ]


def _answers(plan: Plan, report: Mapping[str, Any]) -> list[str]:
    found = _bad_answers(report["operations"])
    failures = report["failures"]
    found += [f"{count} requests ended by {name}" for name, count in failures.items() if name not in EXPECTED_FAILURES]
    ended = report["connections"]["ended"]
    if plan.harmless:
        found += [f"{count} requests ended by {name} without a fault" for name, count in failures.items() if name != "closed"]
        if failures.get("closed", 0) > ended * plan.experiment.depth:
            found.append(f"{failures['closed']} requests were closed, although clients ended {ended} connections")
    if report["answered"] + report["failed"] != report["offered"]:
        found.append(f"{report['offered']} requests, but {report['answered']} answered and {report['failed']} failed")
    return found


def _recovery(recovery: Mapping[str, Any]) -> list[str]:
    found = [f"after the faults, {sentence}" for sentence in _bad_answers(recovery["operations"])]
    found += [f"after the faults, {count} requests ended by {name}" for name, count in recovery["failures"].items()]
    answered = sum(sum(outcomes.values()) for outcomes in recovery["operations"].values())
    if not answered or answered + sum(recovery["failures"].values()) != recovery["offered"]:
        found.append(f"after the faults, {answered} of {recovery['offered']} requests were answered")
    return found


def _executed(plan: Plan, requests: Counts, before: Counts, after: Counts, report: Mapping[str, Any]) -> list[str]:
    executed = after["memcached.requests"] - before["memcached.requests"]
    if not requests["answered"] <= executed <= requests["submitted"]:
        return [f"{executed} requests were executed; {requests['submitted']} were sent and {requests['answered']} answered"]
    if executed != after["log.requests"] - before["log.requests"]:
        return [f"{executed} requests were executed, and {after['log.requests'] - before['log.requests']} logged"]
    return []


def log_totals(folder: Path) -> dict[str, int]:
    """Sums over all records of a run, without those of control; and the logs' size."""
    sums = dict.fromkeys(("rx_frames", "rx_bytes", "tx_frames", "tx_bytes", "bytes"), 0)
    for path in log_files(folder):
        header = read_header(path)
        schema = header.schema
        data = path.read_bytes()
        sums["bytes"] += len(data)
        fields = schema.form["record"].by_name
        kinds = {kind for kind in schema.kinds_of("record") if kind != START}
        for at in range(header.size, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
            if data[at + KIND_OFFSET] not in kinds:
                continue
            entry = data[at : at + ENTRY_BYTES]
            for way in ("rx", "tx"):
                for unit in ("frames", "bytes"):
                    sums[f"{way}_{unit}"] += fields[f"{way}_{unit}"].read(entry) - fields[f"control_{way}_{unit}"].read(entry)
    return sums


def _traffic_between(first: Counts, last: Counts) -> dict[str, int]:
    """Frames and bytes without those of control, as the driver and the stack count them."""
    found = {}
    for way, long in (("rx", "received"), ("tx", "sent")):
        for unit in ("frames", "bytes"):
            counted = last[f"ixgbe.{way}.{unit}"] - first[f"ixgbe.{way}.{unit}"]
            found[f"{way}_{unit}"] = counted - (last[f"net.control_{unit}_{long}"] - first[f"net.control_{unit}_{long}"])
    return found


def _log(least: Counts, logged: Counts, most: Counts) -> list[str]:
    """Some frames may come between the statistics and the log's begin or end, for instance segments that TCP sends again."""
    return [
        f"the logs have {logged[name]} {name}, the counters {least[name]} to {most[name]}"
        for name in least
        if not least[name] <= logged[name] <= most[name]
    ]


def _traffic(plan: Plan, report: Mapping[str, Any], after: Counts, log_bytes: int) -> list[str]:
    """Frames of the wire, the card and the driver, with every loss at its counter."""
    card = report["card"]
    queued = _sum(card, "rx_frames[")
    lost = _sum(card, "unseen.") + sum(card.get(name, 0) for name in ("fault.rx_dropped", "fault.rx_delayed_overflow"))
    found = []
    if report["frames"]["to_card"] < queued:
        found.append(f"{report['frames']['to_card']} frames came to the card, and {queued} from it to its queues")
    taken = after["ixgbe.rx.frames"] + sum(
        after.get(f"ixgbe.rx.{name}", 0) for name in ("dropped_errors", "dropped_untagged", "dropped_overlong")
    )
    later = CONTROL_FRAMES_MAX + log_bytes // LOG_BYTES_OF_A_FRAME
    # A reset of the card clears its counters.
    if taken > queued and not after.get("ixgbe.card.resets"):
        found.append(f"the driver took {taken} frames, the card gave it {queued}")
    if plan.harmless and queued - taken > later:
        found.append(f"the card gave {queued} frames, the driver took {taken}")
    lost += card.get("RXNFGPC", 0) - card.get("RXDGPC", 0)  # segments that the card joined
    if plan.harmless and report["frames"]["to_card"] > queued + lost + _sum(card, "QPRDC[") + card.get("MPC[0]", 0):
        found.append(f"{report['frames']['to_card']} frames came to the card: {queued} went to queues, {lost} were lost at a counter")
    return found


def _sum(counts: Counts, prefix: str) -> int:
    return sum(count for name, count in counts.items() if name.startswith(prefix))


def _memory(plan: Plan, ends: Counts, before: Counts, after: Counts) -> list[str]:
    found = [
        f"{name} was {before.get(name, 0)} and is {after.get(name, 0)}" for name in UNCHANGED if before.get(name, 0) != after.get(name, 0)
    ]
    if after.get("net.half_open"):
        found.append(f"{after['net.half_open']} connections are half open")
    # More than the clients have may be open, because an RST got lost.
    wanted, connections = plan.experiment.connections, after["memcached.curr_connections"]
    if not wanted <= connections <= wanted + (0 if plan.harmless else sum(ends[way] for way in ("lost", "ended", "refused"))):
        found.append(f"{connections} connections are open, although the clients have {wanted}")
    connections -= before["memcached.curr_connections"]
    if after[SPARE] > plan.experiment.cores * SPARE_CHUNKS_BYTES_OF_A_CORE:
        found.append(f"{after[SPARE]} bytes of chunks are spare, more than {plan.experiment.cores} cores keep")
    growth = (after["memory.heap_used_bytes"] - after[SPARE]) - (before["memory.heap_used_bytes"] - before[SPARE])
    allowed = HEAP_GROWTH_BYTES_MAX + max(0, connections) * HEAP_BYTES_OF_A_CONNECTION
    if after["net.joined_copied_bytes"]:
        allowed += plan.experiment.cores * COPY_BUFFERS_BYTES_OF_A_CORE
    if growth > allowed:
        found.append(f"beside spare chunks, the heap has grown by {growth} bytes, and {connections} more connections are open")
    return found
