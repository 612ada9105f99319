# SPDX-License-Identifier: BSL-1.0
"""Compares the meta commands with those of stock memcached: both must answer random conversations with the same bytes.

The judge is the newest memcached of Debian's next suite, because older ones lack flags. It gets one command at a time, each followed by a
request with a known answer: while it sends an answer with a value, it replaces a number that it would otherwise change in place, and the
new item lacks the old one's flags.

Deliberate differences of Neap are left out (text_protocol_meta.hpp lists them), and these fields are equal only in kind: CAS ids that the
server chose, times, and what me says about memory. Every conversation has keys of its own, because memcached's flush_all spares items that
were stored in the same second.
"""

import base64
import os
import random
import re
import socket
from collections.abc import Iterator

import pytest
from differential_test import ANSWER_SECONDS, REPLAY, ask_neap, compare
from servers import StockServer

from tools import cache
from tools.archive import Archive, private_command
from tools.errors import Failure

# More conversations than in a test run: NEAP_META_CONVERSATIONS=5000.
CONVERSATIONS = int(os.environ.get("NEAP_META_CONVERSATIONS", "200"))
COMMANDS = 60
SEEDS = 4
# CAS ids that clients choose. They are above all ids that a server chooses.
OWN_CAS = [10**12 + 1, 10**12 + 2, 10**12 + 9, 2**64 - 1]
# The lowest id is older than any stored item's (`conversation`), so with the flag I it makes an item stale.
EXPECTED_CAS = [*OWN_CAS, OWN_CAS[1], 1, 1, 0]
TIMES = [b"0", b"30", b"100", b"-1"]
LONG_NUMBERS = [b"18446744073709551615", b"10000000000000000000", b"12345678901234567890"]
# A request and its answer, which is the answer to no other one.
END, END_ANSWER = b"mg end Oend\r\n", b"EN Oend\r\n"
LETTERS = b"bcfhklOqstuvENRTCFIMJDxPLS"


class NewStockServer(StockServer):
    """Debian's newest memcached."""

    def __init__(self, *options: str) -> None:
        super().__init__(*options)
        archive = Archive()
        version = archive.candidate("memcached")
        if version is None:
            raise Failure("Debian's archive has no memcached")
        entry = cache.Entry("memcached-judge", version)
        with entry.making(work="fetches memcached") as needed:
            if needed:
                packages = [pair for pair in archive.closure("memcached") if pair[0] == "memcached" or pair[0].startswith("lib")]
                archive.unpack(packages, entry.path)
        self._program.argv = private_command(entry.path, "memcached")


@pytest.fixture(scope="module")
def judge() -> Iterator[tuple[str, int]]:
    assert REPLAY.is_file(), "build/host is not built: ./neap test host builds it"
    with NewStockServer("-t", "1", "-m", "64") as server:
        yield server.address


