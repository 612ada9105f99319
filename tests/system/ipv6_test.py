# SPDX-License-Identifier: BSL-1.0
"""IPv6 with the host's kernel as the peer: neighbour discovery in both directions, addresses by router advertisements, duplicate addresses,
pings, UDP, TCP, and a path with a smaller MTU behind the kernel as a router.

The kernel has no program that announces a router, so the test sends such frames itself, in the kernel's name.
"""

import contextlib
import re
import sys
from collections.abc import Iterator

import pytest
from hostile import frames
from linux_guest.namespace import TAP, Namespace, Network

from tools import build
from tools.control_client import fields_of
from tools.machine import Machine
from tools.process import kill_session, output_of

pytestmark = pytest.mark.image_only

CARD_MAC = "02:82:59:90:00:06"
HOST, IMAGE = "10.0.6.1", "10.0.6.2"
PREFIX, TAKEN_PREFIX, FAR_PREFIX = "fd00:6::", "fd00:7::", "fd00:8::"
# RFC 4291, appendix A: the interface identifier of CARD_MAC, with the universal bit inverted.
IDENTIFIER = "82:59ff:fe90:6"
LOCAL, OWN, TAKEN = f"fe80::{IDENTIFIER}", f"{PREFIX}{IDENTIFIER}", f"{TAKEN_PREFIX}{IDENTIFIER}"
HOST6, OTHER6, FAR6 = f"{PREFIX}1", f"{PREFIX}77", f"{FAR_PREFIX}2"
FAR_MTU = 1300
START_SECONDS = 60
PATIENCE_SECONDS = 60
NEIGHBOUR_SOLICITATION = 135

SEND = """
import socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((sys.argv[1], 0))
wire.send(bytes.fromhex(sys.argv[2]))
"""

# memcached's UDP: stores three values, and fetches them by one request, whose reply has several datagrams. Repeats a request whose reply
# does not come.
ASK_UDP = """
import socket, struct, sys, time
peer = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
peer.connect(socket.getaddrinfo(sys.argv[1], 11211, type=socket.SOCK_DGRAM)[0][4])
def ask(number, request, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        peer.send(struct.pack("!HHHH", number, 0, 1, 0) + request)
        parts, count = {}, 1
        peer.settimeout(1)
        try:
            while len(parts) < count:
                datagram = peer.recv(65536)
                answered, sequence, count, _ = struct.unpack_from("!HHHH", datagram)
                if answered == number:
                    parts[sequence] = datagram[8:]
        except TimeoutError:
            continue
        return b"".join(parts[i] for i in range(count))
    sys.exit("no reply")
assert ask(1, b"version\\r\\n").startswith(b"VERSION ")
values = {b"key%d" % number: bytes(range(number, number + 200)) * 6 for number in range(3)}
for number, (key, value) in enumerate(values.items(), 2):
    assert ask(number, b"set %s 0 0 1200\\r\\n%s\\r\\n" % (key, value)) == b"STORED\\r\\n"
got = ask(9, b"get %s\\r\\n" % b" ".join(values))
assert got == b"".join(b"VALUE %s 0 1200\\r\\n%s\\r\\n" % pair for pair in values.items()) + b"END\\r\\n", got[:100]
print("same")
"""

# The answer to one request over TCP.
ASK_TCP = """
import socket, sys
with socket.create_connection((sys.argv[1], 11211), 30) as connection:
    connection.sendall(b"version\\r\\n")
    print(connection.recv(100))
"""

# Prints the type and target of each message of neighbour discovery from the card, and "fragment" for each fragment.
WATCH = """
import socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind((sys.argv[1], 0))
card = bytes.fromhex(sys.argv[2].replace(":", ""))
print("ready", flush=True)
while True:
    frame = wire.recv(65536)
    if frame[6:12] == card and frame[12:14] == b"\\x86\\xdd" and frame[20] == 58 and 135 <= frame[54] <= 136:
        print(frame[54], socket.inet_ntop(socket.AF_INET6, frame[62:78]), flush=True)
    elif frame[6:12] == card and frame[12:14] == b"\\x86\\xdd" and frame[20] == 44:
        print("fragment", len(frame), flush=True)
"""


