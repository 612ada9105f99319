# SPDX-License-Identifier: BSL-1.0
"""A small Debian archive in a directory, signed with its own key. Tests of the private apt read this archive over `file:` URIs."""

import os
import shutil
import subprocess
from pathlib import Path

from tools import cache
from tools.archive import BACKPORTS, SUITE, Archive

CONTROL = "Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: tests <tests@example.org>\nDescription: for a test\n"


class FakeMirror:
    """Contains binary and source packages. Each change is published: the indexes are written and signed anew."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.pool = directory / "pool"
        self.pool.mkdir(parents=True)
        self.system_root = directory / "system"
        (self.system_root / "etc/apt").mkdir(parents=True)
        (self.system_root / "etc/apt/sources.list").write_text(f"deb file:{directory} bookworm main\n")
        self._stanzas: list[tuple[str, str]] = []
        self._gpg_home = directory / "gpg"
        self._gpg_home.mkdir(mode=0o700)
        self.keyring = self.new_key("archive")

    def archive(self) -> Archive:
        """Returns a private apt that reads this mirror and trusts its key."""
        return Archive(self.system_root, self.keyring)

    def new_key(self, name: str) -> Path:
        """Makes a key, which signs all later changes. Returns its keyring."""
        self.signer = f"{name}@example.org"
        self._gpg("--quick-gen-key", "--passphrase", "", self.signer, "ed25519", "sign", "never")
        keyring = self.directory / f"{name}-debian.gpg"
        keyring.write_bytes(self._gpg("--export", self.signer))
        return keyring

    def add_package(self, name: str, version: str, files: dict[str, str | Path]) -> Path:
        """Makes a binary package of `files` (text, or files to copy). Returns the .deb."""
        tree = self.directory / "tree"
        cache.remove(tree)
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(CONTROL.format(name=name, version=version))
        for path, content in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                shutil.copy(content, tree / path)
            else:
                (tree / path).write_text(content)
        deb = self.pool / f"{name}_{version.replace(':', '%3a')}_all.deb"
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", str(tree), str(deb)], check=True, capture_output=True, timeout=60)
        stanza = CONTROL.format(name=name, version=version)
        stanza += f"Filename: pool/{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {cache.file_sha256(deb)}\n"
        self._stanzas.append(("binary", stanza))
        self.publish()
        return deb

    def add_source(self, name: str, version: str, files: list[Path]) -> None:
        """Adds a source package of `files`, and makes its .dsc."""
        for path in files:
            shutil.copy(path, self.pool / path.name)
        rows = "".join(f" {cache.file_sha256(path)} {path.stat().st_size} {path.name}\n" for path in files)
        dsc = self.pool / f"{name}_{version}.dsc"
        dsc.write_text(f"Format: 3.0 (quilt)\nSource: {name}\nVersion: {version}\nChecksums-Sha256:\n{rows}")
        rows += f" {cache.file_sha256(dsc)} {dsc.stat().st_size} {dsc.name}\n"
        self._stanzas.append(("source", f"Package: {name}\nBinary: {name}\nVersion: {version}\nDirectory: pool\nChecksums-Sha256:\n{rows}"))
        self.publish()

    def forget(self, name: str) -> None:
        """Removes a package from the indexes. A point release of Debian removes old versions in this way."""
        self._stanzas = [(kind, text) for kind, text in self._stanzas if not text.startswith(f"Package: {name}\n")]
        self.publish()

    def publish(self) -> None:
        for suite in (SUITE, BACKPORTS):
            release = self.directory / "dists" / suite
            cache.remove(release)
            sums = ""
            for kind, index in (("binary", "main/binary-amd64/Packages"), ("source", "main/source/Sources")):
                path = release / index
                path.parent.mkdir(parents=True)
                path.write_text("\n".join(text for of, text in self._stanzas if of == kind))
                sums += f" {cache.file_sha256(path)} {path.stat().st_size} {index}\n"
            head = f"Origin: Debian\nSuite: {suite}\nCodename: {suite}\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"
            (release / "Release").write_text(head + f"Architectures: amd64 all\nComponents: main\nSHA256:\n{sums}")
            signed = self._gpg("--clear-sign", "--local-user", self.signer, "--output", "-", str(release / "Release"))
            (release / "InRelease").write_bytes(signed)

    def _gpg(self, *arguments: str) -> bytes:
        argv = ["gpg", "--batch", "--quiet", "--homedir", str(self._gpg_home), *arguments]
        return subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60).stdout

    def close(self) -> None:
        """Ends the agent that gpg leaves running."""
        argv = ["gpgconf", "--homedir", str(self._gpg_home), "--kill", "all"]
        subprocess.run(argv, env=os.environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
