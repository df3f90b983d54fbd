"""The blocks of the pages at the root and in docs/, as the tests see them."""

import dataclasses
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]

_BLOCK = re.compile(
    r"^(?:<!-- (?P<kind>not run|save as): (?P<detail>[^\n]+?) -->\n)?"
    r"```(?P<language>[a-z]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
      page: path of the page below the repository.
      line: number of its first line.
      language: `bash`, `python`, `yaml`, `json` or `text`.
      text: what it holds.
      not_run: why no test can run it; empty if one does.
      save_as: file of the work folder that it is; empty if it is none.
    """

    page: str
    line: int
    language: str
    text: str
    not_run: str = ""
    save_as: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(name: str) -> list[Block]:
    """Returns all blocks of a page, in order."""
    text = (ROOT / name).read_text(encoding="utf-8")
    parts = []
    for match in _BLOCK.finditer(text):
        line = text[: match.start("text")].count("\n") + 1
        detail = {match["kind"]: match["detail"]}
        parts.append(
            Block(
                name,
                line,
                match["language"],
                match["text"],
                detail.get("not run", ""),
                detail.get("save as", ""),
            )
        )
    return parts


def commands(block: Block) -> list[list[str]]:
    """Returns the command lines of a bash block, split into words, without comments."""
    text = block.text.replace("\\\n", " ")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]
