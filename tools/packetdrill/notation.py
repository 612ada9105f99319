# SPDX-License-Identifier: BSL-1.0
"""Packets as packetdrill writes them: `S. 0:0(0) ack 1 win 65535 <mss 1460,nop,wscale 7>`.

The same classes describe a packet of a script and a packet of the machine, so that a failure shows both in one notation.
"""

import dataclasses
import re

# Bits of the flags' 12-bit field. Letters and bits as packetdrill has them: AE (RFC 3540's NS), CWR, ECE, URG, ACK, PSH, RST, SYN, FIN.
FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, ".": 16, "U": 32, "E": 64, "W": 128, "A": 256}
FLAG_ORDER = "SFRPUEWA."
ECN = {"noecn": 0, "ect1": 1, "ect0": 2, "ce": 3}
ECN_NAMES = {value: name for name, value in ECN.items()}

ICMP_TYPES = {"echo_reply": 0, "unreachable": 3, "source_quench": 4, "redirect": 5, "echo_request": 8, "time_exceeded": 11}
ICMP_CODES = {
    "net_unreachable": 0,
    "host_unreachable": 1,
    "protocol_unreachable": 2,
    "port_unreachable": 3,
    "frag_needed": 4,
    "source_route_failed": 5,
    "net_unreachable_for_tos": 11,
    "host_unreachable_for_tos": 12,
    "packet_filtered": 13,
    "exc_ttl": 0,
    "exc_fragtime": 1,
}


class SyntaxFailure(Exception):
    """A script's text is wrong."""


@dataclasses.dataclass(frozen=True)
class Option:
    """A TCP option: `kind` is its name in the notation, `values` its numbers. `raw` has its bytes in `values`."""

    kind: str
    values: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.kind == "TS":
            return f"TS val {self.values[0]} ecr {self.values[1]}"
        if self.kind == "sack":
            return "sack " + " ".join(f"{first}:{end}" for first, end in zip(self.values[::2], self.values[1::2], strict=True))
        if self.kind == "raw":
            return "raw " + " ".join(f"{value:02x}" for value in self.values)
        return " ".join([self.kind, *map(str, self.values)])


@dataclasses.dataclass
class IpInfo:
    """Fields of the IP header. None: the usual value, and not compared."""

    ecn: int | None = None
    tos: int | None = None
    ttl: int | None = None
    df: bool | None = None
    source: str | None = None
    destination: str | None = None
    bad_checksum: bool = False
    more_fragments: bool = False

    def __str__(self) -> str:
        words = [ECN_NAMES[self.ecn]] if self.ecn is not None else []
        words += [f"tos {self.tos:#x}"] if self.tos is not None else []
        words += [f"ttl {self.ttl}"] if self.ttl is not None else []
        words += ["df" if self.df else "nodf"] if self.df is not None else []
        words += [f"from {self.source}"] if self.source else []
        words += [f"to {self.destination}"] if self.destination else []
        words += ["badsum"] if self.bad_checksum else []
        words += ["mf"] if self.more_fragments else []
        return f"[{','.join(words)}] " if words else ""


@dataclasses.dataclass
class Tcp:
    flags: int
    seq: int
    length: int
    ack: int | None = None
    window: int | None = None
    urgent: int | None = None
    options: list[Option] | None = dataclasses.field(default_factory=list)  # None: any options (`<...>`)
    further_options: bool = False  # `<mss 1460,...>`: these options, in any order, and any others
    ports: tuple[int, int] | None = None  # source, destination
    ip: IpInfo = dataclasses.field(default_factory=IpInfo)
    payload: bytes = b""

    def __str__(self) -> str:
        letters = "".join(letter for letter in FLAG_ORDER if self.flags & FLAGS[letter]) or "-"
        text = str(self.ip)
        text += f"{self.ports[0]}>{self.ports[1]} " if self.ports else ""
        text += f"{letters} {self.seq}:{self.seq + self.length}({self.length})"
        text += f" ack {self.ack}" if self.ack is not None else ""
        text += f" win {self.window}" if self.window is not None else ""
        text += f" urg {self.urgent}" if self.urgent is not None else ""
        if self.options is None:
            return text + " <...>"
        return text + (f" <{','.join(map(str, self.options))}>" if self.options else "")


@dataclasses.dataclass
class Udp:
    length: int
    ports: tuple[int, int] | None = None
    ip: IpInfo = dataclasses.field(default_factory=IpInfo)

    def __str__(self) -> str:
        return f"{self.ip}udp " + (f"{self.ports[0]}>{self.ports[1]} " if self.ports else "") + f"({self.length})"


@dataclasses.dataclass
class Icmp:
    type: int
    code: int
    mtu: int | None = None
    echoed: Tcp | None = None  # the TCP header that caused it
    ip: IpInfo = dataclasses.field(default_factory=IpInfo)

    def __str__(self) -> str:
        name = next((name for name, value in ICMP_TYPES.items() if value == self.type), str(self.type))
        codes = {value: key for key, value in ICMP_CODES.items() if key.startswith("exc_") == (self.type == ICMP_TYPES["time_exceeded"])}
        text = f"{self.ip}icmp {name}" + (f" {codes.get(self.code, self.code)}" if self.type in (3, 11) else "")
        text += f" mtu {self.mtu}" if self.mtu is not None else ""
        return text + (f" [{self.echoed.seq}:{self.echoed.seq + self.echoed.length}({self.echoed.length})]" if self.echoed else "")


