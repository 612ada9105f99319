# SPDX-License-Identifier: BSL-1.0
"""The checksums of IPv4, ICMP, TCP and UDP (RFC 1071, 791, 768, 9293), for programs that write packets themselves."""

import struct


def checksum(data: bytes) -> int:
    """Returns the Internet checksum. It is 0 for bytes that contain their own valid checksum."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def transport_checksum(protocol: int, source: bytes, destination: bytes, body: bytes) -> int:
    """Returns the checksum of a TCP segment or UDP datagram with the pseudo-header. Addresses have 4 bytes (IPv4) or 16 (IPv6)."""
    return checksum(source + destination + struct.pack("!II", len(body), protocol) + body)
