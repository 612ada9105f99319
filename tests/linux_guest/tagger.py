# SPDX-License-Identifier: BSL-1.0
"""A VLAN for a kernel without VLAN support: `python3 tagger.py DEVICE TAG NAME` makes a device NAME for DEVICE's frames with that tag.

The machine that runs the tests may lack the module for VLANs, or the right to load it. So this program tags frames itself (IEEE 802.1Q).
Frames that the kernel sends on NAME leave DEVICE with the tag. Frames that DEVICE receives with the tag arrive on NAME without it. The
program prints one line when the device exists, and runs until it is killed, which removes the device. A frame is lost if a device is down
or a queue is full, as on a wire.
"""

import contextlib
import fcntl
import os
import select
import socket
import struct
import sys

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 263, 8, 23
TAGGED = 0x8100
ADDRESSES_BYTES, FRAME_BYTES = 12, 65536
# struct tpacket_auxdata: the kernel removes a tag before this program sees the frame, and reports it here.
AUXDATA = struct.Struct("=IIIHHHH")


def main(device: str, tag: int, name: str) -> None:
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    wire.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    wire.bind((device, 0))
    print("ready", flush=True)
    while True:
        ready = select.select([tap, wire], [], [])[0]
        if tap in ready:
            frame = os.read(tap, FRAME_BYTES)
            with contextlib.suppress(OSError):
                wire.send(frame[:ADDRESSES_BYTES] + struct.pack("!HH", TAGGED, tag) + frame[ADDRESSES_BYTES:])
        if wire in ready:
            frame, extra, _flags, _address = wire.recvmsg(FRAME_BYTES, 256)
            for level, kind, data in extra:
                if (level, kind) == (SOL_PACKET, PACKET_AUXDATA) and AUXDATA.unpack(data[: AUXDATA.size])[5] & 0xFFF == tag:
                    with contextlib.suppress(OSError):
                        os.write(tap, frame)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
