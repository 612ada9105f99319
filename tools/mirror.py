# SPDX-License-Identifier: BSL-1.0
"""The Debian mirror that this machine uses.

Neap names no mirror itself. It uses the mirror of the machine's apt, and requests other suites from it. apt's configuration has two formats
(one line per entry; deb822 paragraphs) and may list sources that are not Debian. An entry counts as Debian if it offers the component
`main` of one of Debian's suites, and if it names no keyring except Debian's. Signatures are checked for everything from the mirror. So a
wrong guess ends in an error, not in wrong software.
"""

import re
from pathlib import Path

from tools.errors import Failure

DEBIAN_SUITES = {"bookworm", "trixie", "forky", "duke", "oldoldstable", "oldstable", "stable", "testing", "unstable", "sid"}


# One line or paragraph of apt's sources: its URIs, suites and components, and the keyring that signs them ("": any).
Source = tuple[list[str], list[str], list[str], str]


def parse_one_line(text: str) -> list[Source]:
    """Returns the entries of a `.list` file. Invalid entries are left out, because apt itself reports them."""
    sources = []
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)((?:\s+[^\s#]+)*)", line)
        if not match:
            continue
        options, uri, suite, components = match.groups()
        signed_by = re.search(r"signed-by=(\S+)", options or "", re.IGNORECASE)
        sources.append(([uri], [suite], components.split(), signed_by.group(1) if signed_by else ""))
    return sources


def parse_deb822(text: str) -> list[Source]:
    """Returns the enabled entries of a `.sources` file."""
    sources = []
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        fields: dict[str, str] = {}
        name = ""
        for line in paragraph.splitlines():
            if line[:1] in " \t":
                fields[name] = f"{fields.get(name, '')} {line.strip()}"
            elif ":" in line:
                name, value = line.split(":", 1)
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false", "0"):
            continue
        signed_by = fields.get("signed-by", "")
        lists = (fields.get(name, "").split() for name in ("uris", "suites", "components"))
        sources.append((*lists, "" if "BEGIN PGP" in signed_by else signed_by))
    return sources


def read_sources(system_root: Path) -> list[Source]:
    """Returns all entries of the machine's apt, in apt's own order."""
    directory = system_root / "etc/apt"
    sources: list[Source] = []
    files = [directory / "sources.list"]
    if (directory / "sources.list.d").is_dir():
        files += sorted((directory / "sources.list.d").iterdir())
    for path in files:
        if not path.is_file():
            continue
        text = path.read_text(errors="replace")
        if path.suffix == ".list":
            sources += parse_one_line(text)
        elif path.suffix == ".sources":
            sources += parse_deb822(text)
    return sources


def debian_mirrors(system_root: Path = Path("/")) -> list[str]:
    """Returns the machine's Debian mirrors, the best guess first. Raises Failure if there is none."""
    mirrors = []
    for uris, suites, components, signed_by in read_sources(system_root):
        of_debian = not signed_by or "debian" in Path(signed_by.split()[0]).name
        if of_debian and "main" in components and DEBIAN_SUITES & set(suites):
            mirrors += [uri.rstrip("/") for uri in uris if not uri.startswith("cdrom:")]
    if not mirrors:
        raise Failure(
            "this machine's apt knows no Debian mirror, and Neap gets QEMU and sources as Debian packages",
            "Neap runs on Debian 12 or newer; add a Debian mirror (component main) to apt's sources",
        )
    return list(dict.fromkeys(mirrors))


def debian_keyring(system_root: Path = Path("/")) -> Path:
    """Returns the keyring that checks the archive's signatures. Raises Failure if the machine has none."""
    for name in ("debian-archive-keyring.gpg", "debian-archive-keyring.pgp"):
        path = system_root / "usr/share/keyrings" / name
        if path.is_file():
            return path
    raise Failure("this machine lacks Debian's archive keyring", "as root: apt-get install debian-archive-keyring")
