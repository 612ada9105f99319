# SPDX-License-Identifier: BSL-1.0
"""Fills the HTML templates of pages that contain their data and scripts. Such a page opens without a network.

page/frame.html is around the body of each page. Its content security policy forbids all connections.

Texts from logs and peers are inserted, and a text may contain a placeholder. So all placeholders are replaced in one pass over the
template's own lines.
"""

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

FRAME = Path(__file__).parent / "page/frame.html"
TITLE = "@TITLE@"


def page(body: Path, title: str, replacements: Mapping[str, str], styles: Sequence[Path], data: object, scripts: Sequence[Path]) -> str:
    """Returns a page whose heading is `title`, followed by the template `body`. `data` and the scripts replace the body's @SCRIPT@."""
    script = f"""<script type="application/json" id="data">
{json_text(data)}
</script>
<script>
{_joined(scripts)}
</script>"""
    template = FRAME.read_text().replace("@BODY@\n", body.read_text())
    return fill(template, {**replacements, TITLE: html.escape(title), "@STYLE@": _joined(styles), "@SCRIPT@": script})


def _joined(files: Sequence[Path]) -> str:
    return "\n".join(path.read_text() for path in files)


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
