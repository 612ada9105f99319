# SPDX-License-Identifier: BSL-1.0
"""The interpreter finds each kind of mistake: a script that passes fails after a change of one thing."""

from pathlib import Path

import pytest

from tools.errors import UsageError
from tools.packetdrill import command, flows, wire
from tools.packetdrill.notation import IpInfo, Option, SyntaxFailure, Tcp, parse_packet
from tools.packetdrill.script import ScriptError, parse

# Each line that a test changes occurs once.
GOOD = """\
--tolerance_usecs=2000
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 setsockopt(3, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 accept(3, ..., ...) = -1 EAGAIN (Resource temporarily unavailable)
+0 < S 0:0(0) win 65535 <mss 1000,sackOK,nop,nop>
+0 > S. 0:0(0) ack 1 <...>
+.1 < . 1:1(0) ack 1 win 65535 // the end of the handshake
+0 accept(3, ..., ...) = 4
+0...+.3 read(4, ..., 1000) = 100
+.1 write(4, ..., 1500) = 1500
+0 > . 1:1001(1000) ack 1 win 65535
+0 > [noecn] P. 1001:1501(500) ack 1
+.1 < . 1:1(0) ack 1501 win 65535
/* an out-of-order segment,
   and the one before it */
+.01 < . 51:101(50) ack 1501 win 65535
+0 > . 1501:1501(0) ack 1 <nop,nop,sack 51:101>
+.01 < P. 1:51(50) ack 1501 win 65535
+0~+.5 > . 1501:1501(0) ack 101
+.1 %{ assert established == 1 and counter("retransmissions") == 0 }%
+0 < 40000>81 S 9:9(0) win 0
* > 81>40000 R. 0:0(0) ack 10 <...>
"""


def failure_of(text: str, folder: Path) -> str | None:
    path = folder / "one.pkt"
    path.write_text(text)
    return command.run_scripts([path], command.LIBRARY)[0].failure


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def test_the_good_script_passes(tmp_path):
    assert failure_of(GOOD, tmp_path) is None


