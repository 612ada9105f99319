# SPDX-License-Identifier: BSL-1.0
"""Control of a whole machine: settings change on a memcached with four cores while it runs, and no input breaks it.

observe/control_test.cpp tests each command on the host. These tests cover the image, the driver and the card, and fetch a log with `socat`,
a third-party program.
"""

import contextlib
import random
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import CONNECT_PAUSE_SECONDS, CONTROL_PORT, GUEST_PORT, START_SECONDS, NeapServer

from tools import build, control_client
from tools.log import collect, decode
from tools.machine import BAD_COMMAND_LINE, FAILURE, LOOPBACK, POWER_OFF, SUCCESS, Machine

pytestmark = pytest.mark.image_only

CORES = 4
CLIENTS = 16
TOKEN = "tide-and-time"


@contextlib.contextmanager
def boot(*arguments: str, cores: int = CORES) -> Iterator[Machine]:
    """Boots a memcached that listens, with a small log unless `arguments` set its size."""
    words = [*([] if any(word.startswith("log=") for word in arguments) else ["log=16K"]), *arguments]
    with NeapServer(cores=cores, arguments=words) as server:
        yield server.machine


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with boot() as running:
        yield running


def connect(machine: Machine) -> control_client.Control:
    # QEMU's user network listens with a backlog of one, so connections need a pause between them.
    time.sleep(CONNECT_PAUSE_SECONDS)
    return control_client.Control(LOOPBACK, machine.port(CONTROL_PORT))


@pytest.fixture
def client(machine: Machine) -> Iterator[control_client.Control]:
    """A client of control. After the test the machine must still answer."""
    with connect(machine) as connection:
        yield connection
    with connect(machine) as connection:
        assert connection.ask("rdtsc").startswith("ok tsc=")


def send_bytes(client: control_client.Control, data: bytes) -> None:
    """Sends bytes that need not be text or whole lines."""
    client._socket.sendall(data)


def policy_of(client: control_client.Control) -> list[dict[str, str]]:
    """Returns one dictionary of settings per core."""
    answer = client.ask("policy")
    assert answer.startswith("ok generation="), answer
    return [dict(word.split("=") for word in part.split()[1:]) for part in answer.split("; ")[1:] if part[0].isdigit()]


def load(machine: Machine, requests: int) -> None:
    """Causes traffic on every core: RSS spreads the connections."""
    for number in range(16):
        time.sleep(CONNECT_PAUSE_SECONDS)
        with socket.create_connection((LOOPBACK, machine.port(GUEST_PORT)), 20) as wire:
            for _ in range(requests):
                wire.sendall(b"get nothing-%d\r\n" % number)
                assert wire.recv(100) == b"END\r\n"


@pytest.mark.names_the_82599  # its moderation of interrupts
def test_settings_reach_one_core_or_all_by_new_names_and_old(client: control_client.Control) -> None:
    assert client.ask("itr,100,2").endswith(" cores=2")
    assert [core["itr_us"] == "100" for core in policy_of(client)] == [False, False, True, False]
    answer = client.ask("rx_usecs,8")
    assert answer.startswith("ok itr=8us generation=") and answer.endswith(f" cores=0-{CORES - 1}"), answer
    assert {core["itr_us"] for core in policy_of(client)} == {"8"}
    assert client.ask("idle,poll,3").startswith("ok idle=poll ")
    assert policy_of(client)[3]["idle"] == "poll"
    assert client.ask("idle,halt").startswith("ok idle=halt ")
    assert client.ask("poll_budget,50us").startswith("ok poll_budget=50us ")
    assert client.ask("poll_budget,0").startswith("ok poll_budget=0us ")
    assert control_client.fields_of(client.ask("print"))["application"] == "memcached"
    assert len(client.ask("cores").split("; ")) == CORES


@pytest.mark.names_the_82599  # its settings
def test_the_cards_settings_change_under_connections_and_report_lost_frames() -> None:
    """Runs on a machine of its own, because the changes may lose frames of other tests."""
    content = random.Random(8).randbytes(200_000)
    changes = ("rx_ring,1024", "rsc,on", "head_write_back,on", "steer,udp:5000,2", "tx_ring,256", "rx_budget,16", "preset,default")
    with boot() as machine, contextlib.ExitStack() as open_:
        client = open_.enter_context(connect(machine))
        wire = open_.enter_context(socket.create_connection((LOOPBACK, machine.port(GUEST_PORT)), 60))
        stream = open_.enter_context(wire.makefile("rwb"))
        for line in changes:
            answer = client.ask(line)
            assert re.match(r"ok \S+ lost=\d+ generation=\d+ cores=\S+$", answer), answer
            stream.write(b"set large 0 0 %d\r\n%s\r\nget large\r\n" % (len(content), content))
            stream.flush()
            assert stream.readline() == b"STORED\r\n", line
            assert stream.readline() == b"VALUE large 0 %d\r\n" % len(content), line
            assert stream.read(len(content) + 7) == content + b"\r\nEND\r\n", line
        assert "rx_ring=512 tx_ring=512" in client.ask("policy")
        assert client.ask("rx_ring,100").startswith("error: rx_ring: ")
        assert re.match(r"ok itr=4us rsc=off lost=\d+ generation=\d+ cores=\S+$", client.ask("itr,4us"))


