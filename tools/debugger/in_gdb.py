# SPDX-License-Identifier: BSL-1.0
"""Runs inside gdb: shows the activity of a machine's cores, their queued events, and their timers.

    (gdb) neap cores     each core: asleep or its current function, and its counters
    (gdb) neap events    the events in each core's queues
    (gdb) neap timers    each core's pending timers, the earliest first

A core's own state is thread-local, and gdb does not support thread-local storage on a bare machine. These commands find the state through
the core's FS base, because the compiler places thread-local variables below that address (System V ABI, TLS variant II).
"""

from __future__ import annotations

import functools
import re
import struct
import sys
from collections.abc import Iterator

import gdb

SHOWN_MAX = 100  # per queue or timer wheel; further events and timers are only counted
WALKED_MAX = 2_000_000  # lists may be damaged
PT_TLS = 7
TICK_BITS = 16  # kernel/timer_wheel.hpp
# Wrapper types whose first template argument is the callable.
WRAPPERS = ("neap::Callback::set<", "neap::detail::SpawnedEvent<")


@functools.cache
def storage_bytes(path: str) -> int:
    """Returns the offset of a core's thread-local variables below its FS base: the ELF segment's size, rounded to its alignment."""
    with open(path, "rb") as image:
        header = image.read(64)
        at, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
        image.seek(at)
        segments = [struct.unpack_from("<IIQQQQQQ", image.read(size)) for _ in range(count)]
    in_memory, alignment = next(segment[6:8] for segment in segments if segment[0] == PT_TLS)
    return (in_memory + alignment - 1) // alignment * alignment


def atom(value: gdb.Value) -> gdb.Value:
    """Returns the value in a std::atomic, or in a Counter, which contains a std::atomic."""
    for _ in range(6):
        fields = {field.name for field in _all_fields(value.type)}
        inner = next((name for name in ("value_", "_M_b", "_M_base", "_M_i", "_M_p") if name in fields), None)
        if inner is None:
            return value
        value = value[inner]
    return value


def _all_fields(kind: gdb.Type) -> Iterator[gdb.Field]:
    kind = kind.strip_typedefs()
    if kind.code not in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        return
    for field in kind.fields():
        yield field
        if field.is_base_class:
            yield from _all_fields(field.type)


def function_at(address: int) -> str:
    """Returns the function's name, without its parameters."""
    match = re.match(r"(.*?)( \+ \d+)? in section ", gdb.execute(f"info symbol {address:#x}", to_string=True))
    return without_parameters(match.group(1)) if match else f"{address:#x}"


def without_parameters(name: str) -> str:
    name = re.sub(r"( const| noexcept| \[.*\])+$", "", name)
    if not name.endswith(")"):
        return name
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            return name[:at] if at and not name[:at].endswith("::") else name
    return name


def callable_in(name: str) -> str | None:
    """Returns the callable's name, if `name` is a function of WRAPPERS; None for any other function. Returns "" if the callable is a
    function pointer, because the pointer's type does not name the function."""
    # The name of a function template begins with its result type.
    start = next((name.find(wrapper) + len(wrapper) for wrapper in WRAPPERS if name.removeprefix("void ").startswith(wrapper)), None)
    if start is None:
        return None
    depth, end = 1, start
    while end < len(name) and depth:
        depth += (name[end] == "<") - (name[end] == ">")
        end += 1
    inner = name[start : end - 1]
    return "" if "(*)" in inner or "(&)" in inner else inner


def callback_name(callback: gdb.Value) -> str:
    """Returns the name of a callback's callable. The wrapper's name contains it; a function pointer is in the callback's storage."""
    code = int(callback["call_"].cast(gdb.lookup_type("unsigned long")))
    if code == 0:
        return "(empty)"
    name = function_at(code)
    inner = callable_in(name)
    return function_at(word_at(int(callback["room_"].address))) if inner == "" else inner or name


def word_at(address: int) -> int:
    return int.from_bytes(gdb.selected_inferior().read_memory(address, 8).tobytes(), "little")