# `drain` takes the first number from the SYN-ACK, so that the ACK is the right one.
def test_code_keeps_its_names_and_numbers(tmp_path):
    begin = GOOD[: GOOD.index("+0 accept")]
    put = 'put("S 0:0(0) win 65535 <mss 1000>"); sent = drain(); put(". 1:1(0) ack 1 win 65535")'
    check = 'assert sent == 1 and counter("connections_open") == %d'
    assert failure_of(f"{begin}+0 %{{ {put} }}%\n+.1 %{{ {check % 1} }}%\n", tmp_path) is None
    assert "the assertion holds" in (failure_of(f"{begin}+0 %{{ {put} }}%\n+.1 %{{ {check % 2} }}%\n", tmp_path) or "")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        # An outbound packet that differs in one thing.
        ("+0 > S. 0:0(0)", "+.05 > S. 0:0(0)", 8, "differs: time"),
        ("+0~+.5 > . 1501:1501(0) ack 101", "+.3~+.5 > . 1501:1501(0) ack 101", 21, "differs: time"),
        ("> S. 0:0(0) ack 1", "> SE. 0:0(0) ack 1", 8, "differs: flags"),
        ("> . 1:1001(1000) ack 1 win", "> P. 1:1001(1000) ack 1 win", 13, "differs: flags"),
        ("P. 1001:1501(500)", "P. 1002:1502(500)", 14, "differs: seq"),
        ("P. 1001:1501(500)", "P. 1001:1500(499)", 14, "differs: length"),
        ("P. 1001:1501(500) ack 1\n", "P. 1001:1501(500) ack 2\n", 14, "differs: ack"),
        ("ack 1 win 65535\n+0 > [", "ack 1 win 65534\n+0 > [", 13, "differs: window"),
        ("<nop,nop,sack 51:101>", "<nop,nop,sack 51:102>", 19, "differs: options"),
        ("<nop,nop,sack 51:101>", "<sack 51:101,nop,nop>", 19, "differs: options"),
        (" <nop,nop,sack 51:101>", "", 19, "differs: options"),
        ("ack 101\n", "ack 101 <nop,nop,TS val 1 ecr 1>\n", 21, "differs: options"),
        ("> S. 0:0(0) ack 1 <...>", "> S. 0:0(0) ack 1 <mss 1459,...>", 8, "differs: options"),
        ("[noecn]", "[ttl 1]", 14, "differs: ttl"),
        ("[noecn]", "[ce]", 14, "differs: ecn"),
        ("[noecn]", "[from 10.0.0.1]", 14, "differs: source"),
        ("* > 81>40000 R.", "* > 82>40000 R.", 24, "differs: ports"),
        ("* > 81>40000 R. 0:0(0) ack 10 <...>", "* > udp 81>40000 (10)", 24, "differs: kind"),
        # A packet too few or too many.
        ("+0 > [noecn] P. 1001:1501(500) ack 1\n", "", 18, "1001:1501"),
        ("ack 1 win 65535\n+0 > [", "ack 1 win 65535\n+0 > . 1:1001(1000) ack 1\n+0 > [", 14, "seen:     at 0.200000: P. 1001:1501(500)"),
        ("* > 81>40000 R. 0:0(0) ack 10 <...>\n", "", 23, "no further packet"),
        ("* > 81>40000 R. 0:0(0) ack 10 <...>\n", "* > 81>40000 R. 0:0(0) ack 10 <...>\n+1 > . 1:1(0) ack 1\n", 25, "no packet until"),
        # Calls.
        ("write(4, ..., 1500) = 1500", "write(4, ..., 1500) = 1499", 12, "seen:     1500"),
        ("= -1 EAGAIN", "= -1 EBADF", 6, "seen:     -1 EAGAIN"),
        ("= -1 EAGAIN (Resource temporarily unavailable)", "= 4", 6, "seen:     -1 EAGAIN"),
        ("accept(3, ..., ...) = 4", "accept(3, ..., ...) = 5", 10, "seen:     4"),
        ("= 100\n", "= 99\n", 11, "seen:     100"),
        ("+0...+.3 read", "+0...+.1 read", 11, "still waits"),
        ("write(4,", "write(9,", 12, "seen:     -1 EBADF"),
        ("listen(3, 1)", "listne(3, 1)", 5, "one of the calls accept"),
        # Code and settings.
        ("established == 1", "established == 0", 22, "established=1"),
        ('counter("retransmissions")', 'counter("retransmission")', 22, "there is no counter retransmission"),
        ("--tolerance_usecs=2000", '--so_flags="bogus=1"', None, "there is no setting 'bogus'"),
        ("--tolerance_usecs=2000", "--tolerance=2000", None, "there is no option --tolerance"),
        ("--tolerance_usecs=2000", "--ip_version=ipv6", None, "has no ipv6"),
    ],
)
def test_one_mistake(old: str, new: str, line: int | None, words: str, tmp_path):
    failure = failure_of(changed(old, new), tmp_path)
    assert failure and words in failure, failure
    assert line is None or f"one.pkt:{line}:" in failure, failure


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("< . 1:1(0)", "no time"),
        ("0 < . 1:2(2) ack 1", "not the length"),
        ("0 < . 1:1(0)", "come together"),
        ("0 < X 1:1(0)", "not a packet"),
        ("0 < S 0:0(0) <mss>", "not a TCP option"),
        ("0 < [bogus] S 0:0(0)", "no field of the IP header"),
        ("0 < icmp bogus", "not an ICMP packet"),
        ("+.1~+.2 < S 0:0(0)", "only an outbound packet"),
        ("+.2~+.1 > S 0:0(0)", "ends before it begins"),
        ("0...1 < S 0:0(0)", "only a call may block"),
        ("0 listen(3, 1)", "neither a packet"),
        ("0 listen(3, 1) = none", "a number"),
    ],
)
def test_wrong_text(line: str, words: str):
    with pytest.raises(ScriptError, match=r"x\.pkt:2: .*") as caught:
        parse(f"\n{line}\n", Path("x.pkt"))
    assert words in str(caught.value)


def test_an_empty_script_is_none():
    with pytest.raises(ScriptError, match="no event"):
        parse("// nothing\n", Path("x.pkt"))


@pytest.mark.parametrize(
    "text",
    [
        "S 0:0(0) win 65535 <mss 1000,sackOK,nop,wscale 7>",
        "[ect0] P. 1:1001(1000) ack 1 win 5 urg 7 <nop,nop,TS val 1 ecr 2>",
        "8080>40000 FPUEWA. 1:1(0) ack 4294967295 <nop,nop,sack 1:2 3:4>",
        "R 5:5(0) <...>",
        "- 5:105(100)",
        "S 0:0(0) <raw fd 03 00>",
        "[tos 0x10,ttl 3] udp 1>2 (100)",
        "icmp unreachable frag_needed mtu 1000 [1:1461(1460)]",
        "icmp time_exceeded exc_fragtime",
    ],
)
def test_notation_is_read_as_it_is_written(text: str):
    assert str(parse_packet(text)) == text


