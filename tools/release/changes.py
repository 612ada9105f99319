# SPDX-License-Identifier: BSL-1.0
"""Takes the section of one version out of CHANGELOG.md."""

import re

from tools.errors import Failure

_HEADING = re.compile(r"^## (\d+\.\d+\.\d+)(?:, (.*))?$", re.MULTILINE)
UNRELEASED = "unreleased"


def section(changelog: str, version: str, *, snapshot: bool) -> str:
    """Returns the section of `version` with its heading. Raises Failure if there is none, if it is empty, or if it is marked as unreleased
    and this is no snapshot."""
    headings = list(_HEADING.finditer(changelog))
    for heading, following in zip(headings, [*headings[1:], None]):
        if heading[1] == version:
            text = changelog[heading.start() : following.start() if following else len(changelog)].rstrip() + "\n"
            if not text.removeprefix(heading[0]).strip():
                raise Failure(f"CHANGELOG.md says nothing about {version}", "write what has changed, commit it, and move the tag")
            if heading[2] == UNRELEASED and not snapshot:
                hint = f"write the date, like '## {version}, 2026-11-28', commit it, and move the tag"
                raise Failure(f"CHANGELOG.md marks {version} as {UNRELEASED}", hint)
            return text
    raise Failure(f"CHANGELOG.md has no section '## {version}, DATE'", "write it, commit it, and move the tag")
