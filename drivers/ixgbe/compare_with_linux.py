#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares registers.toml with the header of Linux's own ixgbe driver: every name in both must have the same offsets.

The driver and the soft card share this table, so their tests do not find mistakes in it. Linux's driver works with the real card.
Linux's source is fetched as the host's package `linux-source-*` (about 140 MB) into a temporary directory and not kept. With --header, an
existing file is read instead.

    compare_with_linux.py [--header ixgbe_type.h]
"""

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import register_table  # noqa: E402

HEADER = "drivers/net/ethernet/intel/ixgbe/ixgbe_type.h"
# Fewer shared names than this mean that the header could not be parsed.
SHARED_MIN = 380
PRINT_VALUES = """\
int printf(const char*, ...);
int main(void) { for (unsigned i = 0; i < sizeof values / sizeof values[0]; ++i) printf("%lu\\n", values[i]); }
"""


def definitions(header: str) -> dict[str, tuple[str, str]]:
    """Returns the parameter ("" if none) and the body of each IXGBE_ macro, by the macro's name without the prefix."""
    joined = header.replace("\\\n", " ")
    joined = re.sub(r"/\*.*?\*/", " ", joined, flags=re.S)
    found = {}
    for match in re.finditer(r"^#define[ \t]+IXGBE_(\w+)(?:\((\w+)\))?[ \t]+(.+)$", joined, re.M):
        found[match[1]] = (match[2] or "", match[3].strip())
    return found


def expression(body: str, parameter: str, index: int) -> str | None:
    """Returns `body` with `index` in place of `parameter`, or None if the result is not an arithmetic expression."""
    text = re.sub(rf"\b{re.escape(parameter)}\b", str(index), body) if parameter else body
    return text if re.fullmatch(r"[0-9a-fA-FxXuUlL\s()+\-*<>=?:&|]+", text) else None


def evaluate(expressions: Sequence[str]) -> list[int]:
    """Returns the values of C's constant expressions, which a C compiler computes."""
    source = f"static const unsigned long values[] = {{{', '.join(expressions)}}};\n{PRINT_VALUES}"
    with tempfile.TemporaryDirectory() as place:
        program = f"{place}/values"
        subprocess.run(["gcc", "-x", "c", "-o", program, "-"], input=source, text=True, check=True, capture_output=True, timeout=60)
        printed = subprocess.run([program], text=True, check=True, capture_output=True, timeout=60).stdout
    return [int(word) for word in printed.split()]


def places(register: register_table.Register, index: int) -> set[int]:
    """Returns all offsets of an entry."""
    found = {register.offset_of(index)}
    for alias in register.aliases:
        if index < alias.count:
            found.add(alias.offset + index * alias.stride)
    return found


def compare(table: register_table.Table, header: str) -> tuple[int, list[str]]:
    """Returns the number of shared names, and a line for each difference: an offset that differs, or a name that cannot be compared. A
    register without a name in Linux has `linux = ""` in the table."""
    linux = definitions(header)
    shared, differences = 0, []
    entries: list[tuple[register_table.Register, int, str]] = []
    for register in table.registers:
        if not register.linux:
            continue
        if register.linux not in linux:
            differences.append(f"{register.name}: Linux has no {register.linux}")
            continue
        shared += 1
        parameter, body = linux[register.linux]
        texts = [expression(body, parameter, i) for i in (range(register.count) if parameter else [0])]
        if None in texts:
            differences.append(f"{register.name}: {register.linux} is {body} in Linux, which is no number")
        else:
            entries += [(register, i, text) for i, text in enumerate(texts)]
    wrong: dict[str, str] = {}
    for (register, i, _), value in zip(entries, evaluate([text for *_, text in entries])):
        if value not in places(register, i):
            ours = ", ".join(f"{place:#07x}" for place in sorted(places(register, i)))
            wrong.setdefault(register.name, f"{register.name}[{i}]: {ours} here, {value:#07x} in Linux")
    return shared, differences + list(wrong.values())


def newest_package() -> tuple[str, str]:
    """Returns the name of the host's newest linux-source package, and apt's description of its file. A new file has a new description."""
    search = ["apt-cache", "--names-only", "search", "^linux-source-[0-9.]+$"]
    names = subprocess.run(search, capture_output=True, text=True, check=True).stdout.splitlines()
    packages = sorted((line.split()[0] for line in names), key=lambda name: [int(n) for n in re.findall(r"\d+", name)])
    if not packages:
        raise RuntimeError("no linux-source package is known; run apt-get update")
    uris = ["apt-get", "download", "--print-uris", packages[-1]]
    return packages[-1], subprocess.run(uris, capture_output=True, text=True, check=True).stdout


def fetch_header(package: str) -> str:
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["apt-get", "download", package], cwd=place, check=True, capture_output=True, timeout=900)
        subprocess.run(["dpkg-deb", "-x", str(next(Path(place).glob("*.deb"))), f"{place}/x"], check=True, timeout=300)
        with tarfile.open(next(Path(place, "x/usr/src").glob("linux-source-*.tar.xz"))) as source:
            for member in source:
                if member.name.endswith(HEADER):
                    found = source.extractfile(member)
                    assert found
                    return found.read().decode()
    raise RuntimeError(f"{HEADER} is not in {package}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--header", type=Path, help="ixgbe_type.h; default: fetched as a package")
    options = parser.parse_args(arguments)
    table = register_table.parse((Path(__file__).parent / "registers.toml").read_text())
    try:
        header = options.header.read_text() if options.header else fetch_header(newest_package()[0])
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"compare_with_linux: {error}", file=sys.stderr)
        return 1
    shared, differences = compare(table, header)
    for line in differences:
        print(line)
    print(f"{shared} registers have a name in Linux's driver, {len(differences)} differ")
    if shared < SHARED_MIN:
        print(f"compare_with_linux: fewer than {SHARED_MIN}: the header was not understood", file=sys.stderr)
        return 1
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