class Conversation:
    """The commands of one conversation. `keys`: their raw bytes; the first ones may be sent as they are."""

    def __init__(self, dice: random.Random, name: bytes) -> None:
        self.dice = dice
        self.keys = [kind + name for kind in (b"a", b"b", b"c")]
        self.long_number = b"n" + name  # holds numbers of 20 digits only, which never become longer
        self.number = b"m" + name
        self.longest = name.ljust(250, b"k")
        self.binary = [b"\x00 \r\n" + name, b"\xff" + name]
        # The first item of Neap has the id 1, which EXPECTED_CAS must not match.
        self.commands = [b"ms z%b 1\r\nx\r\n" % name]
        self.commands += [self.command() for _ in range(COMMANDS)]

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def key(self) -> tuple[bytes, list[bytes]]:
        """Returns a key as it is sent, and the flag that it needs."""
        if self.chance(0.02):
            return self.dice.choice([self.longest, self.longest + b"k"]), []
        if self.chance(0.15):
            text = base64.b64encode(self.dice.choice(self.binary))
            if self.chance(0.1):  # other characters are skipped, and padding ends the key
                text = text[:4] + b"!" + text[4:] + b"Zm9v" * text.endswith(b"=")
            return text, [b"b"]
        if self.chance(0.02):
            return self.dice.choice([b"Zg", b"====", b"Z===", b"!"]), [b"b"]
        return self.dice.choice([*self.keys, self.number]), []

    def token(self, letter: str) -> bytes:
        dice = self.dice
        bad = self.chance(0.02)
        if letter in "NT":
            return b"x1" if bad else dice.choice(TIMES)
        if letter == "R":
            return b"" if bad else dice.choice([b"0", b"20", b"50", b"150", b"-1"])
        if letter == "E":
            return b"x" if bad else b"%d" % dice.choice(OWN_CAS)
        if letter == "C":
            return b"-1" if bad else b"%d" % dice.choice(EXPECTED_CAS)
        if letter == "F":
            return b"1x" if bad else dice.choice([b"0", b"5", b"4294967295", b"4294967296", b"+7"])
        if letter == "O":
            return b"opaque%d" % dice.randint(0, 99)
        if letter in "JD":
            return b"-1" if bad else dice.choice([b"0", b"1", b"7", b"250", b"18446744073709551615"])
        return b""

    def flags(self, letters: str, share: float = 0.3) -> list[bytes]:
        chosen = [letter for letter in letters if self.chance(share)]
        self.dice.shuffle(chosen)
        flags = [letter.encode() + self.token(letter) for letter in chosen]
        if self.chance(0.02):
            flags.append(self.dice.choice([b"k", b"v", b"!", b"\x7f", b"\xc3", b"S3", b"i", b"Vx", b"vv", b"P5", b"L9", b"0"]))
        if self.chance(0.01):
            flags += [bytes([letter]) for letter in LETTERS]
        self.dice.shuffle(flags)
        return flags

    def command(self) -> bytes:
        kind = self.dice.random()
        if kind < 0.04:
            return self.dice.choice([b"mn", b"mn x", b"mg", b"ms", b"md", b"ma", b"me", b"mx a", b"m a", b"mgx a", b"ms a"]) + b"\r\n"
        if kind < 0.38:
            return self.get()
        if kind < 0.7:
            return self.set()
        if kind < 0.82:
            return self.delete()
        if kind < 0.96:
            return self.count()
        key, flags = self.key()
        return b" ".join([b"me", key, *flags]) + b"\r\n"

    def get(self) -> bytes:
        key, flags = self.key() if self.chance(0.85) else (self.long_number, [])
        flags += self.flags("vkfcsthlq", 0.4) + self.flags("NRTEuO", 0.2)
        self.dice.shuffle(flags)
        if self.chance(0.02):  # of a key that is never stored, because memcached marks an item as used before it finds the error
            return b"mg q%b O%b\r\n" % (key[:100], b"o" * self.dice.choice([31, 32]))
        return b" ".join([b"mg", key, *flags]) + b"\r\n"

    def set(self) -> bytes:
        if self.chance(0.15):
            value = self.dice.choice(LONG_NUMBERS)
            mode = self.dice.choice([[], [], [b"MS"], [b"ME"], [b"MR"]])
            words = [b"ms", self.long_number, b"20", *self.flags("TFECIkcsqO"), *mode]
            return b" ".join(words) + b"\r\n" + value + b"\r\n"
        key, flags = self.key()
        value = self.dice.choice([b"", b"x", b"hello", b"7", b"99", b"v" * 300, b"v" * 1200])
        flags += self.flags("kcsqO", 0.3) + self.flags("TFECI", 0.25) + self.flags("vhtlfuxNRDJ", 0.05)
        if self.chance(0.5):
            flags += [self.dice.choice([b"MS", b"ME", b"MA", b"MP", b"MA", b"MP", b"MR", b"MX", b"M", b"MEE"])]
            if self.chance(0.5):
                flags = [flag for flag in flags if flag[:1] != b"N"] + [b"N" + self.token("N")]
        if self.chance(0.02):
            flags = [flag for flag in flags if flag[:1] != b"O"] + [b"O" + b"o" * self.dice.choice([31, 32])]
        self.dice.shuffle(flags)
        size = b"%d" % len(value)
        end = b"\r\n"
        if self.chance(0.02):
            size = self.dice.choice([b"-1", b"x", b"2147483646", b"+%d" % len(value)])
        elif self.chance(0.02):
            end = b"yz" + b"\r\n"  # the value has no line end
        return b" ".join([b"ms", key, size, *flags]) + b"\r\n" + value + end

    def delete(self) -> bytes:
        key, flags = self.key() if self.chance(0.85) else (self.long_number, [])
        flags += self.flags("qkO", 0.3) + self.flags("ITCExF", 0.35)
        if self.chance(0.02):
            flags = [flag for flag in flags if flag[:1] != b"O"] + [b"O" + b"o" * self.dice.choice([31, 32])]
        self.dice.shuffle(flags)
        return b" ".join([b"md", key, *flags]) + b"\r\n"

    def count(self) -> bytes:
        key, flags = self.key()
        if self.chance(0.5):  # memcached loses E and T if the number becomes longer
            key, flags = self.long_number, []
            flags += self.flags("TE", 0.3)
            if self.chance(0.5):
                flags += [b"N" + self.token("N"), b"J" + self.dice.choice(LONG_NUMBERS)]
        else:
            flags += self.flags("NJ", 0.4)
        flags += self.flags("DqktcvO", 0.35) + self.flags("C", 0.1)
        if self.chance(0.4):
            flags += [self.dice.choice([b"MI", b"MD", b"M+", b"M-", b"MD", b"MX"])]
        self.dice.shuffle(flags)
        return b" ".join([b"ma", key, *flags]) + b"\r\n"

    def plain(self, answer: bytes) -> bytes:
        """Removes from `answer` what need not be equal."""
        for key in self.binary:
            text = base64.b64encode(key)
            answer = answer.replace(b" k" + key, b" k" + text + b" b").replace(b"ME " + key, b"ME " + text)
        own = b"|".join(b"%d" % cas for cas in OWN_CAS)
        lines = []
        for line in answer.split(b"\r\n"):
            if re.match(rb"(HD|VA|EN|NS|EX|NF|ME)\b", line):
                line = re.sub(rb" c(?!(?:0|%b)(?: |$))\d+" % own, b" cID", line)
                line = re.sub(rb" cas=(?!(?:0|%b)(?: |$))\d+" % own, b" cas=ID", line)
                line = re.sub(rb" (l|la=)[0-9](?= |$)", rb" \1NOW", line)
                line = re.sub(rb" (t|exp=)(-?\d+)(?= |$)", lambda found: b" " + found[1] + self.rounded(found[2]), line)
                line = re.sub(rb" cls=\d+ size=\d+", b" memory", line)
            lines.append(line)
        return b"\r\n".join(lines)

    @staticmethod
    def rounded(seconds: bytes) -> bytes:
        """A time to live is up to some seconds shorter than the one that was asked for. One that has just ended is negative."""
        left = int(seconds)
        if left == -1:
            return b"NEVER"
        return b"PAST" if left <= 0 or left > 10**6 else b"30" if left <= 30 else b"100"


def ask_judge(address: tuple[str, int], commands: list[bytes]) -> bytes:
    """Sends `commands` one after the other, with END behind each, and returns all answers."""
    answers = b""
    with socket.create_connection(address, ANSWER_SECONDS) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for command in commands:
            wire.sendall(command + END)
            answer = b""
            while not answer.endswith(END_ANSWER):
                piece = wire.recv(1 << 16)
                if not piece:
                    raise AssertionError(f"memcached closed the connection after {command!r}")
                answer += piece
            answers += answer
    return answers


@pytest.mark.parametrize("seed", range(SEEDS))
def test_meta_conversations_are_answered_alike(judge: tuple[str, int], seed: int) -> None:
    for number in range(CONVERSATIONS // SEEDS):
        talk = Conversation(random.Random(f"meta {seed} {number}"), b"%d_%d" % (seed, number))
        ours = ask_neap(b"".join(command + END for command in talk.commands))
        compare(talk.plain(ours), talk.plain(ask_judge(judge, talk.commands)), b"".join(talk.commands), number)
