# SPDX-License-Identifier: BSL-1.0
"""Checks that every release makes of its own products, before it packs them."""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.errors import Failure
from tools.release.boot_parts import PLACE
from tools.release.stage import PLUGIN, Stage

PT_INTERP = 3
_ELF64_HEADER = struct.Struct("<4s4x8xHHIQQQIHHHHHH")
_PROGRAM_HEADER_TYPE = struct.Struct("<I")


def require_products(stage: Stage, products: Mapping[str, Path]) -> None:
    """Raises Failure if a product is missing, has the path of its folder in it, or is a program that needs shared libraries."""
    missing = [name for name, path in products.items() if not path.is_file()]
    for what in (f"build/{PLUGIN}/", PLACE):
        if not any(name.startswith(what) for name in products):
            missing.append(what.rstrip("/"))
    if missing:
        raise Failure(f"{stage.tree} has not built {', '.join(missing)}", "./neap release builds all of them")
    require_no_paths(stage.tree, stage.products().values())
    for program in (stage.soft_card, stage.load, stage.load_stub, stage.world):
        if is_dynamic(program):
            raise Failure(f"{program} is linked dynamically", "./neap release builds it statically, so that it runs on every Linux")


def require_no_paths(tree: Path, products: Iterable[Path]) -> None:
    """Raises Failure if a product of the build in the folder `tree` has the path of this folder in it, or one of the user's home."""
    places = [str(tree).encode(), str(Path.home()).encode() + b"/."]
    for product in products:
        content = product.read_bytes()
        if place := next((place for place in places if place in content), None):
            hint = "two builds in different folders would differ; the compiler's options must replace this path"
            raise Failure(f"{product.relative_to(tree)} contains the path {place.decode(errors='replace')}", hint)


def is_dynamic(program: Path) -> bool:
    """True if a program needs a dynamic linker, which its header names (System V ABI, chapter 5, PT_INTERP). Raises Failure for a file that
    is no 64-bit program."""
    content = program.read_bytes()
    if len(content) < _ELF64_HEADER.size or content[:5] != b"\x7fELF\x02":
        raise Failure(f"{program} is no 64-bit ELF file")
    fields = _ELF64_HEADER.unpack_from(content)
    offset, size, count = fields[5], fields[9], fields[10]
    if offset + size * count > len(content) or (count and size < _PROGRAM_HEADER_TYPE.size):
        raise Failure(f"{program} is not whole")
    return any(_PROGRAM_HEADER_TYPE.unpack_from(content, offset + size * index)[0] == PT_INTERP for index in range(count))
