"""The blocks of README and docs, and the commands that a reader would type from them.

What is not run says so in the line before it, the whole block or the lines that begin with some words:

    <!-- not run: the reason -->
    <!-- not run (fleet up, fleet status): the reason -->
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "decisions" not in p.parts)]
MARK = r"<!-- not run(?: \((?P<some>[^)\n]+)\))?: (?P<why>[^\n]+) -->\n"
FENCE = re.compile(
    rf"^(?P<indent> *)(?:{MARK}(?P=indent))?```(?P<kind>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.M | re.S
)
SHELL = ("", "sh")


class Block(NamedTuple):
    page: str
    kind: str
    why: str | None  # it, or some of its lines, are not run
    some: tuple[str, ...]  # how these lines begin
    body: str

    @property
    def runs(self) -> bool:
        return self.why is None or bool(self.some)


class Line(NamedTuple):
    """This is a line that a reader would type."""

    block: Block
    text: str

    @property
    def words(self) -> list[str]:
        """Return the words after `fedge`; none where something else is called."""
        found = re.match(r"(?:srun )?fedge (.*)", self.text)
        words = shlex.split(found[1], comments=True) if found else []
        return words[: words.index(">")] if ">" in words else words

    @property
    def runs(self) -> bool:
        return self.block.runs and not self.text.removeprefix("fedge ").startswith(self.block.some or "\n")


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for found in FENCE.finditer(page.read_text()):
            indent = len(found["indent"])
            body = "\n".join(line[indent:] for line in found["body"].splitlines())
            some = tuple(found["some"].split(", ")) if found["some"] else ()
            yield Block(str(page.relative_to(ROOT)), found["kind"], found["why"], some, body)


def lines() -> Iterator[Line]:
    """Yield each line of a shell, also those that a page shows with what they print, after a `$`."""
    for block in blocks():
        for text in block.body.replace("\\\n", " ").splitlines():
            if block.kind == "text" and text.startswith("$ "):
                yield Line(block, text.removeprefix("$ "))
            elif block.kind in SHELL and text.strip() and not text.startswith("#"):
                yield Line(block, text.removeprefix(".venv/bin/"))
