# SPDX-License-Identifier: BSL-1.0
"""Fills the HTML templates of pages that contain their data and scripts. Such a page opens without a network.

Texts from logs and peers are inserted, and a text may contain a placeholder. So all placeholders are replaced in one pass over the
template's own lines.
"""

import json
from collections.abc import Mapping

TITLE = "@TITLE@"


def fill(template: str, replacements: Mapping[str, str]) -> str:
    """Returns the template with each line that is a placeholder replaced. The title's placeholder may be a part of a line."""
    parts = []
    for line in template.splitlines():
        name = line.strip()
        parts.append(replacements[name] if name in replacements else line.replace(TITLE, replacements[TITLE]))
    return "\n".join(parts) + "\n"


def json_text(data: object) -> str:
    """Returns JSON that is safe inside of a script element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
