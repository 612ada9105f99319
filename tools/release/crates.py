# SPDX-License-Identifier: BSL-1.0
"""The crates that the programs in Rust contain: version and checksum from Cargo.lock, licence and dependencies from `cargo metadata`.

Cargo.lock also lists crates for other systems. They are not fetched, are in no program, and are not listed here.
"""

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from tools import build
from tools.errors import Failure
from tools.process import output_of
from tools.release.building import RUST_TARGET
from tools.release.components import COMMON_LICENCES, Component, debian_documents, read

WORKSPACES = {"soft82599": "sim/soft82599", "load": "bench/load", "world": "sim/world"}
LICENCE_FILE = re.compile(r"(licen[cs]e|copying|copyright|unlicense|notice)", re.IGNORECASE)
METADATA_SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Graph:
    """The crates of a workspace. `linked`: the keys of the crates in its program; `tools`: of those that only ran during the build."""

    components: dict[str, Component]
    linked: frozenset[str]
    tools: frozenset[str]


def graph(tree: Path, package: str) -> Graph:
    """Returns the crates of the workspace that `package` is the program of. Raises Failure if a crate has no licence text."""
    folder = tree / WORKSPACES[package]
    metadata = _metadata(folder)
    checksums = {
        (row["name"], row["version"]): row.get("checksum", "") for row in tomllib.loads((folder / "Cargo.lock").read_text())["package"]
    }
    packages = {row["id"]: row for row in metadata["packages"]}
    needs = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    root = next(id for id, row in packages.items() if row["name"] == package)
    linked, tools = _reached(root, packages, needs)
    foreign = {id: row for id, row in packages.items() if row["source"] and id in linked | tools}
    components = {id: _component(row, checksums[row["name"], row["version"]]) for id, row in foreign.items()}
    return Graph(
        {component.key: component for component in components.values()},
        frozenset(components[id].key for id in linked if id in foreign),
        frozenset(components[id].key for id in tools - linked if id in foreign),
    )


def _metadata(folder: Path) -> dict:
    cargo = build.find_cargo()
    if cargo is None:
        raise Failure(f"no Rust {build.OLDEST_RUSTC[0]}.{build.OLDEST_RUSTC[1]} or newer", "./neap doctor says which packages bring it")
    words = ["metadata", "--format-version=1", "--offline", "--locked", f"--filter-platform={RUST_TARGET}"]
    manifest = f"--manifest-path={folder / 'Cargo.toml'}"
    try:
        return json.loads(output_of([cargo, *words, manifest], timeout_seconds=METADATA_SECONDS, name="cargo metadata"))
    except Failure as failure:
        hint = f"cargo fetch --locked in {folder} fetches what is missing"
        raise Failure(failure.message, hint, failure.details) from None


def _reached(root: str, packages: dict, needs: dict) -> tuple[set[str], set[str]]:
    """Returns the crates that a program contains, and those that its build uses. A dependency for tests is in neither."""
    linked: set[str] = set()
    tools: set[str] = set()
    left = [(root, True)]
    while left:
        id, is_linked = left.pop()
        is_linked = is_linked and not any("proc-macro" in target["kind"] for target in packages[id]["targets"])
        into = linked if is_linked else tools
        if id in into:
            continue
        into.add(id)
        for need in needs[id]:
            kinds = {row["kind"] for row in need["dep_kinds"]}
            if None in kinds:
                left.append((need["pkg"], is_linked))
            if "build" in kinds:
                left.append((need["pkg"], False))
    return linked, tools


def _component(row: dict, checksum: str) -> Component:
    licence = (row["license"] or "NOASSERTION").replace("/", " OR ")
    folder = Path(row["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.is_file() and LICENCE_FILE.match(path.name))
    if row["license_file"]:
        files = sorted({*files, folder / row["license_file"]})
    texts = [read(path) for path in files]
    if not texts and "Apache-2.0" in licence.split():
        # A few crates leave their texts out. Of the licences that they offer, only this one's text is the same for all works.
        texts = [read(debian_documents() / COMMON_LICENCES / "Apache-2.0")]
    return Component(
        key=f"crate-{row['name']}-{row['version']}",
        name=row["name"],
        version=row["version"],
        licence=licence,
        texts=tuple(texts),
        sha256=checksum,
        file=f"{row['name']}-{row['version']}.crate",
        purl=f"pkg:cargo/{row['name']}@{row['version']}",
    )


def merged(graphs: Iterable[Graph]) -> dict[str, Component]:
    """Returns the crates of several workspaces. Raises Failure if two of them have one version with different checksums."""
    found: dict[str, Component] = {}
    for each in graphs:
        for key, component in each.components.items():
            if found.setdefault(key, component).sha256 != component.sha256:
                raise Failure(f"{component.name} {component.version} has two checksums in the files Cargo.lock", "cargo update repairs it")
    return found
