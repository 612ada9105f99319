# SPDX-License-Identifier: BSL-1.0
from pathlib import Path

import pytest

from tools import mirror
from tools.errors import Failure


def write(root: Path, name: str, text: str) -> None:
    path = root / "etc/apt" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
LINE = "# deb http://no.example/debian bookworm main\n deb  http://a.example/debian/  bookworm  main contrib # x\n"
LINE_WITH_OPTIONS = f"deb [ arch=amd64 signed-by={KEYRING} ] http://a.example/debian stable main\n"
PARAGRAPHS = f"""\
Types: deb deb-src
# a comment in between
URIs: http://a.example/debian
 http://b.example/debian
Suites: trixie
 trixie-updates
Components: main
Signed-By: {KEYRING}

Enabled: no
Types: deb
URIs: http://c.example/debian
Suites: trixie
Components: main
"""
# `Signed-By` contains the key itself instead of a keyring's file name.
PARAGRAPH_WITH_KEY = """\
Types: deb
URIs: http://a.example/debian
Suites: sid
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 x
"""


@pytest.mark.parametrize(
    ("name", "text", "mirrors"),
    [
        pytest.param("sources.list", LINE, "a", id="one line"),
        pytest.param("sources.list.d/a.list", LINE_WITH_OPTIONS, "a", id="one line with options"),
        pytest.param("sources.list.d/debian.sources", PARAGRAPHS, "ab", id="deb822"),
        pytest.param("sources.list.d/debian.sources", PARAGRAPH_WITH_KEY, "a", id="deb822 with a key"),
    ],
)
def test_the_mirrors_of_both_formats_are_found(tmp_path: Path, name: str, text: str, mirrors: str) -> None:
    write(tmp_path, name, text)
    assert mirror.debian_mirrors(tmp_path) == [f"http://{letter}.example/debian" for letter in mirrors]


@pytest.mark.parametrize(
    "line",
    [
        "deb http://a.example/debian-security bookworm-security main",  # another archive, which has no trixie
        "deb http://a.example/tool bookworm stable",
        "deb http://a.example/tool tool-bookworm main",
        "deb [signed-by=/usr/share/keyrings/vendor.gpg] http://a.example bookworm main",
        "deb-src http://a.example/debian bookworm main",
        "deb cdrom:[Debian]/ bookworm main",
        "deb http://a.example/ubuntu jammy main",
    ],
)
def test_other_archives_are_not_taken_for_a_debian_mirror(tmp_path: Path, line: str) -> None:
    write(tmp_path, "sources.list", line + "\n")
    with pytest.raises(Failure, match="knows no Debian mirror"):
        mirror.debian_mirrors(tmp_path)


def test_a_machine_without_apt_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="Neap runs on Debian 12 or newer"):
        mirror.debian_mirrors(tmp_path)


def test_a_missing_keyring_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="apt-get install debian-archive-keyring"):
        mirror.debian_keyring(tmp_path)