class World:
    def __init__(self, namespace: Namespace, machine: Machine) -> None:
        self.namespace, self.machine = namespace, machine
        run = namespace.run
        self.mac = re.search(r"link/ether (\S+)", run(f"ip link show dev {TAP}"))[1]
        self.local = re.search(r"inet6 (fe80:\S+)/64", run(f"ip -6 addr show dev {TAP}"))[1]

    def python(self, script: str, *words: str, network: Network | None = None) -> str:
        argv = (network or self.namespace).inside([sys.executable, "-c", script, *words])
        return output_of(argv, timeout_seconds=PATIENCE_SECONDS)

    def announce(self, prefix: str, mtu: int = 1500) -> None:
        """Sends a router advertisement of the kernel."""
        frame = frames.router_advertisement(bytes.fromhex(self.mac.replace(":", "")), self.local, prefix, mtu=mtu)
        self.python(SEND, TAP, frame.hex())

    def ping(self, address: str, *, size: int = 56, words: str = "", network: Network | None = None) -> None:
        done = (network or self.namespace).run(f"ping -6 -c 2 -i 0.1 -w {PATIENCE_SECONDS} {words} -s {size} {address}", seconds=90)
        assert " 0% packet loss" in done, done

    def ask(self, command: str) -> dict[str, str]:
        neap = self.namespace.inside([sys.executable, str(build.REPOSITORY / "neap"), "ctl", IMAGE, command])
        return fields_of(output_of(neap, timeout_seconds=PATIENCE_SECONDS).removeprefix("ok "))

    def addresses(self) -> set[str]:
        return set(self.ask("status")["address6"].split("+"))

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[str]]:
        """Yields a list that has the lines of WATCH when the context is left."""
        watcher = self.namespace.spawn([sys.executable, "-c", WATCH, TAP, CARD_MAC])
        lines: list[str] = []
        try:
            assert watcher.stdout.readline() == b"ready\n"
            yield lines
        finally:
            kill_session(watcher)
        lines += watcher.stdout.read().decode().splitlines()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    words = [f"ip={IMAGE}/24", "udp-port=11211", "memory=64M"]
    with Namespace(f"{HOST}/24", f"{HOST6}/64") as namespace:
        # A router answers for itself as a router, and sends packet too big messages.
        namespace.run("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
        image = build.image("memcached", "image")
        with Machine(image, arguments=words, mac=CARD_MAC, **namespace.card(2)) as machine:
            machine.wait_for_line("memcached: UDP on", START_SECONDS)
            machine.wait_for_line(f"net: address: {LOCAL}", START_SECONDS)
            made = World(namespace, machine)
            made.announce(PREFIX)
            machine.wait_for_line(f"net: address: {OWN}", START_SECONDS)
            yield made


def test_an_advertised_prefix_makes_an_address_that_status_shows(world: World) -> None:
    assert world.addresses() == {LOCAL, OWN}


@pytest.mark.parametrize("size", [56, 4000], ids=["in_one_packet", "in_fragments"])
def test_the_kernel_pings_all_addresses(world: World, size: int) -> None:
    world.ping(f"{LOCAL}%{TAP}", size=size)
    world.ping(OWN, size=size)


def test_each_side_finds_and_keeps_its_neighbour(world: World) -> None:
    with world.watched() as lines:
        # The kernel asks for the card's address, and confirms it.
        world.namespace.run(f"ip -6 neigh flush dev {TAP}")
        world.ping(OWN)
        assert re.search(rf"{OWN} dev {TAP} lladdr {CARD_MAC} .*REACHABLE", world.namespace.run("ip -6 neigh"))
        # The card's machine asks for a new address of the kernel. The kernel knows the machine, so its requests do not tell the address.
        world.namespace.run(f"ip addr add {OTHER6}/64 dev {TAP} nodad")
        world.ping(OWN, words=f"-I {OTHER6}")
    assert f"{NEIGHBOUR_SOLICITATION} {OTHER6}" in lines, lines
    assert any(line == f"136 {OWN}" for line in lines), lines


def test_udp_is_answered(world: World) -> None:
    assert world.python(ASK_UDP, OWN) == "same\n"
    assert world.python(ASK_UDP, f"{LOCAL}%{TAP}") == "same\n"


# tcp_ipv6_test.py has more of TCP, with an address that is set by a word.
def test_tcp_is_answered(world: World) -> None:
    for address in (OWN, f"{LOCAL}%{TAP}"):
        assert "VERSION " in world.python(ASK_TCP, address), address


# RFC 4862, 5.4: the kernel has the address that the machine makes from a further prefix, and then asks for the machine's own.
def test_neither_side_uses_an_address_of_the_other(world: World) -> None:
    world.namespace.run(f"ip addr add {TAKEN}/64 dev {TAP} nodad")
    world.announce(TAKEN_PREFIX)
    world.machine.wait_for_line(f"net: another machine has this machine's IPv6 address: {TAKEN}", START_SECONDS)
    assert world.addresses() == {LOCAL, OWN}
    assert int(world.ask("stats")["net.ipv6_conflicts"]) > 0
    world.namespace.run(f"ip addr add {OWN}/128 dev {TAP}")
    script = f"for i in $(seq 100); do ip -6 addr show dev {TAP} | grep '{OWN}/128.*dadfailed' && exit; sleep 0.1; done; exit 1"
    assert "tentative" in world.namespace.run(script)
    world.namespace.run(f"ip addr del {OWN}/128 dev {TAP}; ip addr del {TAKEN}/64 dev {TAP}")
    world.ping(OWN)


def test_a_smaller_path_mtu_is_obeyed(world: World) -> None:
    assert int(world.ask("stats")["net.ipv6_mtu_reduced"]) == 0
    with Network(world.namespace) as far:
        world.namespace.run(f"""set -e
            ip link add way mtu {FAR_MTU} type veth peer name far mtu {FAR_MTU} netns {far.pid}
            ip link set way up
            ip addr add {FAR_PREFIX}1/64 dev way nodad""")
        far.run(f"""set -e
            ip link set far up
            ip addr add {FAR6}/64 dev far nodad
            ip -6 route add default via {FAR_PREFIX}1""")
        world.ping(OWN, network=far)
        with world.watched() as lines:
            assert world.python(ASK_UDP, OWN, network=far) == "same\n"
    assert int(world.ask("stats")["net.ipv6_mtu_reduced"]) >= 1
    fragments = [int(line.split()[1]) for line in lines if line.startswith("fragment")]
    assert fragments and FAR_MTU - 8 < max(fragments) - 14 <= FAR_MTU, lines
