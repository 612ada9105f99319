# SPDX-License-Identifier: BSL-1.0
"""Frames to ixgbe_echo.cpp, and the answers that it must give."""

import random
import socket
import struct

from hostile import frames

CARD_MAC = bytes.fromhex("028259900042")
PEER_MAC = bytes.fromhex("020000000001")
CARD_ADDRESS, PEER_ADDRESS = "10.0.0.2", "10.0.0.1"
CARD_IP, PEER_IP = socket.inet_aton(CARD_ADDRESS), socket.inet_aton(PEER_ADDRESS)
CARD_IP6, PEER_IP6 = (socket.inet_pton(socket.AF_INET6, address) for address in ("fd00::2:82", "fd00::1:55"))
ETHERTYPE_IP6 = 0x86DD
TCP_WINDOW = 1000
ECHO = b"\x88\xb5"
STOP = b"\x88\xb6"
SET = b"\x88\xb7"


def echo_frame(number: int, size: int, seed: int = 0) -> bytes:
    content = random.Random(number * 1_000_003 + seed).randbytes(size - 18)
    return CARD_MAC + PEER_MAC + ECHO + struct.pack(">I", number) + content


def echoed(frame: bytes) -> bytes:
    return frame[6:12] + CARD_MAC + frame[12:]


def ip_frame(protocol: int, payload: bytes, identification: int = 0) -> bytes:
    packet = frames.ip_packets(PEER_ADDRESS, CARD_ADDRESS, protocol, payload, identification=identification & 0xFFFF)[0]
    return frames.ethernet(CARD_MAC, PEER_MAC, frames.ETHERTYPE_IP, packet)


def udp_frame(number: int, source_port: int, size: int) -> bytes:
    """Returns a UDP datagram with valid checksums, `size` bytes in all."""
    payload = struct.pack(">I", number) + random.Random(number).randbytes(size - 46)
    datagram = frames.udp((PEER_ADDRESS, source_port), (CARD_ADDRESS, 7), payload)
    pseudo = PEER_IP + CARD_IP + struct.pack(">BBH", 0, frames.PROTOCOL_UDP, len(datagram))
    checksum = struct.pack(">H", frames.checksum(pseudo + datagram) or 0xFFFF)
    return ip_frame(frames.PROTOCOL_UDP, datagram[:6] + checksum + datagram[8:], number)


def tcp_frame(
    payload: bytes, source_port: int, destination_port: int, sequence: int, acknowledgement: int = 1, identification: int = 0
) -> bytes:
    """Returns a TCP segment with valid checksums."""
    addresses = (PEER_ADDRESS, source_port), (CARD_ADDRESS, destination_port)
    return ip_frame(frames.PROTOCOL_TCP, frames.tcp(*addresses, sequence, acknowledgement, frames.ACK, TCP_WINDOW, payload), identification)


def udp_echoed(frame: bytes) -> bytes:
    """Returns the frame with addresses and ports swapped. The swap changes no checksum, so the card must compute the same checksums."""
    ip, udp = frame[14:34], frame[34:42]
    return frame[6:12] + CARD_MAC + frame[12:14] + ip[:12] + ip[16:20] + ip[12:16] + udp[2:4] + udp[:2] + udp[4:] + frame[42:]


def ip6_frame(protocol: int, header: bytes, checksum_at: int, payload: bytes) -> bytes:
    """Returns a frame of IPv6 whose transport `header` gets a valid checksum."""
    body = header + payload
    pseudo = PEER_IP6 + CARD_IP6 + struct.pack(">II", len(body), protocol)
    checksum = struct.pack(">H", frames.checksum(pseudo + body) or 0xFFFF)
    packet = struct.pack(">IHBB", 6 << 28, len(body), protocol, 64) + PEER_IP6 + CARD_IP6
    return frames.ethernet(CARD_MAC, PEER_MAC, ETHERTYPE_IP6, packet + body[:checksum_at] + checksum + body[checksum_at + 2 :])


def udp6_frame(number: int, source_port: int, size: int) -> bytes:
    """Returns a UDP datagram over IPv6 with a valid checksum, `size` bytes in all."""
    payload = struct.pack(">I", number) + random.Random(number).randbytes(size - 66)
    return ip6_frame(frames.PROTOCOL_UDP, struct.pack(">HHHH", source_port, 7, 8 + len(payload), 0), 6, payload)


def tcp6_frame(payload: bytes, source_port: int, destination_port: int, sequence: int, flags: int = frames.ACK) -> bytes:
    """Returns a TCP segment over IPv6 with a valid checksum."""
    header = struct.pack(">HHIIBBHHH", source_port, destination_port, sequence, 1, 5 << 4, flags, TCP_WINDOW, 0, 0)
    return ip6_frame(frames.PROTOCOL_TCP, header, 16, payload)


def ip6_echoed(frame: bytes) -> bytes:
    """Returns the frame of IPv6 with addresses and ports swapped, like udp_echoed."""
    return frame[6:12] + CARD_MAC + frame[12:22] + frame[38:54] + frame[22:38] + frame[56:58] + frame[54:56] + frame[58:]


def setting_frame(text: str) -> bytes:
    """Returns a frame that requests the change of a setting, or another action of the image."""
    return CARD_MAC + PEER_MAC + SET + text.encode().ljust(60, b"\0")
