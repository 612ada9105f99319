# SPDX-License-Identifier: BSL-1.0
"""Packets as bytes: IPv4 with TCP, UDP or ICMP (RFC 791, 792, 768, 9293)."""

import ipaddress
import struct

from tools.checksums import checksum, transport_checksum
from tools.packetdrill.notation import ECN, FLAGS, Icmp, IpInfo, Option, Packet, Tcp, Udp

TCP, UDP, ICMP = 6, 17, 1
DONT_FRAGMENT, MORE_FRAGMENTS = 0x4000, 0x2000
OPTION_CODES = {"eol": 0, "nop": 1, "mss": 2, "wscale": 3, "sackOK": 4, "sack": 5, "TS": 8}


def pattern(first: int, length: int, salt: int) -> bytes:
    """The bytes of a stream from its offset `first` on. They repeat after 251 bytes, which divides no usual segment size."""
    begin = (first + salt) % 251
    return (_BYTES * (length // 251 + 2))[begin : begin + length]


_BYTES = bytes(range(251))


def encode_options(options: list[Option]) -> bytes:
    data = b""
    for option in options:
        code = OPTION_CODES.get(option.kind)
        if option.kind == "raw":
            data += bytes(option.values)
        elif code in (0, 1):
            data += bytes([code])
        else:
            form = {"mss": "H", "wscale": "B", "sackOK": "", "TS": "II"}.get(option.kind, f"{len(option.values)}I")
            body = struct.pack("!" + form, *option.values)
            data += bytes([code or 0, 2 + len(body)]) + body
    return data + bytes(-len(data) % 4)


def decode_options(data: bytes) -> list[Option]:
    options, at = [], 0
    names = {code: name for name, code in OPTION_CODES.items()}
    while at < len(data):
        code = data[at]
        if code in (0, 1):
            options.append(Option(names[code]))
            at += 1
            continue
        length = data[at + 1] if at + 1 < len(data) else 0
        body = data[at + 2 : at + length]
        name = names.get(code)
        form = {"mss": "H", "wscale": "B", "sackOK": "", "TS": "II", "sack": f"{len(body) // 4}I"}.get(name or "")
        if length < 2 or form is None or struct.calcsize("!" + form) != len(body):
            options.append(Option("raw", tuple(data[at:])))
            return options
        options.append(Option(name or "", struct.unpack("!" + form, body)))
        at += length
    return options


def _ip(protocol: int, info: IpInfo, source: str, destination: str, body: bytes) -> bytes:
    tos = info.tos if info.tos is not None else info.ecn or ECN["noecn"]
    flags = MORE_FRAGMENTS if info.more_fragments else DONT_FRAGMENT if info.df is None or info.df else 0
    addresses = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(destination).packed
    header = struct.pack("!BBHHHBBH", 0x45, tos, 20 + len(body), 0, flags, info.ttl or 64, protocol, 0) + addresses
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + body


def _transport(protocol: int, source: str, destination: str, body: bytes, at: int, bad: bool) -> bytes:
    """Fills in the checksum at offset `at`."""
    addresses = ipaddress.IPv4Address(source).packed, ipaddress.IPv4Address(destination).packed
    value = transport_checksum(protocol, *addresses, body) ^ (1 if bad else 0)
    return body[:at] + struct.pack("!H", value) + body[at + 2 :]


def tcp_header(packet: Tcp, ports: tuple[int, int]) -> bytes:
    options = encode_options(packet.options or [])
    return (
        struct.pack("!HHII", *ports, packet.seq % 2**32, (packet.ack or 0) % 2**32)
        + struct.pack("!HHHH", (20 + len(options)) // 4 << 12 | packet.flags, packet.window or 0, 0, packet.urgent or 0)
        + options
    )


def encode(packet: Packet, source: str, destination: str, ports: tuple[int, int]) -> bytes:
    """Returns the IP packet. Numbers of TCP are those of the wire. `ports` are those of the packet; for ICMP, of the packet in it."""
    source, destination = packet.ip.source or source, packet.ip.destination or destination
    if isinstance(packet, Tcp):
        body = tcp_header(packet, ports) + packet.payload
        return _ip(TCP, packet.ip, source, destination, _transport(TCP, source, destination, body, 16, packet.ip.bad_checksum))
    if isinstance(packet, Udp):
        body = struct.pack("!HHHH", *ports, 8 + packet.length, 0) + pattern(0, packet.length, 0)
        return _ip(UDP, packet.ip, source, destination, _transport(UDP, source, destination, body, 6, packet.ip.bad_checksum))
    quoted = b""
    if packet.echoed:
        # As a router returns it: the IP header and the first 8 bytes behind it (RFC 792).
        whole = _ip(TCP, IpInfo(), destination, source, tcp_header(packet.echoed, ports) + bytes(packet.echoed.length))
        quoted = whole[:28]
    body = struct.pack("!BBHHH", packet.type, packet.code, 0, 0, packet.mtu or 0) + quoted
    return _ip(ICMP, packet.ip, source, destination, body[:2] + struct.pack("!H", checksum(body)) + body[4:])


def decode(data: bytes) -> Packet | str:
    """Reads a packet of the machine and checks its checksums. Returns a description if it is none that a script can name."""
    if len(data) < 20 or data[0] >> 4 != 4:
        return f"bytes that are no IPv4 packet: {data[:40].hex()}"
    header_bytes = (data[0] & 15) * 4
    tos, total, _, fragment, ttl, protocol = struct.unpack("!xBHHHBB", data[:10])
    if total != len(data) or checksum(data[:header_bytes]) != 0:
        return "an IPv4 packet with a wrong length or checksum"
    source_ip, destination_ip = (str(ipaddress.IPv4Address(data[at : at + 4])) for at in (12, 16))
    info = IpInfo(tos & 3, tos, ttl, bool(fragment & DONT_FRAGMENT), source_ip, destination_ip)
    body = data[header_bytes:]
    if fragment & 0x3FFF:
        return f"a fragment of an IPv4 packet, {len(data)} bytes"
    if protocol == ICMP and len(body) >= 8:
        return Icmp(body[0], body[1], struct.unpack("!H", body[6:8])[0] if body[:2] == b"\x03\x04" else None, None, info)
    sum_of = transport_checksum(protocol, data[12:16], data[16:20], body)
    if protocol == UDP and len(body) >= 8:
        return Udp(len(body) - 8, struct.unpack("!HH", body[:4]), info)
    if protocol != TCP or len(body) < 20:
        return f"an IPv4 packet of protocol {protocol}"
    if sum_of != 0:
        return "a TCP segment with a wrong checksum"
    source, destination, seq, ack, bits, window, _, urgent = struct.unpack("!HHIIHHHH", body[:20])
    data_at = (bits >> 12) * 4
    flags = bits & 0x1FF
    return Tcp(
        flags,
        seq,
        len(body) - data_at,
        ack if flags & FLAGS["."] else None,
        window,
        urgent if flags & FLAGS["U"] else None,
        options=decode_options(body[20:data_at]),
        ports=(source, destination),
        ip=info,
        payload=body[data_at:],
    )
