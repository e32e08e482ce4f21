"""Pages are filled in from the program while the site is built, so that nothing in them can go stale.

    <!-- fedge: keys -->        becomes what the function `keys` of PARTS returns
    ```{session}                becomes the commands in it and what each of them prints
    fedge keys lr
    ```

Sphinx hands each page's text to `fill` before it is parsed (event `source-read`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.addnodes import pending_xref

import commands
import operators
import python_api
import sessions

ROOT = Path(__file__).parents[2]
PARTS = {
    "commands": commands.commands,
    "keys": commands.keys,
    "algorithms": commands.algorithms,
    "updates": commands.updates,
    "exit codes": commands.exit_codes,
    "python": python_api.names,
    "theory": python_api.theory,
    "operators": operators.figures,
}
MARK = re.compile(r"^<!-- fedge: (.+?) -->$", re.M)


def fill(text: str) -> str:
    """Put what the program says in the place of each mark and each session of a page."""
    text = MARK.sub(lambda mark: PARTS[mark[1]](), text)
    return sessions.BLOCK.sub(lambda block: sessions.show(block[1].splitlines()), text)


def unlink(doctree: Any) -> None:
    """Show links to what is in the repository and not of the site as words; those that lead nowhere stay an error."""
    for link in list(doctree.findall(pending_xref)):
        inside = re.sub(r"^(\.\./)+", "", link["reftarget"].removeprefix(f"{ROOT}/"))
        if link["reftype"] == "myst" and not inside.startswith(("docs/", "#")) and found(inside):
            link.replace_self(link.children)


def found(inside: str) -> bool:
    return (ROOT / inside).exists() or (ROOT / f"{inside}.md").exists()


def setup(app: Any) -> dict[str, Any]:
    def on_page(app: Any, name: str, source: list[str]) -> None:
        source[0] = fill(source[0])

    app.connect("source-read", on_page)
    app.connect("doctree-read", lambda app, doctree: unlink(doctree))
    return {"parallel_read_safe": True}