def test_settings_that_this_cpu_lacks_are_refused_with_the_accepted_ones(client: control_client.Control) -> None:
    before = policy_of(client)
    for line in "pstate,24 dvfs,0x1800 rapl,35 turbo,off idle,c6 itr,99999 itr,-1 poll_budget,1h idle,sleepy itr,8,4".split():
        answer = client.ask(line)
        assert answer.startswith("error: ") and len(answer) > 15, f"{line}: {answer}"
    assert "halt" in client.ask("idle,sleepy")
    assert "0 to 3" in client.ask("itr,8,4")
    assert policy_of(client) == before


def test_ten_thousand_random_lines_change_nothing(client: control_client.Control) -> None:
    generator = random.Random(4)
    words = b"itr idle pstate rapl turbo -1 c9 all 99999us %n 5e3 7".split() + [b"\0", b"\xff\xfe", b"\t"]
    before = policy_of(client)
    sent = 0
    while sent < 10_000:
        lines = []
        for _ in range(500):
            # The lines are settings with an invalid first word, unknown commands, and random bytes.
            start = generator.choice([b"itr,x", b"idle,y", b"rapl,z", b"turbo,", b"no such", b"GET / HTTP/1.1", b"\x80\x01"])
            tail = b",".join(generator.choice(words) for _ in range(generator.randint(0, 6)))
            lines.append(start + b"?" + tail + generator.randbytes(generator.randint(0, 40)).replace(b"\n", b" "))
        send_bytes(client, b"\n".join(lines) + b"\n")
        for line in lines:
            answer = client.read_line()
            assert answer.startswith("error: "), f"{line!r}: {answer}"
        sent += len(lines)
    assert policy_of(client) == before
    assert int(control_client.fields_of(client.ask("stats"))["control.refused"]) >= 10_000


def test_a_megabyte_without_an_end_and_half_a_line(machine: Machine, client: control_client.Control) -> None:
    before = policy_of(client)
    send_bytes(client, b"itr," + b"9" * (1 << 20) + b"\n")
    assert client.read_line() == "error: line too long (4096 bytes at most)"
    with connect(machine) as other:
        other.ask("status")
        send_bytes(other, b"itr,5")
    with connect(machine) as other:
        send_bytes(other, b"itr,5")
        other._socket.shutdown(1)
        assert other.read_line() == "error: the last line has no end, so it was not carried out"
    assert policy_of(client) == before


def test_two_hundred_connections_are_served_and_the_last_sixteen_keep_their_places(machine: Machine) -> None:
    with contextlib.ExitStack() as stack:
        connections: list[control_client.Control] = []
        for _ in range(200):
            connections.append(stack.enter_context(connect(machine)))
            assert connections[-1].ask("rdtsc").startswith("ok ")
        kept = []
        for connection in connections:
            try:
                answer = connection.ask("rdtsc")
            except control_client.Lost:
                answer = "closed"
            kept.append(answer.startswith("ok "))
            assert kept[-1] or answer == "closed" or answer.startswith("error: closed, since others need the place"), answer
        assert kept == [False] * (200 - CLIENTS) + [True] * CLIENTS
    deadline = time.monotonic() + 30
    while True:
        with connect(machine) as connection, contextlib.suppress(control_client.Lost):
            if control_client.fields_of(connection.ask("status")).get("clients") == "1":
                break
        assert time.monotonic() < deadline, "places are not given back"
        time.sleep(0.2)


@pytest.mark.names_the_82599
def test_in_an_ordinary_run_neither_driver_nor_card_drops_a_frame(machine: Machine, client: control_client.Control) -> None:
    load(machine, 5)
    driver = {name: int(value) for name, value in control_client.fields_of(client.ask("stats")).items()}
    card = {name: int(value) for name, value in control_client.fields_of(client.ask("card")).items()}
    assert 0 < driver["ixgbe.rx.frames"] <= card["ixgbe.queue.received"]
    assert driver["ixgbe.pair.interrupts"] > 0 and driver["ixgbe.card.link_changes"] > 0
    for name in ("rx.dropped_errors", "rx.dropped_overlong", "rx.pool_empty", "tx.refused_full", "tx.refused_invalid", "tx.hangs"):
        assert driver[f"ixgbe.{name}"] == 0, name
    for name in ("port.missed", "port.crc_errors", "queue.no_descriptor"):
        assert card[f"ixgbe.{name}"] == 0, name
    of_one = control_client.fields_of(client.ask("card,1"))
    assert int(of_one["ixgbe.queue.received"]) < card["ixgbe.queue.received"] and "ixgbe.port.missed" not in of_one


