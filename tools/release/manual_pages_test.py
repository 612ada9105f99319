# SPDX-License-Identifier: BSL-1.0
"""Tests of the manual pages' form. Their options are compared with --help by the tests of each program."""

import re
import shutil
from pathlib import Path

import pytest

from tools import toolchain
from tools.conftest import REPOSITORY
from tools.process import finished

PAGES = [
    REPOSITORY / name
    for name in ("sim/soft82599/soft82599.1", "bench/load/neap-load.1", "bench/load/neap-load-stub.1", "toolchain/x86_64-neap-elf.7")
]
# mandoc asks for lines that fit a terminal.
COLUMNS_MAX = 80
# Tests run with caches of their own, so the toolchain is looked up here.
PREFIX = toolchain.find()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_the_form_of_mdoc(page: Path) -> None:
    lines = page.read_text().splitlines()
    name, section = page.name.rsplit(".", 1)
    assert lines[0] == '.\\" SPDX-License-Identifier: BSL-1.0'
    assert re.fullmatch(r"\.Dd [A-Z][a-z]+ \d+, \d{4}", lines[1])
    assert lines[2:4] == [f".Dt {name.upper()} {section}", ".Os Neap"]
    sections = [line.removeprefix(".Sh ") for line in lines if line.startswith(".Sh ")]
    known = "NAME SYNOPSIS DESCRIPTION OPTIONS CONTROL-SOCKET ENVIRONMENT FILES EXIT-STATUS EXAMPLES SEE-ALSO CAVEATS"
    order = [word.replace("-", " ") for word in known.split()]
    assert sections == [title for title in order if title in sections] and sections[:3] == order[:3]
    assert lines.count(".El") == sum(line.startswith(".Bl ") for line in lines)
    assert lines.count(".Ed") == sum(line.startswith(".Bd ") for line in lines)
    assert not [line for line in lines if len(line) > COLUMNS_MAX or line != line.rstrip() or not line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_formatted_without_warnings(page: Path) -> None:
    if shutil.which("man"):
        done = finished(
            ["man", "--warnings", "--local-file", str(page)], env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert f"{page.stem} " in done.stdout and "NAME\n" in done.stdout


# A section that refers to another by a wrong name, or to a page that the packages lack, leads nowhere.
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_references_within_the_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for title in re.findall(r"^\.Sx (.+?)(?: [.,])?$", text, re.MULTILINE):
        assert f".Sh {title}\n" in text
    for name, section in re.findall(r"^\.Xr (\S*neap\S*|soft82599) (\d)", text, re.MULTILINE):
        assert f"{name}.{section}" in [other.name for other in PAGES]


def test_the_toolchains_page_lists_its_programs() -> None:
    text = PAGES[-1].read_text()
    listed = re.findall(r"^\.Ql ([a-z+-]+[a-z0-9.+-]*)(?: [,.])?$", text.split(".Ss ")[0], re.MULTILINE)
    assert len(listed) >= 20 and listed == sorted(listed)
    if PREFIX:
        prefix = f"{toolchain.TARGET}-"
        programs = {path.name.removeprefix(prefix) for path in (PREFIX / "bin").glob(f"{prefix}*")}
        assert {name for name in programs if not name.startswith("gcc-14")} == set(listed)
