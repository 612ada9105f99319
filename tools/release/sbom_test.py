# SPDX-License-Identifier: BSL-1.0
"""The lists of a release, made from this checkout's own sources."""

import json
import re
from pathlib import Path

import pytest

from tools import boot_programs
from tools.conftest import REPOSITORY
from tools.errors import Failure
from tools.release import boot_parts, components, inventory, licences, sbom, version
from tools.release.conftest import EPOCH, REVISION
from tools.release.stage import Stage

# The licences of SPDX's list that occur, so that a misspelt one is found.
KNOWN = """0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause BSL-1.0 GCC-exception-3.1 GPL-2.0-only GPL-2.0-or-later GPL-3.0-or-later LGPL-2.1-only
LGPL-2.1-or-later LGPL-3.0-or-later LLVM-exception MIT NOASSERTION Unicode-3.0 Unlicense Zlib bzip2-1.0.6""".split()


@pytest.fixture(scope="module")
def stage() -> Stage:
    """The sources of this checkout, and no programs."""
    none = REPOSITORY / "build/none"
    root = boot_programs.require().root
    return Stage(REPOSITORY, version.of_tree(REPOSITORY), REVISION, EPOCH, none, none, none, none, none, root)


@pytest.fixture(scope="module")
def listed(stage: Stage) -> inventory.Inventory:
    return inventory.of(stage, boot_parts.files(boot_programs.require()))


@pytest.fixture(scope="module")
def document(stage: Stage, listed: inventory.Inventory) -> dict:
    return json.loads(sbom.document(stage, listed))


def test_the_document_has_the_structure_of_spdx_2_3(document: dict) -> None:
    for field in ("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo", "packages", "relationships"):
        assert document[field], field
    assert (document["spdxVersion"], document["dataLicense"], document["SPDXID"]) == ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["creationInfo"]["created"])
    assert "#" not in document["documentNamespace"] and document["documentNamespace"].startswith("https://")
    identifiers = [package["SPDXID"] for package in document["packages"]]
    assert len(set(identifiers)) == len(identifiers)
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", identifier) for identifier in identifiers)
    for package in document["packages"]:
        assert package["name"] and package["versionInfo"] and package["downloadLocation"] and package["filesAnalyzed"] is False
        for checksum in package.get("checksums", []):
            assert checksum["algorithm"] == "SHA256" and re.fullmatch(r"[0-9a-f]{64}", checksum["checksumValue"])
        for reference in package.get("externalRefs", []):
            assert reference["referenceCategory"] == "PACKAGE-MANAGER" and reference["referenceLocator"].startswith("pkg:")
    for relation in document["relationships"]:
        for end in (relation["spdxElementId"], relation["relatedSpdxElement"]):
            assert end in {*identifiers, "SPDXRef-DOCUMENT"}, end
        assert relation["relationshipType"] in ("DESCRIBES", "CONTAINS", "STATIC_LINK", "BUILD_DEPENDENCY_OF")


def test_licences_are_expressions_of_known_licences(document: dict) -> None:
    own = {row["licenseId"] for row in document["hasExtractedLicensingInfos"]}
    for package in document["packages"]:
        words = re.split(r"[\s()]+", package["licenseDeclared"])
        assert set(words) - {"", "AND", "OR", "WITH"} <= {*KNOWN, *own}, package
    assert all(row["extractedText"].strip() for row in document["hasExtractedLicensingInfos"])


def linked(document: dict, product: str) -> set[str]:
    names = {package["SPDXID"]: package["name"] for package in document["packages"]}
    kinds = ("STATIC_LINK", "CONTAINS")
    return {
        names[relation["relatedSpdxElement"]]
        for relation in document["relationships"]
        if relation["relationshipType"] in kinds and names.get(relation["spdxElementId"]) == product
    }


def test_each_product_has_its_own_components(document: dict) -> None:
    base = {"newlib", "libgcc", "libstdc++", "Boost (headers)"}
    assert linked(document, "hello.elf") == base
    assert linked(document, "memcached.elf") == {*base, "lwIP"}
    assert linked(document, "webserver.elf") == {*base, "lwIP", "QuickJS-ng", "llhttp", "Ada"}
    assert linked(document, "neap-world") >= {"smoltcp", "libc", "clap", "Rust's standard library"}
    assert "smoltcp" not in linked(document, "neap-load") and "hdrhistogram" in linked(document, "neap-load")
    assert "serde_derive" not in linked(document, "neap-load")  # it runs in the compiler
    assert linked(document, "boot programs") >= {"grub-common", "ipxe", "xorriso", "libc6"}
    assert linked(document, "toolchain") >= {"GCC", "GNU Binutils", "newlib", "libgmp-dev"}
    products = {f"{path.parent.name}.elf" for path in (REPOSITORY / "apps").glob("*/main.cpp")}
    products |= {"soft82599", "neap-load", "neap-load-stub", "neap-world", "machine plugin", "toolchain", "boot programs"}
    assert linked(document, "Neap") == products


def test_crates_have_the_checksum_of_the_lock_file(document: dict) -> None:
    lock = (REPOSITORY / "bench/load/Cargo.lock").read_text()
    version, checksum = re.search(r'name = "hdrhistogram"\nversion = "(.+)"\nsource = .*\nchecksum = "(.+)"', lock).groups()
    (package,) = (package for package in document["packages"] if package["name"] == "hdrhistogram")
    assert (package["versionInfo"], package["checksums"][0]["checksumValue"]) == (version, checksum)


def test_every_component_has_its_text_in_the_file_of_licences(stage: Stage, listed: inventory.Inventory) -> None:
    text = licences.text(stage, listed).decode()
    for component in listed.components.values():
        assert f"{component.name} {component.version}: {component.licence}\n" in text
        assert f"\n{component.name} {component.version} (" in text
    for words in ("GCC RUNTIME LIBRARY EXCEPTION", "Boost Software License - Version 1.0", "Fabrice Bellard", "Swedish Institute of"):
        assert words in text
    parts = text.split(f"\n{licences.RULE}\n")
    contents = [part.strip("\n") for part in parts[2::2]]
    assert len(set(contents)) == len(contents) > 20, "a text is in the file twice"


def test_a_component_without_a_text_is_no_component(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="there is no licence text of thing 1"):
        components.Component("thing", "thing", "1", "MIT", (("LICENSE", " \n"),))
    with pytest.raises(Failure, match="there is no licence text at"):
        components.read(tmp_path / "LICENSE")
    (tmp_path / "a.c").write_text("/* adds numbers */ int x;")
    with pytest.raises(Failure, match="has no comment with a licence"):
        components.read(tmp_path / "a.c", comments=True)
