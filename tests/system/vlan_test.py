# SPDX-License-Identifier: BSL-1.0
"""Frames of a VLAN, with the host's kernel as the peer: the tags on the wire, and IP and TCP traffic with the image over it."""

import sys
from collections.abc import Iterator

import pytest
from linux_guest.namespace import TAP, Namespace

from tools import build
from tools.machine import SOFT_CARD, Machine
from tools.process import kill_session, output_of

pytestmark = [pytest.mark.image_only, pytest.mark.names_the_82599]

TAG = 7
HOST, IMAGE = "10.0.7.1", "10.0.7.2"
CARD_MAC = "02:82:59:90:00:07"
START_SECONDS = 60
# A frame may be lost, so each request is repeated until it is answered.
PATIENCE_SECONDS = 60
# The program WATCH must see at least this many of some 200 tagged frames.
TAGS_MIN = 10

# Prints the tag of each frame from the card; 0 for a frame without a tag. The kernel removes tags and reports them separately (packet(7)).
WATCH = """
import socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.setsockopt(263, 8, 1)  # SOL_PACKET, PACKET_AUXDATA
wire.bind((sys.argv[1], 0))
card = bytes.fromhex(sys.argv[2].replace(":", ""))
print("ready", flush=True)
while True:
    frame, extra, _flags, _address = wire.recvmsg(65536, 256)
    if frame[6:12] == card:
        print(*(int.from_bytes(data[16:18], sys.byteorder) for level, kind, data in extra if (level, kind) == (263, 8)), flush=True)
"""

# memcached's text protocol: a value of many segments, sent and fetched.
ASK = """
import random, socket, sys
value = random.Random(7).randbytes(300_000)
with socket.create_connection((sys.argv[1], 11211), 60) as connection:
    connection.settimeout(60)
    connection.sendall(b"set tagged 0 0 %d\\r\\n%s\\r\\nget tagged\\r\\n" % (len(value), value))
    expected = b"STORED\\r\\nVALUE tagged 0 %d\\r\\n%s\\r\\nEND\\r\\n" % (len(value), value)
    answer = b""
    while len(answer) < len(expected):
        answer += connection.recv(1 << 16) or sys.exit("closed too early")
assert answer == expected
print("same")
"""


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        yield made


def test_a_foreign_kernel_talks_to_the_image_over_a_vlan_and_sees_its_tag(namespace: Namespace) -> None:
    card = namespace.program(SOFT_CARD)
    words = [f"ip={IMAGE}/24", f"vlan={TAG}"]
    with (
        namespace.tagged(TAG, f"{HOST}/24"),
        Machine(build.image("memcached", "image"), cores=2, arguments=words, net=f"tap:{TAP}", mac=CARD_MAC, soft_card=card) as machine,
    ):
        # WATCH starts only after this line, because the image first announces its address without a tag.
        machine.wait_for_line("memcached: listening on", START_SECONDS)
        watcher = namespace.spawn([sys.executable, "-c", WATCH, TAP, CARD_MAC])
        try:
            assert watcher.stdout.readline() == b"ready\n"
            namespace.run(f"ping -c 1 -w {PATIENCE_SECONDS} {IMAGE}", seconds=PATIENCE_SECONDS + 30)
            assert output_of(namespace.inside([sys.executable, "-c", ASK, IMAGE]), timeout_seconds=200) == "same\n"
            # These requests use the same wire without a tag. The image does not answer them.
            namespace.run(f"ip addr add 10.0.7.9/32 dev {TAP} && ip route add {IMAGE}/32 dev {TAP} src 10.0.7.9")
            assert "100% packet loss" in namespace.run(f"ping -c 3 -i 0.2 -W 2 {IMAGE} || true")
        finally:
            kill_session(watcher)
        tags = watcher.stdout.read().split()
        assert len(tags) > TAGS_MIN and set(tags) == {b"%d" % TAG}
        assert machine.card_command("violations")["total"] == 0
