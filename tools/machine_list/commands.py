# SPDX-License-Identifier: BSL-1.0
"""`./neap machine [PLACE]` prints a machine's list, `./neap machine diff PLACE PLACE` the differences of two.

A place is `local` (this Linux), a file or a folder with machine.json, an application that runs here, or HOST[:PORT] of a control server.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import cache, control_client, packages
from tools.errors import EXIT_FAILURE, Failure, UsageError
from tools.foreign import parse_json, read_bounded
from tools.machine_list import compare, show
from tools.machine_list.schema import MEMBERS
from tools.machine_registry import find_control
from tools.process import output_of

LOCAL = "local"
FILE = "machine.json"
LIST_BYTES_MAX = 1 << 20
TEXT_CHARACTERS_MAX = 8192
ELEMENTS_MAX = 4096
USAGE = "./neap machine [APP|HOST[:PORT]|local|FILE|DIR], or ./neap machine diff PLACE PLACE"
_SOURCES = Path(__file__).parent.parent / "linux_log"
PROGRAM_SOURCES = ("machine_list.c", "machine_list_io.c", "machine_list_card.c", "machine_main.c")
_HEADERS = ("machine_list.h", "machine_list_private.h")
_COMPILER = ("gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-static")
KINDS = {"text": (str,), "number": (int, float), "flag": (bool,), "list": (list,)}


def machine(
    places: Sequence[str], *, as_json: bool = False, out: str | None = None, interface: str | None = None, all_members: bool = False,
    strict: bool = False, pid: int | None = None, token_file: str | None = None,
) -> int:  # fmt: skip
    """The command. Returns 1 if a difference forbids a comparison."""
    is_difference = places[:1] == ["diff"]
    if is_difference and len(places) != 3 or not is_difference and len(places) > 1:
        raise UsageError("machine takes one place, or diff and two places", USAGE)
    if not is_difference and (all_members or strict):
        raise UsageError("--all and --strict belong to `machine diff`", USAGE)
    if is_difference and out is not None:
        raise UsageError("--out keeps one list, so it does not belong to `machine diff`", USAGE)
    wanted = list(places[1:]) if is_difference else [*places, LOCAL][:1]
    if interface is not None and LOCAL not in wanted:
        raise UsageError("--interface belongs to `local`; another machine names its own card", USAGE)
    token = control_client.read_token(token_file)
    lists = [read(place, interface=interface, pid=pid, token=token) for place in wanted]
    if is_difference:
        return _print_differences(lists, wanted, as_json=as_json, all_members=all_members, strict=strict)
    if out is not None:
        _keep(lists[0], Path(out))
    print(json.dumps(lists[0], indent=2) if as_json else show.text(lists[0]))
    return 0


def _print_differences(lists: list[dict], places: list[str], *, as_json: bool, all_members: bool, strict: bool) -> int:
    found = compare.differences(*lists)
    forbidden = compare.forbids(found, strict=strict)
    if as_json:
        rows = [
            {"name": one.name, "first": one.first, "second": one.second, "weight": one.weight.value, "why": one.why}
            | {"by_nature": one.by_nature}
            for one in found
            if all_members or not one.by_nature
        ]
        print(json.dumps({"forbidden": forbidden, "differences": rows}, indent=2))
        return EXIT_FAILURE if forbidden else 0
    hidden = sum(one.by_nature for one in found)
    if text := show.difference_text(found, (places[0], places[1]), all_members):
        print(text)
    if len(found) == hidden:
        more = f" {hidden} members differ by nature or are known on one side only (--all)." if hidden and not all_members else ""
        print(f"The two runs may be compared: no member differs that matters.{more}")
    return EXIT_FAILURE if forbidden else 0


def _keep(machine: dict, path: Path) -> None:
    making = path.with_name(path.name + ".new")
    making.write_text(json.dumps(machine, indent=2) + "\n")
    making.rename(path)


def read(place: str, *, interface: str | None = None, pid: int | None = None, token: str | None = None) -> dict:
    """Returns the list of `place`. Raises Failure with a remedy if there is none."""
    if place == LOCAL:
        return local(interface)
    path = Path(place)
    if path.is_dir() and (path / FILE).is_file():
        path = path / FILE
    if path.is_file():
        try:
            return parse(read_bounded(path, LIST_BYTES_MAX), place)
        except ValueError as error:
            raise Failure(f"{place} is no machine list: {error}", "./neap machine PLACE --out FILE writes one") from None
    if path.is_dir() or path.suffix == ".json":
        raise Failure(f"{place} has no machine list", f"./neap machine PLACE --out FILE writes one; a folder has it as {FILE}")
    return ask(*find_control(place, pid), token)


def ask(host: str, port: int, token: str | None = None) -> dict:
    """Returns the list that a control server answers to `machine`."""
    with control_client.Control(host, port, token) as connection:
        answer = connection.ask("machine")
        if not answer.startswith("ok "):
            raise control_client.Refused(f"{connection.name} has no machine list: {answer}", "a machine before this version has none")
        return parse(answer.removeprefix("ok "), connection.name)


def local(interface: str | None = None) -> dict:
    """Returns the list of this Linux."""
    return parse(output_of([str(program()), *([] if interface is None else [interface])]), "this machine")


def program() -> Path:
    """Returns the path of the program that prints the list of a Linux; compiles it if the cache lacks it. It is linked statically, so it
    runs in guests, too."""
    packages.require("card")
    sources = [_SOURCES / name for name in PROGRAM_SOURCES]
    entry = cache.Entry("machine-list", cache.digest(*(path.read_bytes() for path in [*sources, *(_SOURCES / name for name in _HEADERS)])))
    with entry.making() as needed:
        if needed:
            with tempfile.TemporaryDirectory(dir=entry.path) as name:
                made = Path(name) / "machine_list"
                output_of([*_COMPILER, "-s", "-o", str(made), *map(str, sources)])
                made.rename(entry.path / "machine_list")
    return entry.path / "machine_list"


def parse(data: bytes | str, place: str) -> dict:
    """Reads a list from a peer or a file. Null members are left out. Raises Failure for text that is no list."""
    try:
        members = parse_json(data)
        if not isinstance(members, dict) or not isinstance(members.get("system"), str):
            raise ValueError("there is no object with the member system")
        for name, content in members.items():
            _check(name, content)
    except ValueError as error:
        raise Failure(f"{place} has no machine list: {error}", "./neap machine PLACE --out FILE writes one") from None
    return {name: content for name, content in members.items() if content is not None}


def _check(name: str, content: object) -> None:
    """Raises ValueError for a member that cannot be one. A known member may also be a list: one element for each core."""
    known = MEMBERS.get(name)
    kinds = KINDS[known.kind] if known else (str, int, float, bool, list)
    elements = content if isinstance(content, list) else [content]
    if len(elements) > ELEMENTS_MAX:
        raise ValueError(f"{name} has {len(elements)} elements")
    if known and known.kind == "list":
        if content is not None and not isinstance(content, list):
            raise ValueError(f"{name} is no list")
        kinds = (str,)
    for element in elements:
        is_flag = isinstance(element, bool) and bool not in kinds
        if element is not None and (is_flag or not isinstance(element, kinds)):
            raise ValueError(f"{name} is no {known.kind if known else 'value'}")
        if isinstance(element, str) and len(element) > TEXT_CHARACTERS_MAX:
            raise ValueError(f"{name} has {len(element)} characters")
