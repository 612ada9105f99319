# SPDX-License-Identifier: BSL-1.0
from pathlib import Path

import pytest

from tools import mirror
from tools.errors import Failure


def write(root: Path, name: str, text: str) -> None:
    path = root / "etc/apt" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_one_line_format(tmp_path: Path) -> None:
    write(
        tmp_path,
        "sources.list",
        "# deb http://no.example/debian bookworm main\n deb  http://a.example/debian/  bookworm  main contrib # x\n",
    )
    assert mirror.debian_mirrors(tmp_path) == ["http://a.example/debian"]


def test_one_line_format_with_options(tmp_path: Path) -> None:
    line = "deb [ arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg ] http://a.example/debian stable main\n"
    write(tmp_path, "sources.list.d/a.list", line)
    assert mirror.debian_mirrors(tmp_path) == ["http://a.example/debian"]


def test_deb822_format(tmp_path: Path) -> None:
    text = """\
Types: deb deb-src
# a comment in between
URIs: http://a.example/debian
 http://b.example/debian
Suites: trixie
 trixie-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Enabled: no
Types: deb
URIs: http://c.example/debian
Suites: trixie
Components: main
"""
    write(tmp_path, "sources.list.d/debian.sources", text)
    assert mirror.debian_mirrors(tmp_path) == ["http://a.example/debian", "http://b.example/debian"]


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


def test_a_key_written_into_the_entry_is_no_file_name(tmp_path: Path) -> None:
    text = "Types: deb\nURIs: http://a.example/debian\nSuites: sid\nComponents: main\n"
    key = "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n x\n"
    write(tmp_path, "sources.list.d/debian.sources", text + key)
    assert mirror.debian_mirrors(tmp_path) == ["http://a.example/debian"]


def test_a_machine_without_apt_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="Neap runs on Debian 12 or newer"):
        mirror.debian_mirrors(tmp_path)


def test_a_missing_keyring_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="apt-get install debian-archive-keyring"):
        mirror.debian_keyring(tmp_path)
