# SPDX-License-Identifier: BSL-1.0
"""The numbers of a script and those of the wire.

A script counts the machine's sequence numbers from the number in the machine's SYN, and names the machine's timestamps as it likes. The
wire has the machine's own. The peer's numbers are the same in both.
"""

import dataclasses

from tools.packetdrill import wire
from tools.packetdrill.notation import FLAGS, Option, Tcp

OUT_SALT, IN_SALT = 0, 97
STAMP_OF_SYN = 100


@dataclasses.dataclass
class Flow:
    """One connection, by the ports of machine and peer."""

    offset: int = 0  # what the wire's sequence numbers of the machine have more than the script's
    machine_first: int = 0  # the script's number of the machine's SYN
    peer_first: int | None = None
    known: bool = False  # the machine's SYN was seen
    stamps: dict[int, int] = dataclasses.field(default_factory=dict)  # the script's timestamps of the machine, and the wire's

    def to_wire(self, packet: Tcp) -> Tcp:
        """Returns a packet of the peer with the wire's numbers and its payload."""
        if packet.flags & FLAGS["S"]:
            if self.peer_first != packet.seq and not packet.flags & FLAGS["."]:
                self.known = False  # a new connection of the same ports
            self.peer_first = packet.seq
        options = [self._option_to_wire(option) for option in packet.options or []]
        first = (packet.seq - (self.peer_first or 0) - (0 if packet.flags & FLAGS["S"] else 1)) % 2**32
        return dataclasses.replace(
            packet,
            ack=None if packet.ack is None else (packet.ack + self.offset) % 2**32,
            options=options,
            payload=wire.pattern(first, packet.length, IN_SALT),
        )

    def _option_to_wire(self, option: Option) -> Option:
        if option.kind == "sack":
            return Option("sack", tuple((value + self.offset) % 2**32 for value in option.values))
        if option.kind == "TS":
            value, echo = option.values
            return Option("TS", (value, self.stamp_of(echo)))
        return option

    def stamp_of(self, stamp: int) -> int:
        """The wire's value of a timestamp of the machine. One that the machine did not send has the distance that the script gives it."""
        if stamp == 0 or not self.stamps:
            return stamp
        if stamp in self.stamps:
            return self.stamps[stamp]
        script, real = min(self.stamps.items(), key=lambda known: abs(known[0] - stamp))
        return (real + stamp - script) % 2**32

    def learn(self, expected: Tcp, seen: Tcp) -> None:
        """Takes the machine's first sequence number from its SYN."""
        if expected.flags & seen.flags & FLAGS["S"] and not self.known:
            self.offset = (seen.seq - expected.seq) % 2**32
            self.machine_first = expected.seq
            self.known = True
            self.stamps = {}
            # Behind `<...>`, a script names the timestamp of the machine's SYN 100.
            if expected.options is None:
                stamp = next((option.values[0] for option in seen.options or [] if option.kind == "TS"), None)
                self.stamps = {} if stamp is None else {STAMP_OF_SYN: stamp}

    def from_wire(self, seen: Tcp, expected: Tcp | None) -> Tcp:
        """Returns a packet of the machine with the script's numbers."""
        options = []
        wanted = next((option for option in (expected.options or []) if option.kind == "TS"), None) if expected else None
        for option in seen.options or []:
            if option.kind == "TS" and wanted:
                stamp = wanted.values[0]
                known = self.stamps.setdefault(stamp, option.values[0])
                value = stamp if known == option.values[0] else self._script_stamp(option.values[0])
                option = Option("TS", (value, option.values[1]))
            options.append(option)
        return dataclasses.replace(seen, seq=(seen.seq - self.offset) % 2**32, options=options)

    def _script_stamp(self, real: int) -> int:
        script, known = next(iter(self.stamps.items()))
        return (script + real - known) % 2**32

    def payload_differs(self, packet: Tcp) -> bool:
        """True if the bytes of a machine's packet, with the script's numbers, are not those of its stream."""
        first = (packet.seq - self.machine_first - (0 if packet.flags & FLAGS["S"] else 1)) % 2**32
        return packet.payload != wire.pattern(first, len(packet.payload), OUT_SALT)
