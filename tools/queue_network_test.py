# SPDX-License-Identifier: BSL-1.0
"""Tests of the wire with several queues: the devices pass frames, and nothing is left."""

import fcntl
import os
import select
import struct
import subprocess

import pytest

from tools import queue_network
from tools.errors import Failure

TUNGETIFF = 0x800454D2
NET_HEADER_BYTES = 10  # QEMU sets the longer one of virtio 1.0
BROADCAST = b"\xff" * 6 + bytes.fromhex("020000000001") + b"\x88\xb5" + bytes(range(200))


def read_soon(file: int) -> bytes:
    ready, _, _ = select.select([file], [], [], 10)
    return os.read(file, 4096) if ready else b""


@pytest.mark.parametrize("queues", [1, 4])
def test_a_frame_passes_from_the_wire_to_a_queue_and_back(queues: int) -> None:
    with queue_network.joined(queues) as (card, wire):
        assert len(card) == queues
        for file in card:
            flags = struct.unpack_from("H", fcntl.ioctl(file, TUNGETIFF, bytes(40)), 16)[0]
            assert flags & queue_network.NET_HEADER
            assert bool(flags & queue_network.MULTI_QUEUE) == (queues > 1)
        os.write(card[-1], bytes(NET_HEADER_BYTES) + BROADCAST)
        assert read_soon(wire) == BROADCAST
        os.write(wire, BROADCAST.replace(b"\x02", b"\x06", 1))
        ready, _, _ = select.select(card, [], [], 10)
        assert len(ready) == 1
        assert os.read(ready[0], 4096)[NET_HEADER_BYTES:].startswith(b"\xff" * 6)


def test_the_devices_are_not_on_this_host_and_end_with_the_wire() -> None:
    with queue_network.joined(2) as (card, wire):
        names = os.listdir("/sys/class/net")
        assert queue_network.CARD not in names and queue_network.BRIDGE not in names
    for file in (*card, wire):
        with pytest.raises(OSError):
            os.fstat(file)


def test_a_host_that_forbids_it_is_an_error_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    real = queue_network.spawn

    def forbidden(argv: list[str], **popen: object) -> subprocess.Popen:
        return real(["sh", "-c", "echo unshare failed: Operation not permitted >&2; exit 1"], **popen)

    monkeypatch.setattr(queue_network, "spawn", forbidden)
    with pytest.raises(Failure, match="does not let this user") as failed, queue_network.joined(2):
        pass
    assert "Operation not permitted" in "".join(failed.value.details)
