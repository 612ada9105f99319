# SPDX-License-Identifier: BSL-1.0
"""Jumbo frames and small packets between the image and the host's kernel: MSS, whole frames in both directions, pings, refused values."""

import sys

import pytest
from linux_guest.namespace import TAP, Namespace

from tools import build
from tools.machine import Machine
from tools.process import output_of

pytestmark = pytest.mark.image_only

HOST, IMAGE = "10.0.9.1", "10.0.9.2"
HOST6, IMAGE6 = "fd00:9::1", "fd00:9::2"
START_SECONDS = 60
PATIENCE_SECONDS = 100
VALUE_BYTES = 900_000
ETHERNET_BYTES, TIMESTAMPS_BYTES = 14, 12
IPV6_MTU_MIN = 1280
HEADERS_BYTES = {IMAGE: 40, IMAGE6: 60}  # of IP and TCP

# memcached's text protocol: a long value, sent and fetched. Prints the kernel's MSS of both directions, and the longest frames from and to
# the image.
EXCHANGE = """
import random, socket, struct, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
wire.bind((sys.argv[2], 0))
wire.setblocking(False)
value = random.Random(9).randbytes(int(sys.argv[3]))
expected = b"STORED\\r\\nVALUE large 0 %d\\r\\n%s\\r\\nEND\\r\\n" % (len(value), value)
longest = [0, 0]
def look():
    while True:
        try:
            frame, _, _, address = wire.recvmsg(70000)
        except BlockingIOError:
            return
        outgoing = address[2] == socket.PACKET_OUTGOING
        longest[outgoing] = max(longest[outgoing], len(frame))
with socket.create_connection((sys.argv[1], 11211), 60) as connection:
    connection.settimeout(60)
    connection.sendall(b"set large 0 0 %d\\r\\n%s\\r\\nget large\\r\\n" % (len(value), value))
    got = bytearray()
    while len(got) < len(expected):
        got += connection.recv(1 << 20) or sys.exit("closed too early")
        look()
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)  # struct tcp_info of linux/tcp.h
    send_mss, receive_mss = struct.unpack_from("II", info, 16)
assert got == expected
print(send_mss, receive_mss, *longest)
"""


@pytest.mark.parametrize("mtu", [9000, 576])
def test_segments_fill_the_packets_of_the_mtu(mtu: int) -> None:
    addresses = [IMAGE, IMAGE6] if mtu >= IPV6_MTU_MIN else [IMAGE]
    words = [f"ip={IMAGE}/24", f"ip6={IMAGE6}/64" if IMAGE6 in addresses else "ip6=off", f"mtu={mtu}", "memory=64M"]
    with (
        Namespace(f"{HOST}/24", f"{HOST6}/64", mtu=max(mtu, 1500)) as namespace,
        Machine(build.image("memcached", "image"), arguments=words, **namespace.card(2, joins=False)) as machine,
    ):
        machine.wait_for_line(rf"net: {IMAGE}/24 .*, MTU {mtu}", START_SECONDS)
        machine.wait_for_line("memcached: listening on", START_SECONDS)
        for address in addresses:
            argv = namespace.inside([sys.executable, "-c", EXCHANGE, address, TAP, str(VALUE_BYTES)])
            found = [int(word) for word in output_of(argv, timeout_seconds=PATIENCE_SECONDS).split()]
            # The kernel's numbers are without the option of timestamps.
            full = mtu - HEADERS_BYTES[address] - TIMESTAMPS_BYTES
            assert found[:2] == [full, full], (address, found)
            assert found[2:] == [mtu + ETHERNET_BYTES] * 2, (address, found)
            # One packet each way, and one in fragments. Eight bytes are ICMP's header.
            for payload in (mtu - HEADERS_BYTES[address] + 12, 20_000):
                assert " 0% packet loss" in namespace.run(f"ping -c 2 -i 0.2 -w {PATIENCE_SECONDS} -s {payload} {address}"), payload
        answer = output_of(namespace.inside([sys.executable, str(build.REPOSITORY / "neap"), "ctl", IMAGE, "status"]))
        assert f"; mtu={mtu};" in answer