def test_packets_are_read_as_they_are_encoded():
    options = [Option("mss", (1000,)), Option("sackOK"), Option("TS", (1, 2)), Option("nop"), Option("wscale", (7,))]
    sent = Tcp(0x12, 7, 3, 9, 1234, options=options, ports=(1, 2), ip=IpInfo(ecn=2), payload=b"abc")
    seen = wire.decode(wire.encode(sent, "10.0.0.1", "10.0.0.2", (1, 2)))
    assert isinstance(seen, Tcp)
    assert (seen.flags, seen.seq, seen.length, seen.ack, seen.window) == (0x12, 7, 3, 9, 1234)
    assert (seen.options, seen.ports, seen.payload, seen.ip.ecn) == (options, (1, 2), b"abc", 2)


def test_wrong_checksums_are_found():
    packet = Tcp(0x10, 7, 3, 9, 1234, ip=IpInfo(), payload=b"abc")
    good = wire.encode(packet, "10.0.0.1", "10.0.0.2", (1, 2))
    assert wire.decode(good[:-1] + b"d") == "a TCP segment with a wrong checksum"
    assert wire.decode(good[:8] + b"\1" + good[9:]) == "an IPv4 packet with a wrong length or checksum"
    packet.ip.bad_checksum = True
    assert wire.decode(wire.encode(packet, "10.0.0.1", "10.0.0.2", (1, 2))) == "a TCP segment with a wrong checksum"


@pytest.mark.parametrize("data", [b"\x00\x00", b"\x09\x03\x00\x00", b"\x02\x01\x00\x00", b"\x05\x09\x00\x00", b"\x02"])
def test_malformed_options_of_the_machine_are_shown(data: bytes):
    options = wire.decode_options(data)
    assert all(option.kind in ("eol", "raw") for option in options) and options


def test_bytes_at_a_wrong_place_are_found():
    flow = flows.Flow()
    good = wire.pattern(100, 50, flows.OUT_SALT)
    assert not flow.payload_differs(Tcp(0x10, 101, 50, 1, payload=good))
    assert flow.payload_differs(Tcp(0x10, 102, 50, 1, payload=good))


def test_timestamps_of_the_machine_are_compared_by_their_names():
    flow = flows.Flow()
    for name, real in ((100, 5000), (200, 5100)):
        seen = flow.from_wire(Tcp(0x10, 1, 0, 1, options=[Option("TS", (real, 7))]), Tcp(0x10, 1, 0, 1, options=[Option("TS", (name, 7))]))
        assert seen.options == [Option("TS", (name, 7))]
    # The same name for another value differs. An echo names the value that the wire had.
    seen = flow.from_wire(Tcp(0x10, 1, 0, 1, options=[Option("TS", (5101, 7))]), Tcp(0x10, 1, 0, 1, options=[Option("TS", (200, 7))]))
    assert seen.options != [Option("TS", (200, 7))]
    assert flow.stamp_of(200) == 5100
    assert flow.stamp_of(205) == 5105


def test_packets_are_read_without_notation():
    with pytest.raises(SyntaxFailure):
        parse_packet("udp")


def test_a_missing_script_is_reported(tmp_path):
    missing = tmp_path / "none.pkt"
    assert "none.pkt" in (command.run_scripts([missing], command.LIBRARY)[0].failure or "")


@pytest.mark.parametrize("line", ["none.pkt: a reason", "interpreter_test.py", "interpreter_test.py: ", "a\nb"])
def test_a_wrong_list_of_deviations(line: str, tmp_path):
    (tmp_path / "interpreter_test.py").touch()
    path = tmp_path / "deviations.txt"
    path.write_text(line + "\n")
    with pytest.raises(UsageError):
        command.deviations(path)


def test_a_deviation_that_passes_is_a_failure(tmp_path, monkeypatch, capsys):
    (tmp_path / "one.pkt").write_text(GOOD)
    (tmp_path / "two.pkt").write_text(changed("ack 1 win 65535\n+0 > [", "ack 1 win 1\n+0 > ["))
    (tmp_path / "deviations.txt").write_text("# known\none.pkt: it passes\ntwo.pkt: it fails\n")
    monkeypatch.setattr(command, "SCRIPTS", tmp_path)
    monkeypatch.setattr(command, "DEVIATIONS", tmp_path / "deviations.txt")
    library = str(command.LIBRARY)
    assert command.packetdrill([str(tmp_path / "two.pkt")], library) == 0
    assert "1 known deviations" in capsys.readouterr().out
    assert command.packetdrill([str(tmp_path / "two.pkt")], library, all_failures=True) != 0
    assert command.packetdrill([str(tmp_path)], library) != 0
    assert "passes, but deviations.txt has it: it passes" in capsys.readouterr().out
