# SPDX-License-Identifier: BSL-1.0
"""The works of others that a release contains: name, version, licence, checksum, and the licence's text.

Each kind of source has a function here or in crates.py. All read the files from which the products were built: the pinned sources in the
cache, cargo's directory, and the documentation of Debian's packages. A component without a text is an error, because a release without it
would break the licence.
"""

import dataclasses
import re
from pathlib import Path

from tools import cache, progress, sources
from tools.archive import SUITE, Archive
from tools.errors import Failure
from tools.process import output_of, output_or_none

DOCUMENTS = "usr/share/doc"
COMMON_LICENCES = "usr/share/common-licenses"
# Packages whose documentation has the licences of the toolchain's sources, with the name of the pin that has their version.
DOCUMENTED_BY = {"gcc": "gcc-14-base", "binutils": "binutils-common", "newlib": "libnewlib-dev"}
# Libraries inside the cross compiler, from packages of the machine that builds it.
COMPILER_LIBRARIES = {
    "libgmp-dev": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libmpfr-dev": "LGPL-3.0-or-later",
    "libmpc-dev": "LGPL-3.0-or-later",
}
RUNTIME_LICENCE = "GPL-3.0-or-later WITH GCC-exception-3.1"
NEWLIB_LICENCE = "BSD-3-Clause AND BSD-2-Clause AND MIT AND LicenseRef-newlib"
_LICENCE_COMMENT = re.compile(r"/\*(?:(?!\*/).)*(?:permission|licen[cs]e)(?:(?!\*/).)*\*/", re.DOTALL | re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Component:
    """A work of others. `licence`: an SPDX expression. `texts`: (title, text). `sha256`: of the file that was fetched, if there is one.
    `purl`: the name in the form of package URLs."""

    key: str
    name: str
    version: str
    licence: str
    texts: tuple[tuple[str, str], ...]
    sha256: str = ""
    file: str = ""
    purl: str = ""
    comment: str = ""

    def __post_init__(self):
        if not any(text.strip() for _, text in self.texts):
            raise Failure(f"there is no licence text of {self.name} {self.version}", "a release MUST have the text of each licence")


def read(path: Path, comments: bool = False) -> tuple[str, str]:
    """Returns a text with its file's name as title. `comments`: only the comments of a source file that state a licence. Raises Failure if
    the file is missing or states none."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise Failure(f"there is no licence text at {path}: {error.strerror}", "fetch the sources again: ./neap clean --cache") from None
    if comments:
        found = _LICENCE_COMMENT.findall(text)
        if not found:
            raise Failure(f"{path} has no comment with a licence", "the pinned source is another one than expected")
        text = "\n\n".join(found)
    return path.name, text


def pinned() -> list[Component]:
    """Returns the components that toolchain/sources.toml pins and that images contain, apart from the C and C++ libraries."""
    pins = sources.pins()
    # Debian's statement on all of Boost has 2 MB, for files that no image contains. The licence is the same for all headers.
    boost = debian_documents() / COMMON_LICENCES / "BSL-1.0"
    quickjs = sources.quickjs() / "upstream-quickjs"
    of_quickjs = sorted(path for path in quickjs.iterdir() if path.suffix in (".c", ".h") and _LICENCE_COMMENT.search(path.read_text()))
    texts = {
        "lwip": ("lwIP", "BSD-3-Clause", [read(sources.lwip() / "COPYING")]),
        "boost": ("Boost (headers)", "BSL-1.0", [read(boost)]),
        "quickjs": ("QuickJS-ng", "MIT AND Unicode-3.0", [read(path, comments=True) for path in of_quickjs]),
        # The fetched package has the licence of its own binding. The one of llhttp is beside the test vectors, which are of llhttp.
        "llhttp": ("llhttp", "MIT", [read(sources.llhttp_tests() / "vendor/llhttp/LICENSE")]),
        "ada": ("Ada", "MIT OR Apache-2.0", [read(sources.ada() / "LICENSE")]),
    }
    return [_of_pin(pins[key], key, name, licence, found) for key, (name, licence, found) in texts.items()]


def _of_pin(pin: sources.Pin, key: str, name: str, licence: str, texts: list[tuple[str, str]]) -> Component:
    upstream = next(((file, digest) for file, digest in pin.files if ".debian." not in file), ("", pin.sha256))
    kind = "pypi" if pin.is_sdist else "deb/debian"
    purl = f"pkg:{kind}/{pin.package}@{pin.version}"
    return Component(key, name, pin.version, licence, tuple(texts), upstream[1], upstream[0], purl)


def toolchain() -> list[Component]:
    """Returns the C and C++ libraries of images, and the parts of the cross compiler."""
    pins, documents = sources.pins(), debian_documents()
    licences = {"gcc": "GPL-3.0-or-later", "binutils": "GPL-3.0-or-later", "newlib": NEWLIB_LICENCE}
    texts = {key: debian_texts(documents, package, licences[key]) for key, package in DOCUMENTED_BY.items()}
    gcc = {"sha256": pins["gcc"].sha256, "purl": f"pkg:deb/debian/{pins['gcc'].package}@{pins['gcc'].version}"}
    found = [
        Component("newlib", "newlib", pins["newlib"].version, NEWLIB_LICENCE, texts["newlib"], pins["newlib"].sha256),
        Component("libgcc", "libgcc", pins["gcc"].version, RUNTIME_LICENCE, texts["gcc"], **gcc),
        Component("libstdc++", "libstdc++", pins["gcc"].version, RUNTIME_LICENCE, texts["gcc"], **gcc),
        Component("gcc", "GCC", pins["gcc"].version, licences["gcc"], texts["gcc"], **gcc),
        Component("binutils", "GNU Binutils", pins["binutils"].version, licences["binutils"], texts["binutils"], pins["binutils"].sha256),
    ]
    for package, licence in COMPILER_LIBRARIES.items():
        version = output_or_none(["dpkg-query", "--show", "--showformat=${Version}", package]) or "NOASSERTION"
        comment = "linked into the cross compiler; the version is that of the machine which made the release"
        found.append(Component(package, package, version, licence, debian_texts(documents, package, licence), comment=comment))
    return found


def host() -> list[Component]:
    """Returns the parts of this machine's compilers that are linked into programs: the C library, GCC's libraries, and Rust's."""
    found = []
    for key, file, licence in (
        ("glibc", "libc.a", "LGPL-2.1-or-later"),
        ("host-libgcc", "libgcc_eh.a", RUNTIME_LICENCE),
        ("host-libstdc++", "libstdc++.a", RUNTIME_LICENCE),
    ):
        path = output_of(["g++", f"-print-file-name={file}"]).strip()
        owner = output_or_none(["dpkg-query", "--search", str(Path(path).resolve())])
        if owner is None:
            raise Failure(f"no package of this machine has {file}", "a release is made on Debian, whose packages state their licences")
        package = owner.split(":")[0]
        version = output_of(["dpkg-query", "--show", "--showformat=${Version}\n", package]).splitlines()[0]
        texts = debian_texts(Path("/"), package, licence)
        found.append(Component(key, f"{package} ({file})", version, licence, texts, purl=f"pkg:deb/debian/{package}@{version}"))
    return [*found, _rust()]


def _rust() -> Component:
    """Returns Rust's standard library, which every program in Rust contains."""
    from tools import build

    compiler = Path(build.find_cargo() or "cargo").with_name("rustc")
    version = output_of([str(compiler), "--version"]).split()[1]
    place = Path(output_of([str(compiler), "--print", "sysroot"]).strip()) / "share/doc/rust"
    if (place / "COPYRIGHT-library.html").is_file():
        title, page = read(place / "COPYRIGHT-library.html")
        texts = [(title, plain_text(page)), *(read(place / f"licenses/{name}.txt") for name in ("Apache-2.0", "MIT"))]
    else:
        texts = list(debian_texts(Path("/"), "libstd-rust-dev", "MIT OR Apache-2.0"))
    return Component("rust-std", "Rust's standard library", version, "MIT OR Apache-2.0", tuple(texts))


def plain_text(page: str) -> str:
    """Returns the text of an HTML page, without its tags."""
    import html

    body = re.sub(r"<(script|style)\b.*?</\1>|<!--.*?-->", "", page, flags=re.DOTALL | re.IGNORECASE)
    return re.sub(r"\n\s*\n\s*\n+", "\n\n", html.unescape(re.sub(r"<[^>]+>", "", body))).strip() + "\n"


def debian_texts(root: Path, package: str, licence: str) -> tuple[tuple[str, str], ...]:
    """Returns the statement of a Debian package below `root`, with the common licences that it refers to, and those of the SPDX expression
    `licence`. A statement may refer to a newer version of a licence than the work's own."""
    title, statement = read((root / DOCUMENTS / package / "copyright").resolve())
    common = debian_documents() / COMMON_LICENCES
    names = {name.rstrip(".") for name in re.findall(rf"/{COMMON_LICENCES}/([A-Za-z0-9.+-]+)", statement)}
    names |= {f"{family}-{number.removesuffix('.0')}" for family, number in re.findall(r"\b(L?GPL)-(\d\.\d)", licence)}
    files = {(common / name).resolve() for name in names if (common / name).exists()}
    return (f"{package}: {title}", statement), *(read(path) for path in sorted(files))


def debian_documents() -> Path:
    """Returns the folder with the documentation of the packages in DOCUMENTED_BY and COMPILER_LIBRARIES, and Debian's common licences. It
    is in the cache, and is fetched if it is missing."""
    pins, archive = sources.pins(), Archive()
    wanted = {package: pins[key].version for key, package in DOCUMENTED_BY.items()}
    entry = cache.Entry("licence-texts", cache.digest(SUITE, *sorted(COMPILER_LIBRARIES), *(f"{name} {at}" for name, at in wanted.items())))
    with entry.making(work="fetches licences") as mine:
        if mine:
            for package in (*COMPILER_LIBRARIES, "base-files"):
                candidate = archive.candidate(package)
                if candidate is None:
                    raise Failure(f"Debian's {SUITE} has no {package}", "a release takes licence texts from it")
                wanted[package] = candidate
            with progress.step(f"fetching the licence texts of {len(wanted)} packages of Debian's {SUITE}"):
                archive.unpack(sorted(wanted.items()), entry.path)
    return entry.path