Packet = Tcp | Udp | Icmp


def parse_packet(text: str) -> Packet:
    """Reads a packet without its direction. Raises SyntaxFailure."""
    rest = text.strip()
    info = IpInfo()
    if match := re.match(r"\[([^\]]*)\]\s*", rest):
        info = _ip_info(match[1])
        rest = rest[match.end() :]
    if match := re.match(r"udp\s+(?:(\d+)\s*>\s*(\d+)\s+)?\((\d+)\)$", rest):
        return Udp(int(match[3]), (int(match[1]), int(match[2])) if match[1] else None, info)
    if rest.startswith("icmp"):
        return _icmp(rest, info)
    match = re.match(
        r"(?:(\d+)\s*>\s*(\d+)\s+)?([FSRP.UEWA]+|-)\s+(\d+):(\d+)\((\d+)\)(?:\s+ack\s+(\d+))?(?:\s+win\s+(\d+))?(?:\s+urg\s+(\d+))?"
        r"\s*(?:<(.*)>)?\s*$",
        rest,
    )
    if not match:
        raise SyntaxFailure(f"not a packet: {rest}")
    ports, flags = match[1] and (int(match[1]), int(match[2])), 0
    for letter in match[3].replace("-", ""):
        flags |= FLAGS[letter]
    seq, end, length = int(match[4]), int(match[5]), int(match[6])
    if (end - seq) % 2**32 != length:
        raise SyntaxFailure(f"{seq}:{end} has not the length {length}")
    if (flags & FLAGS["."] != 0) != (match[7] is not None) and not flags & FLAGS["R"]:
        raise SyntaxFailure("'.' and 'ack' come together")
    text_of_options = match[10] or ""
    further = text_of_options.endswith(",...")
    options = None if text_of_options == "..." else parse_options(text_of_options.removesuffix(",..."))
    number = [int(match[i]) if match[i] else None for i in (7, 8, 9)]
    return Tcp(flags, seq, length, *number, options=options, further_options=further, ports=ports or None, ip=info)


def _ip_info(text: str) -> IpInfo:
    info = IpInfo()
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, _, value = word.partition(" ")
        if name in ECN:
            info.ecn = ECN[name]
        elif name == "tos" and value:
            info.tos = int(value, 0)
        elif name == "ttl" and value.isdigit():
            info.ttl = int(value)
        elif name in ("df", "nodf"):
            info.df = name == "df"
        elif name == "from" and value:
            info.source = value
        elif name == "to" and value:
            info.destination = value
        elif name == "badsum":
            info.bad_checksum = True
        elif name == "mf":
            info.more_fragments, info.df = True, False
        else:
            raise SyntaxFailure(f"[{word}] is no field of the IP header")
    return info


def _icmp(text: str, info: IpInfo) -> Icmp:
    match = re.match(r"icmp\s+(\w+)(?:\s+(?!mtu\b|id\b)(\w+))?(?:\s+mtu\s+(\d+))?(?:\s*\[(\d+):(\d+)\((\d+)\)\])?$", text)
    if not match or match[1] not in ICMP_TYPES or (match[2] or "exc_ttl") not in ICMP_CODES:
        raise SyntaxFailure(f"not an ICMP packet: {text}")
    echoed = Tcp(FLAGS["."], int(match[4]), int(match[6]), 1) if match[4] else None
    return Icmp(ICMP_TYPES[match[1]], ICMP_CODES[match[2]] if match[2] else 0, int(match[3]) if match[3] else None, echoed, info)


def parse_options(text: str) -> list[Option]:
    """Reads the list between `<` and `>`."""
    options = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        if word in ("nop", "eol", "sackOK"):
            options.append(Option(word))
        elif match := re.fullmatch(r"(mss|wscale) (\d+)", word):
            options.append(Option(match[1], (int(match[2]),)))
        elif match := re.fullmatch(r"TS val (\d+) ecr (\d+)", word):
            options.append(Option("TS", (int(match[1]), int(match[2]))))
        elif match := re.fullmatch(r"sack((?: \d+:\d+)+)", word):
            options.append(Option("sack", tuple(int(number) for number in re.findall(r"\d+", match[1]))))
        elif match := re.fullmatch(r"FO(?: ([0-9a-f]*))?", word):
            options.append(Option("raw", (34, 2 + len(match[1] or "") // 2, *bytes.fromhex(match[1] or ""))))
        elif match := re.fullmatch(r"raw((?: [0-9a-f]{2})+)", word):
            options.append(Option("raw", tuple(bytes.fromhex(match[1]))))
        else:
            raise SyntaxFailure(f"not a TCP option: {word}")
    return options