class Core:
    """A core that has thread-local storage. gdb shows each core as a stopped thread."""

    def __init__(self, thread: gdb.InferiorThread):
        self.thread = thread
        thread.switch()
        frame = gdb.newest_frame()
        self.fs = int(frame.read_register("fs_base")) & (1 << 64) - 1
        self.pc = frame.pc()
        self.number = int(self.own("neap::x86::(anonymous namespace)::core_number"))

    def own(self, name: str) -> gdb.Value:
        """Returns a thread-local variable of this core."""
        offset = re.search(r"at offset (0x[0-9a-f]+) in the thread-local storage", gdb.execute(f"info address {name}", to_string=True))
        symbol = gdb.lookup_static_symbol(name) or gdb.lookup_global_symbol(name)
        if symbol is None or offset is None:
            raise gdb.GdbError(f"{name} is not in this image as these commands know it")
        address = self.fs - storage_bytes(gdb.objfiles()[0].filename) + int(offset.group(1), 16)
        return gdb.Value(address).cast(symbol.type.strip_typedefs().unqualified().pointer()).dereference()

    @property
    def shared(self) -> gdb.Value | None:
        """The `neap::Core` of this core; None before that object is made."""
        symbol = gdb.lookup_static_symbol("neap::(anonymous namespace)::cores")
        if symbol is None:
            raise gdb.GdbError("neap::cores is not in this image")
        entry = symbol.value()["_M_elems"][self.number]
        return entry.dereference() if int(entry) else None

    def asleep(self) -> bool:
        before = gdb.selected_inferior().read_memory(self.pc - 3, 3).tobytes()
        return before.endswith(b"\xf4") or before == b"\x0f\x01\xc9"


def cores() -> list[Core]:
    """Returns the running cores in the order of their numbers. The selected thread stays selected."""
    selected = gdb.selected_thread()
    if selected is None:
        raise gdb.GdbError("no machine: target remote SOCKET")
    found = []
    try:
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            # A core has no thread-local storage until the kernel sets it up. Cores that only firmware uses never have such storage.
            if int(gdb.newest_frame().read_register("fs_base")) & 1 << 63:
                found.append(Core(thread))
    finally:
        selected.switch()
    return sorted(found, key=lambda core: core.number)


def walk(first: gdb.Value) -> Iterator[gdb.Value]:
    """Yields the nodes of a queue of events, which ends in `queue_end` (kernel/intrusive_queue.hpp)."""
    end = int(gdb.parse_and_eval("&neap::queue_end<neap::RemoteNode>"))
    for _ in range(WALKED_MAX):
        if int(first) in (0, end):
            return
        yield first
        first = first["next"]


def event_name(node: gdb.Value) -> str:
    name = function_at(int(node["run"].cast(gdb.lookup_type("unsigned long"))))
    inner = callable_in(name)
    behind = int(node) + gdb.lookup_type("neap::RemoteNode").sizeof
    if inner == "neap::Callback":
        return callback_name(gdb.Value(behind).cast(gdb.lookup_type(inner).pointer()).dereference())
    return function_at(word_at(behind)) if inner == "" else inner or name


def remote_events(core: gdb.Value) -> Iterator[str]:
    """Yields names of the callbacks in the bounded queue of remote calls, oldest first. A running callback may be among them. A slot is
    full if its sequence number is its position plus one (kernel/remote_queue.hpp)."""
    queue = core["remote"]
    slots = queue["slots_"]
    capacity = slots.type.range()[1] + 1
    position = int(queue["tail_"])
    for _ in range(capacity):
        slot = slots[position % capacity]
        if int(atom(slot["sequence"])) != position + 1:
            return
        yield callback_name(slot["value"])
        position += 1


def queues(core: Core) -> list[tuple[str, list[str]]]:
    loop, shared = core.own("neap::event_loop"), core.shared
    named = [("local", [event_name(node) for node in walk(loop["local_"]["first_"])])]
    named.append(("handed over", [event_name(node) for node in walk(loop["received_"]["first_"])]))
    if shared is not None:
        # Other cores insert at the front, so the list has the newest event first and is reversed here.
        named.append(("on the way", [event_name(node) for node in walk(atom(shared["handed_over"]["head_"]))][::-1]))
        named.append(("remote", list(remote_events(shared))))
    return named


