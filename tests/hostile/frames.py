# SPDX-License-Identifier: BSL-1.0
"""Ethernet, ARP, IPv4, TCP, UDP and IPv6 frames as bytes, valid or not: the caller sets every field. Formats: RFC 826, 791, 9293, 768,
8200, 4861."""

import socket
import struct
from dataclasses import dataclass

from tools.checksums import checksum, transport_checksum

ETHERTYPE_IP, ETHERTYPE_ARP, ETHERTYPE_IPV6 = 0x0800, 0x0806, 0x86DD
PROTOCOL_TCP, PROTOCOL_UDP, PROTOCOL_ICMPV6 = 6, 17, 58
ROUTER_ADVERTISEMENT = 134
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
SEQUENCE_MASK = 0xFFFFFFFF
# Payload of an IP fragment: a multiple of 8, as RFC 791 requires, that fits into 1,500 bytes.
FRAGMENT_BYTES = 1480

_IP = struct.Struct("!BBHHHBBH4s4s")
_TCP = struct.Struct("!HHIIBBHHH")
_ARP = struct.Struct("!HHBBH6s4s6s4s")


@dataclass(frozen=True)
class Segment:
    source: tuple[str, int]
    destination: tuple[str, int]
    sequence: int
    acknowledgement: int
    flags: int
    window: int
    payload: bytes


def ethernet(destination: bytes, source: bytes, ethertype: int, payload: bytes) -> bytes:
    return destination + source + struct.pack("!H", ethertype) + payload


def arp_reply(mac: bytes, address: bytes, target_mac: bytes, target_address: bytes) -> bytes:
    return ethernet(target_mac, mac, ETHERTYPE_ARP, _ARP.pack(1, ETHERTYPE_IP, 6, 4, 2, mac, address, target_mac, target_address))


def ip_packets(source: str, destination: str, protocol: int, payload: bytes, *, identification: int = 0) -> list[bytes]:
    """Returns one packet, or its fragments if the payload does not fit into one frame."""
    packets = []
    for at in range(0, max(1, len(payload)), FRAGMENT_BYTES):
        piece = payload[at : at + FRAGMENT_BYTES]
        more = 0x2000 if at + FRAGMENT_BYTES < len(payload) else 0
        addresses = socket.inet_aton(source), socket.inet_aton(destination)
        head = _IP.pack(0x45, 0, 20 + len(piece), identification, more | at // 8, 64, protocol, 0, *addresses)
        packets.append(head[:10] + struct.pack("!H", checksum(head)) + head[12:] + piece)
    return packets


def tcp(
    source: tuple[str, int], destination: tuple[str, int], sequence: int, acknowledgement: int, flags: int, window: int,
    payload: bytes = b"", options: bytes = b"",
) -> bytes:  # fmt: skip
    """Returns a segment with a valid checksum. `options`: a multiple of four bytes."""
    sequence, acknowledgement = sequence & SEQUENCE_MASK, acknowledgement & SEQUENCE_MASK
    offset = (20 + len(options)) // 4 << 4
    segment = _TCP.pack(source[1], destination[1], sequence, acknowledgement, offset, flags, window, 0, 0) + options + payload
    value = transport_checksum(PROTOCOL_TCP, socket.inet_aton(source[0]), socket.inet_aton(destination[0]), segment)
    return segment[:16] + struct.pack("!H", value) + segment[18:]


def udp(source: tuple[str, int], destination: tuple[str, int], payload: bytes) -> bytes:
    """Returns a datagram without a checksum, which IPv4 allows."""
    return struct.pack("!HHHH", source[1], destination[1], 8 + len(payload), 0) + payload


def icmpv6(source: str, destination: str, message: bytes, *, hops: int = 255) -> bytes:
    """Returns a packet of IPv6 with an ICMPv6 message, whose checksum is filled in."""
    addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, destination)
    pseudo = addresses + struct.pack("!II", len(message), PROTOCOL_ICMPV6)
    message = message[:2] + struct.pack("!H", checksum(pseudo + message)) + message[4:]
    return struct.pack("!IHBB", 6 << 28, len(message), PROTOCOL_ICMPV6, hops) + addresses + message


def router_advertisement(mac: bytes, router: str, prefix: str, *, mtu: int, lifetime_seconds: int = 1800) -> bytes:
    """Returns a frame to all nodes (RFC 4861, 4.2). `router`: its link-local address. `prefix`: of 64 bits, on link, for addresses."""
    source = struct.pack("!BB6s", 1, 1, mac)
    link = struct.pack("!BBHI", 5, 1, 0, mtu)
    on_link_and_autonomous = 0xC0
    of_prefix = struct.pack("!BBBBIII", 3, 4, 64, on_link_and_autonomous, 2 * lifetime_seconds, lifetime_seconds, 0)
    of_prefix += socket.inet_pton(socket.AF_INET6, prefix)
    message = struct.pack("!BBHBBHII", ROUTER_ADVERTISEMENT, 0, 0, 64, 0, lifetime_seconds, 0, 0) + source + link + of_prefix
    return ethernet(bytes.fromhex("333300000001"), mac, ETHERTYPE_IPV6, icmpv6(router, "ff02::1", message))


def mss_option(mss: int) -> bytes:
    return struct.pack("!BBH", 2, 4, mss)


def parse_tcp(frame: bytes) -> Segment | None:
    """Returns the TCP segment in an Ethernet frame; None if there is none."""
    if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != PROTOCOL_TCP:
        return None
    at = 14 + (frame[14] & 0xF) * 4
    end = 14 + int.from_bytes(frame[16:18], "big")
    if end > len(frame) or at + 20 > end:
        return None
    source_port, destination_port, sequence, acknowledgement, offset, flags, window, _sum, _urgent = _TCP.unpack_from(frame, at)
    addresses = socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34])
    payload = frame[at + (offset >> 4) * 4 : end]
    return Segment((addresses[0], source_port), (addresses[1], destination_port), sequence, acknowledgement, flags, window, payload)
