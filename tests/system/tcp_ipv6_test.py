# SPDX-License-Identifier: BSL-1.0
"""TCP over IPv6 with the host's kernel as the peer: memcached's large values with each value of `tso`, with lost frames, and over a path
with a smaller MTU; control, and a refused connection. netpipe_test.py measures over IPv6, too."""

import re
import sys
from collections.abc import Iterator

import pytest
from linux_guest.namespace import TAP, Namespace, Network

from tools import build
from tools.control_client import fields_of
from tools.machine import Machine
from tools.process import output_of

pytestmark = pytest.mark.image_only

CARD_MAC = "02:82:59:90:00:09"
HOST6, IMAGE6 = "fd00:9::1", "fd00:9::2"
FAR_PREFIX, FAR_MTU = "fd00:19::", 1300
START_SECONDS = 60
PATIENCE_SECONDS = 200
NEAP = [sys.executable, str(build.REPOSITORY / "neap")]

# memcached's text protocol: stores a large value, gets it over two connections for a number of rounds, and compares every byte. Then eight
# clients store and get small values at the same time. A port without a listener must refuse.
TALK = """
import random, socket, sys, threading
host, rounds = sys.argv[1], int(sys.argv[2])
def read(connection, expected):
    got = bytearray()
    while len(got) < len(expected):
        got += connection.recv(1 << 16) or sys.exit("closed too early")
    assert got == expected, got[:80]
value = random.Random(9).randbytes(500_000)
answer = b"VALUE large 0 %d\\r\\n%s\\r\\nEND\\r\\n" % (len(value), value)
connections = [socket.create_connection((host, 11211), 100) for _ in range(2)]
assert all(connection.family == socket.AF_INET6 for connection in connections)
connections[0].sendall(b"set large 0 0 %d\\r\\n%s\\r\\n" % (len(value), value))
read(connections[0], b"STORED\\r\\n")
for _ in range(rounds):
    for connection in connections:
        connection.sendall(b"get large\\r\\n")
    for connection in connections:
        read(connection, answer)
failed = []
def small(number):
    try:
        with socket.create_connection((host, 11211), 100) as own:
            for i in range(100):
                text = b"%d of %d" % (i, number)
                own.sendall(b"set key%d 0 0 %d\\r\\n%s\\r\\nget key%d\\r\\n" % (number, len(text), text, number))
                read(own, b"STORED\\r\\nVALUE key%d 0 %d\\r\\n%s\\r\\nEND\\r\\n" % (number, len(text), text))
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=small, args=[number]) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
try:
    socket.create_connection((host, 9), 100)
    sys.exit("a port without a listener has accepted")
except ConnectionRefusedError:
    pass
print("same")
"""


class World:
    def __init__(self, namespace: Namespace, machine: Machine) -> None:
        self.namespace, self.machine = namespace, machine

    def talk(self, rounds: int, *, host: str = IMAGE6, network: Network | None = None) -> None:
        argv = (network or self.namespace).inside([sys.executable, "-c", TALK, host, str(rounds)])
        assert output_of(argv, timeout_seconds=PATIENCE_SECONDS) == "same\n"

    def ask(self, command: str) -> str:
        return output_of(self.namespace.inside([*NEAP, "ctl", f"[{IMAGE6}]", command]), timeout_seconds=PATIENCE_SECONDS)

    def stats(self) -> dict[str, int]:
        fields = fields_of(self.ask("stats").removeprefix("ok "))
        return {name: int(value) for name, value in fields.items() if value.isdecimal()}


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace("10.0.9.1/24", f"{HOST6}/64") as made:
        yield made


@pytest.fixture(scope="module")
def world(namespace: Namespace) -> Iterator[World]:
    words = ["ip=off", f"ip6={IMAGE6}/64,{HOST6}", "memory=64M", "control_allow=fd00:9::/64"]
    image = build.image("memcached", "image")
    with Machine(image, memory="512M", arguments=words, mac=CARD_MAC, **namespace.card(2)) as machine:
        machine.wait_for_line(rf"^memcached: listening on \[{IMAGE6}\]:11211$", START_SECONDS)
        yield World(namespace, machine)


def test_every_byte_arrives_in_every_form(world: World) -> None:
    for form in ("off", "copy", "chain"):
        assert world.ask(f"tso,{form}").startswith("ok ")
        before = world.stats()
        world.talk(5)
        after = world.stats()
        assert (after["net.joined_frames"] > before["net.joined_frames"]) == (form != "off")
    if world.machine.has_soft_card:
        assert world.machine.card_command("violations")["total"] == 0


@pytest.mark.names_the_82599  # whose faults lose the frames
def test_lost_frames_are_sent_again(world: World) -> None:
    before = world.stats()
    world.machine.card_command("fault drop tx chance 0.01")
    try:
        world.talk(2)
    finally:
        world.machine.card_command("fault off")
    assert world.stats()["net.retransmissions"] > before["net.retransmissions"]


def test_the_link_local_address_is_served_too(world: World) -> None:
    local = re.search(r"fe80:[0-9a-f:]+", world.ask("status"))[0]
    world.talk(1, host=f"{local}%{TAP}")


def test_a_smaller_path_mtu_is_obeyed(world: World) -> None:
    namespace = world.namespace
    namespace.run("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
    with Network(namespace) as far:
        namespace.run(f"""set -e
            ip link add way mtu {FAR_MTU} type veth peer name far mtu 1500 netns {far.pid}
            ip link set way up
            ip addr add {FAR_PREFIX}1/64 dev way nodad""")
        far.run(f"""set -e
            ip link set far up
            ip addr add {FAR_PREFIX}2/64 dev far nodad
            ip -6 route add default via {FAR_PREFIX}1""")
        before = world.stats()
        world.talk(1, network=far)
        assert world.stats()["net.ipv6_mtu_reduced"] > before["net.ipv6_mtu_reduced"]
