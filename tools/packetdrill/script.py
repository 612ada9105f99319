# SPDX-License-Identifier: BSL-1.0
"""Reads a script of packetdrill: options, then events with times. docs/network.md lists the supported part of the language."""

import dataclasses
import re
from pathlib import Path

from tools.packetdrill.notation import Packet, SyntaxFailure, parse_packet

_NUMBER = r"\d*\.?\d+"
_TIME = re.compile(rf"(?:(?P<any>\*)|(?P<relative>\+)?(?P<low>{_NUMBER})(?:~\+?(?P<high>{_NUMBER})|\.\.\.\+?(?P<end>{_NUMBER}))?)\s+(?=\S)")
_CALL = re.compile(r"(\w+)\((.*)\)\s*=\s*(-?\w+)(?:\s+(E[A-Z0-9]+))?\s*(?:\(.*\))?$", re.DOTALL)


@dataclasses.dataclass
class Call:
    name: str
    arguments: list[str]
    result: int
    error: str | None


@dataclasses.dataclass
class Event:
    """`low_us` and `high_us`: the range of times; after the event before it if `relative`. `any_time`: whenever it happens."""

    line: int
    text: str
    low_us: int = 0
    high_us: int = 0
    relative: bool = False
    any_time: bool = False
    blocks_until_us: int | None = None  # of a call that may block: when it has to return
    inbound: Packet | None = None
    outbound: Packet | None = None
    call: Call | None = None
    code: str | None = None


@dataclasses.dataclass
class Script:
    path: Path
    options: dict[str, str]
    events: list[Event]


class ScriptError(Exception):
    """The script cannot be read; the text names file and line."""


def microseconds(text: str) -> int:
    return round(float(text) * 1_000_000)


def _without_comments(text: str) -> str:
    """Replaces comments by nothing, and keeps line ends, so that line numbers stay."""
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def read(path: Path) -> Script:
    return parse(path.read_text(), path)


def parse(text: str, path: Path) -> Script:
    """Raises ScriptError."""
    options: dict[str, str] = {}
    pieces: list[tuple[int, str]] = []  # an event's first line and its text
    in_code = False
    for number, line in enumerate(_without_comments(text).splitlines(), 1):
        stripped = line.strip()
        if not stripped:
            continue
        if stripped.startswith("--") and not pieces:
            name, _, value = stripped[2:].partition("=")
            options[name] = value.strip().strip('"')
            continue
        if not in_code and _TIME.match(stripped):
            pieces.append((number, stripped))
        elif pieces:
            pieces[-1] = (pieces[-1][0], f"{pieces[-1][1]}\n{line}")
        else:
            raise ScriptError(f"{path}:{number}: no time in front of the event: {stripped}")
        in_code = "%{" in pieces[-1][1] and "}%" not in pieces[-1][1]
    script = Script(path, options, [])
    for number, piece in pieces:
        try:
            script.events.append(_event(number, piece))
        except SyntaxFailure as failure:
            raise ScriptError(f"{path}:{number}: {failure}") from None
    if not script.events:
        raise ScriptError(f"{path}: no event")
    return script


def _event(line: int, text: str) -> Event:
    match = _TIME.match(text)
    assert match is not None
    rest = text[match.end() :].strip()
    event = Event(line, text, any_time=bool(match["any"]), relative=bool(match["relative"]))
    if not event.any_time:
        event.low_us = microseconds(match["low"])
        event.high_us = microseconds(match["high"]) if match["high"] else event.low_us
        event.blocks_until_us = microseconds(match["end"]) if match["end"] else None
        if event.high_us < event.low_us:
            raise SyntaxFailure("the range of times ends before it begins")
    if code := re.fullmatch(r"%\{(.*)\}%", rest, re.DOTALL):
        event.code = code[1]
    elif rest.startswith(("<", ">")):
        packet = parse_packet(" ".join(rest[1:].split()))
        if rest[0] == "<":
            event.inbound = packet
        else:
            event.outbound = packet
    elif call := _CALL.fullmatch(rest):
        try:
            result = int(call[3], 0)
        except ValueError:
            raise SyntaxFailure(f"a call's result is a number: {call[3]}") from None
        event.call = Call(call[1], _arguments(call[2]), result, call[4])
    else:
        raise SyntaxFailure(f"neither a packet, a call nor code: {rest}")
    if event.outbound is None and (event.any_time or event.high_us != event.low_us):
        raise SyntaxFailure("only an outbound packet may have a range of times")
    if event.call is None and event.blocks_until_us is not None:
        raise SyntaxFailure("only a call may block")
    return event


def _arguments(text: str) -> list[str]:
    """Splits at commas outside of brackets, braces and parentheses."""
    arguments, depth, word = [], 0, ""
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            arguments.append(word.strip())
            word = ""
        else:
            word += letter
    return [*arguments, word.strip()] if word.strip() else arguments