def test_socat_and_the_collector_fetch_the_same_bytes_that_decode(machine: Machine, client: control_client.Control, tmp_path: Path) -> None:
    assert client.ask("start").startswith("ok run=")
    load(machine, 20)
    assert client.ask("poll_budget,16us").startswith("ok ")
    assert client.ask("stop").startswith("ok run=")
    run = int(control_client.fields_of(client.ask("status"))["run"])
    socat = shutil.which("socat")
    assert socat, "no socat: ./neap test system installs it"
    address = (LOOPBACK, machine.port(CONTROL_PORT))
    assert collect.collect(address, tmp_path / "collected", live=False, token=None, as_json=True, patience_seconds=20) == 0
    for core in range(CORES):
        path = tmp_path / f"core{core}.log"
        with open(path, "wb") as out:
            argv = [socat, "-t", "10", "-", f"TCP4:{LOOPBACK}:{address[1]}"]
            subprocess.run(argv, input=f"get,{core}\n".encode(), stdout=out, timeout=60, check=True)
        header = decode.load([str(path)]).cores[0].header
        assert (header.core, header.run, header.entries) == (core, run, (path.stat().st_size - header.size) // 64)
        assert header.entries > 4
        assert path.read_bytes() == (tmp_path / f"collected/core{core}.log").read_bytes()


def test_a_run_ends_by_itself_after_its_number_of_requests(machine: Machine, client: control_client.Control) -> None:
    assert client.ask("start,200").endswith(" requests=200")
    load(machine, 30)  # 480 requests; the run ends after 200
    assert control_client.fields_of(client.ask("status"))["logging"] == "off"
    assert client.ask("stop") == "error: no run is on"


@pytest.mark.names_the_82599  # its filters, for control_core=
def test_without_its_token_a_client_can_do_nothing() -> None:
    with boot(f"control_token={TOKEN}", "control_core=1", "itr=100us", "idle=poll", "poll_budget=20us", cores=2) as machine:
        with connect(machine) as client:
            for line in ("status", "itr,8", "poweroff", "get,0", "stream,live"):
                assert client.ask(line) == "error: token needed: send token,..."
            assert client.ask("help").startswith("ok start")
            assert [client.ask(f"token,{wrong}") for wrong in ("a", TOKEN[:-1], TOKEN + "x")] == ["error: wrong token"] * 3
            with pytest.raises(control_client.Lost):
                client.ask(f"token,{TOKEN}")
        with control_client.Control(LOOPBACK, machine.port(CONTROL_PORT), TOKEN) as client:
            # The command line has set these values, with the same effect as commands to control.
            for core in policy_of(client):
                assert (core["itr_us"], core["idle"], core["poll_budget_us"]) == ("100", "poll", "20")
            assert client.ask("itr,8").startswith("ok ")
            # The card steered this connection to the core that is reserved for control. No other traffic goes there.
            assert client.ask("rdtsc").endswith(" core=1")
            assert TOKEN not in client.ask("boot") and "control_token=***" in client.ask("boot")
        assert not any(TOKEN in line for line in machine.lines)


def test_poweroff_answers_and_ends_the_machine() -> None:
    with boot(cores=1) as machine:
        with connect(machine) as client:
            assert client.ask("poweroff") == "ok"
        assert machine.wait_exit(20) in (SUCCESS, POWER_OFF)


def test_control_can_be_left_out() -> None:
    with boot("control=off", "log=0", cores=1) as machine:
        assert not any("control:" in line for line in machine.lines)
        with pytest.raises(control_client.Lost), connect(machine) as client:
            client.ask("status")
        load(machine, 1)


@pytest.mark.parametrize(
    "word", ["control_token=2short", "control_allow=everybody", "itr=99999us", "idle=sleepy", "control_core=7", "log=1G"]
)
def test_a_bad_word_stops_the_boot_with_an_error(word: str) -> None:
    with Machine(build.image("memcached"), arguments=[word]) as machine:
        assert machine.wait_exit(START_SECONDS) in (BAD_COMMAND_LINE, FAILURE)
        key, value = word.split("=")
        named = key if key not in ("itr", "idle") else f"{key}:"
        assert any(named in line for line in machine.lines), machine.lines
        if key == "control_token":
            assert not any(value in line for line in machine.lines)