def pending_timers(core: Core) -> list[tuple[int, str]]:
    """Returns deadline in ns since boot and name of the callback of each pending timer, the earliest first."""
    wheel = core.own("neap::timer_wheel")
    heads, used = wheel["heads_"], wheel["used_"]
    lists = [wheel["due_"]]
    for level in range(used.type.range()[1] + 1):
        bits = int(used[level])
        lists += [heads[level * 64 + slot] for slot in range(64) if bits >> slot & 1]
    found = []
    for head in lists:
        timer = head
        while int(timer) and len(found) < WALKED_MAX:
            found.append((int(timer["deadline_ns_"]), callback_name(timer["fire_"])))
            timer = timer["next_"]
            if int(timer) == int(head):
                break
    return sorted(found, key=lambda entry: entry[0])


def say(lines: list[str], what: str) -> None:
    for line in lines[:SHOWN_MAX]:
        print(line)
    if len(lines) > SHOWN_MAX:
        print(f"    and {len(lines) - SHOWN_MAX} more {what}")


class Neap(gdb.Command):
    """Commands that know Neap's kernel: neap cores, neap events, neap timers."""

    def __init__(self) -> None:
        super().__init__("neap", gdb.COMMAND_STATUS, prefix=True)


class Cores(gdb.Command):
    """Each core: its activity, its counters, and the length of its queues."""

    def __init__(self) -> None:
        super().__init__("neap cores", gdb.COMMAND_STATUS)

    def invoke(self, _argument: str, _from_tty: bool) -> None:
        running = cores()
        for core in running:
            shared = core.shared
            done = ""
            if shared is not None:
                counters = shared["counters"]
                of_states = counters["sleeps"]["_M_elems"]
                sleeps = sum(int(atom(of_states[state])) for state in range(of_states.type.strip_typedefs().range()[1] + 1))
                interrupts, spurious = int(atom(counters["interrupts"])), int(atom(counters["spurious"]))
                events = int(atom(counters["events"])) + interrupts - spurious  # `events` does not include the callbacks of vectors
                done = f"; {events} events, {interrupts} interrupts, {sleeps} sleeps"
                done += f", {sum(len(waiting) for _, waiting in queues(core))} waiting"
            state = "asleep" if core.asleep() else f"in {function_at(core.pc)}"
            print(f"core {core.number} (gdb thread {core.thread.num}): {state}{done}")
        if absent := len(gdb.selected_inferior().threads()) - len(running):
            print(f"{absent} not started")


class Events(gdb.Command):
    """The events in each core's queues, oldest first."""

    def __init__(self) -> None:
        super().__init__("neap events", gdb.COMMAND_STATUS)

    def invoke(self, _argument: str, _from_tty: bool) -> None:
        for core in cores():
            named = queues(core)
            print(f"core {core.number}: {sum(len(waiting) for _, waiting in named)} events wait")
            for queue, waiting in named:
                say([f"    {queue}: {name}" for name in waiting], "there")


class Timers(gdb.Command):
    """Each core's pending timers, the earliest first; times are since boot."""

    def __init__(self) -> None:
        super().__init__("neap timers", gdb.COMMAND_STATUS)

    def invoke(self, _argument: str, _from_tty: bool) -> None:
        for core in cores():
            pending = pending_timers(core)
            looked_ns = int(core.own("neap::timer_wheel")["elapsed_"]) << TICK_BITS
            print(f"core {core.number}: {len(pending)} timers; its wheel stands at {looked_ns / 1e9:.6f} s")
            say([f"    {deadline / 1e9:.6f} s: {name}" for deadline, name in pending], "timers")


def main() -> None:
    for folder in globals().get("printers", ()):
        sys.path.insert(0, folder)
        try:
            from libstdcxx.v6 import register_libstdcxx_printers

            register_libstdcxx_printers(None)
        except (ImportError, RuntimeError):
            pass  # values are shown raw
        break
    for command in (Neap, Cores, Events, Timers):
        command()


main()
