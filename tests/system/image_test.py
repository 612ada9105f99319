# SPDX-License-Identifier: BSL-1.0
"""The memcached image as a whole machine: its boot, its command line, its cores, and its use of the card."""

import contextlib
import re
import resource
import time

import pytest
from mixed_load import run_mixed_load
from servers import GUEST_PORT, LISTENING, START_SECONDS, NeapServer, Server
from wire import Wire

from tools import build, control_client
from tools.machine import BAD_COMMAND_LINE, LOOPBACK, Machine
from tools.process import wait_until

pytestmark = pytest.mark.image_only

IMAGE_BYTES_MAX = 2_300_000
SINGLE_REQUESTS = 2_000
PIPELINED_REQUESTS = 8_000
PIPELINE_DEPTH = 40
EXIT_SECONDS = 60
IDLE_CONNECTIONS = 1000
SETTLE_SECONDS = 60
# The wake-ups of an idle core that docs/kernel.md lists, in the same order, with their periods. QEMU's DHCP leases last half a day, and
# its announced prefixes a day.
IDLE_PERIODS_MS = {"lease_ms": 12 * 3600 * 1000, "ipv6_ms": 24 * 3600 * 1000, "connections_ms": (2 * 3600 + 15) * 1000}


@pytest.mark.names_the_82599  # by its counters and its control socket
def test_no_register_is_read_while_requests_are_served(server: Server) -> None:
    """Sends 10,000 requests, one by one and in bursts. The card counts the accesses to each register. The count of reads must not grow."""
    assert isinstance(server, NeapServer)
    value = b"v" * 300
    with server.connect() as wire:
        wire.store(b"counted", value)
        get, answer = b"get counted\r\n", b"VALUE counted 0 300\r\n" + value + b"\r\nEND\r\n"
        wire.ask(get * 100, answer * 100)
        before = server.machine.card_counters()
        for number in range(SINGLE_REQUESTS):
            if number % 4:
                wire.ask(get, answer)
            else:
                wire.store(b"counted", value)
        for _ in range(PIPELINED_REQUESTS // PIPELINE_DEPTH):
            wire.ask(get * PIPELINE_DEPTH, answer * PIPELINE_DEPTH)
        after = server.machine.card_counters()
    grown = {name: count - before["reads"].get(name, 0) for name, count in after["reads"].items() if count != before["reads"].get(name, 0)}
    assert grown == {}, f"registers read during {SINGLE_REQUESTS + PIPELINED_REQUESTS} requests: {grown}"
    # Proof that the counters work: this many requests need tail writes.
    written = sum(count - before["writes"].get(name, 0) for name, count in after["writes"].items() if name.startswith(("RDT", "TDT")))
    assert written >= SINGLE_REQUESTS


def test_the_image_is_small() -> None:
    size = build.image("memcached").stat().st_size
    assert size < IMAGE_BYTES_MAX, f"{size} bytes"


@pytest.mark.parametrize("cores", [1, 4])
def test_the_machine_runs_on_as_many_cores_as_it_has(cores: int, record_property) -> None:
    with NeapServer(cores=cores, memory="384M", arguments=["memory=192M"]) as server:
        # The time is printed and not checked, because it depends on the host's load.
        record_property("seconds_to_listening", round(server.start_seconds, 2))
        print(f"{cores} cores: listening after {server.start_seconds:.2f} s")
        server.machine.wait_for_line(rf"^neap: memcached \(.+\) on {cores} cores?\b", 1)
        run_mixed_load(server, connections=20, operations=3000, large_values=20)
        server.check()


def test_fewer_cores_than_the_machine_has() -> None:
    with NeapServer(cores=4, arguments=["cores=2"]) as server:
        server.machine.wait_for_line(r"^neap: memcached \(.+\) on 2 cores", 1)
        server.check()


@pytest.mark.parametrize(
    "word", "frobnicate=1 nonsense cores=0 cores=many memory=lots memory=-1 memory= port=0 port=65536 ip=10.0.2 ip=10.0.2.15/33 =".split()
)
def test_a_word_that_is_not_understood_stops_the_boot_with_a_list(server: Server, word: str) -> None:
    with Machine(build.image("memcached"), arguments=[word]) as machine:
        assert machine.wait_exit(EXIT_SECONDS) == BAD_COMMAND_LINE
        console = "\n".join(machine.lines)
    assert word.split("=")[0] in console, console
    for accepted in ("cores=", "ip=", "port=", "memory="):
        assert accepted in console, f"{accepted} is not in the list of what is accepted:\n{console}"
    assert "listening" not in console


def test_a_static_address_and_another_port() -> None:
    with Machine(build.image("memcached"), forward=[(0, 2000)], arguments=["ip=10.0.2.15/24,10.0.2.2", "port=2000"]) as machine:
        machine.wait_for_line(r"memcached: listening on 10\.0\.2\.15:2000", START_SECONDS)
        # QEMU forwards connections to the first address of its DHCP server, which equals the static address above.
        with Wire((LOOPBACK, machine.port(2000))) as wire:
            wire.store(b"static", b"yes")
            assert wire.fetch(b"static") == b"yes"


def test_two_machines_at_once_do_not_disturb_each_other() -> None:
    with NeapServer(memory="256M") as first, NeapServer(memory="256M") as second:
        assert first.address != second.address
        with first.connect() as one, second.connect() as two:
            one.store(b"whose", b"first")
            two.store(b"whose", b"second")
            assert (one.fetch(b"whose"), two.fetch(b"whose")) == (b"first", b"second")
        first.machine.stop()
        second.check()


@pytest.mark.names_the_82599  # by its counters and its control socket
def test_a_late_card_link(server: Server) -> None:
    """The link goes down while clients are connected, and comes up again. No data may be lost."""
    assert isinstance(server, NeapServer)
    with server.connect(60) as wire:
        wire.store(b"link", b"before")
        server.machine.card_command("link down")
        time.sleep(1)
        server.machine.card_command("link up")
        assert wire.fetch(b"link") == b"before"


def test_a_machine_with_much_memory_serves() -> None:
    """With more than 3 GiB of memory, the card's registers and part of the RAM are above 4 GiB."""
    with NeapServer(memory="5G", arguments=["memory=64M"]) as server:
        server.check()


@pytest.mark.names_the_82599  # by its counters and its control socket
def test_idle_is_quiet(server: Server) -> None:
    """Without requests for two seconds, the card sees almost no register access, so no code polls the card."""
    assert isinstance(server, NeapServer)
    time.sleep(1)
    before = server.machine.card_counters()
    time.sleep(2)
    after = server.machine.card_counters()
    accesses = sum(sum(after[kind].values()) - sum(before[kind].values()) for kind in ("reads", "writes"))
    assert accesses < 100, f"{accesses} register accesses in 2 s without a request"


def test_a_thousand_idle_connections_leave_the_listed_timers_alone() -> None:
    """Each connection is used once and then stays idle. Only the wake-ups listed in docs/kernel.md may occur."""
    assert re.findall(r"^\| `(\w+_ms)` \|", (build.REPOSITORY / "docs/kernel.md").read_text(), re.MULTILINE) == list(IDLE_PERIODS_MS)
    _files, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # each connection needs a file in QEMU, and a file here
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(NeapServer(cores=4))
        control = stack.enter_context(server.control())
        own = int(re.search(r"core=(\d+)", control.ask("rdtsc"))[1])
        for _ in range(IDLE_CONNECTIONS):
            assert stack.enter_context(Wire(server.address)).ask_line(b"version\r\n").startswith(b"VERSION ")
        opened = [int(re.search(r"net.connections_open=(\d+)", control.ask(f"stats,{core}"))[1]) for core in range(4)]
        assert sum(opened) >= IDLE_CONNECTIONS + 1 and min(opened) > 0, opened

        # The core that answers control is left out: its connection has a timer while the request is in flight.
        quiet = wait_until(lambda: all(not unlisted(waits) for core, waits in enumerate(timers_of(control)) if core != own), SETTLE_SECONDS)
        waiting = timers_of(control)
        assert quiet, waiting
        for core, waits in enumerate(waiting):
            due = {name: left for name, left in waits.items() if name.endswith("_ms") and name != "next_ms" and left}
            # The core that answers control has sent frames just now, so its driver's watchdog is armed, too (docs/kernel.md).
            assert waits["pending"] - timers_for(waits) in ((0, 1) if core == own else (0,)), f"core {core} has an unlisted timer: {waits}"
            assert core == own or "connections_ms" in due, f"core {core} has connections: {waits}"
            for name, left in due.items():
                assert core == own or (left <= IDLE_PERIODS_MS[name] and waits["next_ms"] <= left + 1), f"core {core}: {waits}"
        assert waiting[0]["lease_ms"] and not any(waits["lease_ms"] for waits in waiting[1:]), waiting

        grown = silence(control, own)
        if any(core["alarms"] for number, core in enumerate(grown) if number != own):
            # An alarm that was set for a timer since cancelled wakes its core once, with nothing to do (docs/kernel.md).
            assert all(core["sleeps"] <= core["alarms"] <= 1 for number, core in enumerate(grown) if number != own), grown
            grown = silence(control, own)
    # Only control's connection has traffic here: the request for `cores`, and the acknowledgement of its answer. A received frame may be
    # followed by wake-ups without a frame, such as by the answer's timer. The limit is four sleeps for each received frame.
    assert all(core["sleeps"] <= 4 * core["rx_frames"] for core in grown), grown
    assert sum(core["rx_frames"] == 0 for core in grown) >= 2, grown
    assert all(core["sleeps"] == core["interrupts"] == 0 for core in grown if core["rx_frames"] == 0), grown


def silence(control: control_client.Control, own: int) -> list[dict[str, int]]:
    """Sends nothing for 5 s. Returns the growth of each core's counts meanwhile."""
    names = ("sleeps", "interrupts", "rx_frames")
    before = settled_cores(control, own)
    alarms = [alarms_of(control, core) for core in range(4)]
    time.sleep(5)
    after = cores_of(control)
    grown = [{name: int(now[name]) - int(then[name]) for name in names} for then, now in zip(before, after, strict=True)]
    for core, counts in enumerate(grown):
        counts["alarms"] = alarms_of(control, core) - alarms[core]
    print(f"5 s of silence: {grown}")
    return grown


def alarms_of(control: control_client.Control, core: int) -> int:
    return int(re.search(r"kernel\.alarms=(\d+)", control.ask(f"stats,{core}"))[1])


def timers_of(control: control_client.Control) -> list[dict[str, int]]:
    elements = control.ask("timers").removeprefix("ok ").split("; ")
    return [{name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", element)} for element in elements]


def unlisted(waits: dict[str, int]) -> bool:
    """True if a core has timers that docs/kernel.md does not list for an idle core."""
    return any(left for name, left in waits.items() if name.endswith("_ms") and name not in ("next_ms", *IDLE_PERIODS_MS)) or (
        waits["pending"] != timers_for(waits)
    )


def timers_for(waits: dict[str, int]) -> int:
    """The kernel's timers of the listed waits: one for all connections, and one for the rest of the network."""
    return bool(waits["tcp_ms"] or waits["connections_ms"]) + bool(waits["lease_ms"] or waits["ipv6_ms"])


def settled_cores(control: control_client.Control, own: int) -> list[dict[str, str]]:
    """Returns the answer to `cores`, once the cores woken by earlier requests sleep again."""
    seen = cores_of(control)

    def same() -> bool:
        nonlocal seen
        time.sleep(0.3)
        before, seen = seen, cores_of(control)
        return all(one["sleeps"] == other["sleeps"] for core, (one, other) in enumerate(zip(before, seen, strict=True)) if core != own)

    assert wait_until(same, SETTLE_SECONDS), seen
    return seen


def cores_of(control: control_client.Control) -> list[dict[str, str]]:
    """Returns the answer to `cores`, by core. The request wakes only the core of its connection."""
    elements = control.ask("cores").removeprefix("ok ").split("; ")
    return [dict(part.split("=", 1) for part in element.split() if "=" in part) for element in elements]


def test_the_console_names_each_listener_and_its_address(server: Server) -> None:
    assert isinstance(server, NeapServer)
    assert server.machine.wait_for_line(LISTENING, 1).endswith(f"10.0.2.15:{GUEST_PORT}")
