# SPDX-License-Identifier: BSL-1.0
"""All components of a release, and which of its products contains which.

The content of an image follows from the libraries that its CMakeLists.txt names. The content of a program in Rust follows from cargo's
graph of dependencies.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.errors import Failure
from tools.release import boot_components, components, crates
from tools.release.components import Component
from tools.release.stage import Stage

# Components that every image contains, and those that a library of CMake brings along.
IMAGE_BASE = ("newlib", "libgcc", "libstdc++", "boost")
BY_LIBRARY = {"neap_net": ("lwip",), "neap_webserver": ("quickjs", "llhttp", "ada")}
RUST_BASE = ("rust-std", "glibc", "host-libgcc")
PROGRAMS = {"soft82599": "soft82599", "neap-load": "load", "neap-load-stub": "load", "neap-world": "world"}
PLUGIN = ("host-libstdc++", "host-libgcc")
TOOLCHAIN = ("gcc", "binutils", "newlib", "libgcc", "libstdc++", *components.COMPILER_LIBRARIES, "host-libstdc++", "host-libgcc")
_APPLICATION = re.compile(r"neap_application\(\s*(\S+)\s([^)]*)\)")


@dataclasses.dataclass(frozen=True)
class Product:
    """A program of the release. `linked`: keys of the components in it. `tools`: of those that its build ran. `is_collection`: it consists
    of separate files, which are not linked with each other."""

    name: str
    linked: tuple[str, ...]
    tools: tuple[str, ...] = ()
    is_collection: bool = False


@dataclasses.dataclass(frozen=True)
class Inventory:
    components: Mapping[str, Component]
    products: tuple[Product, ...]


def of(stage: Stage, boot_parts: Iterable[str]) -> Inventory:
    """Returns the inventory of a stage. Raises Failure if a component has no licence text, or a product names an unknown component."""
    graphs = {package: crates.graph(stage.tree, package) for package in crates.WORKSPACES}
    found = {each.key: each for each in (*components.pinned(), *components.toolchain(), *components.host())}
    found |= crates.merged(graphs.values())
    products = [Product(f"{name}.elf", linked) for name, linked in images(stage.tree).items()]
    for program, package in PROGRAMS.items():
        products.append(Product(program, (*RUST_BASE, *sorted(graphs[package].linked)), tuple(sorted(graphs[package].tools))))
    products += [Product("machine plugin", PLUGIN), Product("toolchain", TOOLCHAIN, is_collection=True)]
    if stage.boot_programs and (names := list(boot_parts)):
        packages = boot_components.components(stage.boot_programs, names)
        found |= {each.key: each for each in packages}
        products.append(Product("boot programs", tuple(each.key for each in packages), is_collection=True))
    unknown = {key for product in products for key in (*product.linked, *product.tools)} - set(found)
    if unknown:
        raise Failure(f"products contain {', '.join(sorted(unknown))}, which no list of components has")
    return Inventory(dict(sorted(found.items())), tuple(products))


def images(tree: Path) -> dict[str, tuple[str, ...]]:
    """Returns the components of each application's image."""
    found = {}
    for source in sorted((tree / "apps").glob("*/main.cpp")):
        application = source.parent.name
        calls = dict(_APPLICATION.findall((source.parent / "CMakeLists.txt").read_text()))
        if application not in calls:
            raise Failure(f"{source.parent}/CMakeLists.txt has no neap_application({application} ...)")
        libraries = calls[application].split()
        found[application] = (*IMAGE_BASE, *(key for library, keys in BY_LIBRARY.items() if library in libraries for key in keys))
    return found
