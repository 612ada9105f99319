# SPDX-License-Identifier: BSL-1.0
"""Runs one script against a machine, and reports the first difference."""

import dataclasses
import ipaddress
import textwrap

from tools.packetdrill import wire
from tools.packetdrill.calls import Calls
from tools.packetdrill.flows import Flow
from tools.packetdrill.machine import Machine, MachineError
from tools.packetdrill.notation import FLAGS, Icmp, IpInfo, Packet, Tcp, Udp, parse_packet
from tools.packetdrill.script import Event, Script

LOCAL, REMOTE = "192.168.0.1", "192.0.2.1"
PEER_PORT, SERVICE_PORT = 40000, 8080
TOLERANCE_US = 5000
ANY_TIME_US = 3600 * 1_000_000
COMPARED_IP_FIELDS = ("ecn", "tos", "ttl", "df", "source", "destination")
KNOWN_OPTIONS = {"tolerance_usecs", "so_flags", "ip_version"}


class Failed(Exception):
    """The machine did not do as the script says. The text has several lines."""


class Runner:
    def __init__(self, script: Script, machine: Machine):
        self.script, self.machine = script, machine
        if unknown := set(script.options) - KNOWN_OPTIONS:
            raise Failed(f"{script.path}: there is no option --{min(unknown)}; there are: {', '.join(sorted(KNOWN_OPTIONS))}")
        if script.options.get("ip_version", "ipv4") != "ipv4":
            raise Failed(f"{script.path}: this network has no {script.options['ip_version']}")
        self.tolerance_us = int(script.options.get("tolerance_usecs", TOLERANCE_US))
        self.ports = (PEER_PORT, SERVICE_PORT)  # peer, machine
        self.machine_port_known = True
        self.flows: dict[tuple[int, int], Flow] = {}
        self.base_ns = 0
        self.reference_us = 0  # relative times count from here
        self.remote_address = int(ipaddress.IPv4Address(REMOTE))
        self.calls = Calls(self, machine)
        self.names: dict[str, object] = {}  # of the script's code; they stay from one piece of code to the next

    def run(self) -> None:
        """Raises Failed."""
        try:
            self.machine.make(self.script.options.get("so_flags", ""))
        except MachineError as error:
            raise Failed(f"{self.script.path}: the machine was not made: {error}") from None
        self.base_ns = self.machine.now_ns()
        for event in self.script.events:
            self._run(event)
        self.calls.check_pending(final=True)
        if taken := self.machine.take_packet():
            self._fail(self.script.events[-1], "no further packet", f"{self._shown(taken[0], None)}", taken[1])

    # --- Events --------------------------------------------------------------------------------------------------------------------------
    def _run(self, event: Event) -> None:
        offset = self.reference_us if event.relative else 0
        low, high = event.low_us + offset, event.high_us + offset
        if event.outbound:
            self._expect(event, event.outbound, low, high)
            return
        self.advance(low)
        self.reference_us = low
        if event.inbound:
            self.machine.put_packet(self._encoded(event.inbound))
            self.calls.check_pending()
        elif event.call:
            until = None if event.blocks_until_us is None else event.blocks_until_us + offset
            self.calls.run(event, event.call, until)
        elif event.code is not None:
            self._check(event, event.code)

    def now_us(self) -> int:
        return (self.machine.now_ns() - self.base_ns) // 1000

    def advance(self, time_us: int) -> None:
        """Advances the clock, and lets calls that wait end in time."""
        while self.calls.pending and self.now_us() < time_us:
            self.machine.advance_to_ns(min(self.machine.now_ns() + 1_000_000, self.base_ns + time_us * 1000))
            self.calls.check_pending()
        self.machine.advance_to_ns(self.base_ns + time_us * 1000)

    def _check(self, event: Event, code: str) -> None:
        self.names |= {"counter": self.machine.counter, "state": self.calls.state, "put": self._put, "drain": self._drain}
        self.names |= self.calls.state_of_last()
        try:
            exec(compile(textwrap.dedent(code.strip("\n")).strip(), str(self.script.path), "exec"), self.names)
        except AssertionError:
            shown = ", ".join(f"{name}={value}" for name, value in self.calls.state_of_last().items())
            self.fail(event, f"the assertion holds: {code.strip()}", shown or "there is no connection")
        except Exception as error:
            self.fail(event, f"the code runs: {code.strip()}", repr(error))

    def _put(self, text: str) -> None:
        """For code: a packet of the peer, now."""
        self.machine.put_packet(self._encoded(parse_packet(text)))

    def _drain(self) -> int:
        """For code: drops the packets that the machine has sent, and returns their number. A SYN among them has the script's number 0."""
        dropped = 0
        while taken := self.machine.take_packet():
            dropped += 1
            seen = wire.decode(taken[0])
            if isinstance(seen, Tcp) and seen.ports and seen.flags & FLAGS["S"]:
                self.flow((seen.ports[1], seen.ports[0])).learn(Tcp(FLAGS["S"], 0, 0, options=None), seen)
        return dropped

    # --- Inbound packets -----------------------------------------------------------------------------------------------------------------
    def flow(self, ports: tuple[int, int]) -> Flow:
        """`ports`: the peer's, the machine's."""
        return self.flows.setdefault(ports, Flow())

    def _encoded(self, packet: Packet) -> bytes:
        if isinstance(packet, Udp):
            return wire.encode(packet, REMOTE, LOCAL, packet.ports or self.ports)
        if isinstance(packet, Icmp):
            echoed = packet.echoed
            if echoed:
                flow = self.flow(self.ports)
                echoed = dataclasses.replace(echoed, seq=echoed.seq + flow.offset)
            return wire.encode(dataclasses.replace(packet, echoed=echoed), REMOTE, LOCAL, (self.ports[1], self.ports[0]))
        ports = packet.ports or self.ports
        return wire.encode(self.flow(ports).to_wire(packet), REMOTE, LOCAL, ports)

    # --- Outbound packets ----------------------------------------------------------------------------------------------------------------
    def _expect(self, event: Event, expected: Packet, low: int, high: int) -> None:
        if event.any_time:
            low, high = 0, self.now_us() + ANY_TIME_US
        limit_ns = self.base_ns + (high + self.tolerance_us) * 1000
        while self.calls.pending and not self.machine.advance_to_packet_ns(min(limit_ns, self.machine.now_ns() + 1_000_000)):
            self.calls.check_pending()
            if self.machine.now_ns() >= limit_ns:
                break
        self.machine.advance_to_packet_ns(limit_ns)
        self.calls.check_pending()
        taken = self.machine.take_packet()
        if taken is None:
            self.fail(event, f"{self._range(event, low, high)}: {expected}", f"no packet until {self.now_us() / 1e6:.6f}")
            return
        data, time_ns = taken
        time_us = (time_ns - self.base_ns) // 1000
        problems, shown = self._compare(expected, data)
        if not low - self.tolerance_us <= time_us <= high + self.tolerance_us:
            problems.insert(0, "time")
        if problems:
            self._fail(event, f"{self._range(event, low, high)}: {expected}", f"{shown}   (differs: {', '.join(problems)})", time_ns)
        # Without a range, a later relative time counts from the script's time, so that small delays do not add up.
        self.reference_us = time_us if event.any_time or low != high else low

    def _compare(self, expected: Packet, data: bytes) -> tuple[list[str], str]:
        """Returns the differences, and the packet in the script's notation and numbers."""
        seen = wire.decode(data)
        if isinstance(seen, str):
            return ["kind"], seen
        problems = self._ip_problems(expected.ip, seen.ip)
        kept = IpInfo(**{name: getattr(seen.ip, name) for name in COMPARED_IP_FIELDS if getattr(expected.ip, name) is not None})
        if type(seen) is not type(expected):
            return ["kind"], self._shown(data, None)
        if isinstance(expected, Icmp) and isinstance(seen, Icmp):
            problems += [name for name in ("type", "code") if getattr(expected, name) != getattr(seen, name)]
            return problems, str(dataclasses.replace(seen, ip=kept))
        if isinstance(expected, Udp) and isinstance(seen, Udp):
            problems += ["length"] if expected.length != seen.length else []
            problems += ["ports"] if expected.ports and expected.ports != seen.ports else []
            return problems, str(dataclasses.replace(seen, ip=kept))
        assert isinstance(expected, Tcp) and isinstance(seen, Tcp) and seen.ports
        if not self.machine_port_known and seen.flags & FLAGS["S"] and seen.ports[1] == self.ports[0]:
            self.ports, self.machine_port_known = (self.ports[0], seen.ports[0]), True
        own = expected.ports or (self.ports[1], self.ports[0])
        problems += ["ports"] if own != seen.ports else []
        flow = self.flow((seen.ports[1], seen.ports[0]))
        flow.learn(expected, seen)
        seen = flow.from_wire(seen, expected)
        problems += [name for name in ("flags", "seq", "length", "ack") if getattr(expected, name) != getattr(seen, name)]
        if flow.known and not problems and flow.payload_differs(seen):
            problems.append("payload")
        problems += [name for name in ("window", "urgent") if getattr(expected, name) not in (None, getattr(seen, name))]
        if expected.further_options:
            problems += ["options"] if not set(expected.options or []) <= set(seen.options or []) else []
        elif expected.options is not None and expected.options != seen.options:
            problems.append("options")
        shown = dataclasses.replace(seen, ip=kept, ports=seen.ports if expected.ports or "ports" in problems else None)
        if expected.window is None:
            shown.window = None
        if expected.options is None:
            shown.options = None
        return problems, str(shown)

    def _ip_problems(self, expected: IpInfo, seen: IpInfo) -> list[str]:
        return [name for name in COMPARED_IP_FIELDS if getattr(expected, name) not in (None, getattr(seen, name))]

    def _shown(self, data: bytes, expected: Tcp | None) -> str:
        seen = wire.decode(data)
        if isinstance(seen, str):
            return seen
        seen.ip = IpInfo()
        if not isinstance(seen, Tcp) or not seen.ports:
            return str(seen)
        own = (seen.ports[1], seen.ports[0])
        shown = self.flow(own).from_wire(seen, expected)
        return str(dataclasses.replace(shown, ports=None) if own == self.ports else shown)

    # --- Failures ------------------------------------------------------------------------------------------------------------------------
    @staticmethod
    def _range(event: Event, low: int, high: int) -> str:
        if event.any_time:
            return "at any time"
        return f"at {low / 1e6:.6f}" if low == high else f"at {low / 1e6:.6f} to {high / 1e6:.6f}"

    def _fail(self, event: Event, expected: str, seen: str, time_ns: int) -> None:
        self.fail(event, expected, f"at {(time_ns - self.base_ns) / 1e9:.6f}: {seen}")

    def fail(self, event: Event, expected: str, seen: str) -> None:
        text = " ".join(event.text.split())
        raise Failed(f"{self.script.path}:{event.line}: {text}\n    expected: {expected}\n    seen:     {seen}")
