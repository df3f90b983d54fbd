"""Searches an index by meaning: `cmlm search my.index "where is the key kept?" -k 5`.

Prints file, line, score and text of the passages that are nearest. `cmlm index` makes an index.
"""

import dataclasses
import json
import os
import shutil
import textwrap
from typing import Annotated

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import between


@dataclasses.dataclass(frozen=True)
class Question:
    """A question to an index, and the form of its answers.

    Attributes:
      index: folder of the index.
      query: text of the question.
      k: number of passages to print.
      model: the encoder. Default: the one of the index.
      json: whether to print a JSON object a line, for programs.
    """

    index: str
    query: str
    k: Annotated[int, between(1, 100_000)] = 5
    model: str | None = None
    json: bool = False


def define_flags() -> None:
    """Defines the flags of the question and of the encoder's backend."""
    cli.define(Question)
    cli.define(cli.Backend)


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    from official_cmlm.encoding.encoders import load_model
    from official_cmlm.search import Index

    question = cli.read(Question)
    settings = dict(Index.read_settings(question.index).get("encoder", {}))
    if question.model:
        # The folder of the encoder may have moved; another encoder is refused by its vectors.
        settings["model"] = question.model
    if not settings.get("model"):
        raise UserError(f"{question.index}: names no encoder; give --model")
    index = Index.load(question.index, load_model("queries", settings), verify=False)
    width = min(100, shutil.get_terminal_size().columns)
    for hit in index.search(question.query, question.k):
        if question.json:
            print(json.dumps(hit._asdict()))
            continue
        file, line = hit.metadata.get("file", hit.id), hit.metadata.get("line")
        if os.path.isabs(file) and not (near := os.path.relpath(file)).startswith(".."):
            file = near
        print(f"{hit.score:.3f}  {file}{f':{line}' if line else ''}")
        for paragraph in hit.text.splitlines():
            print(textwrap.fill(paragraph, width, initial_indent="  ", subsequent_indent="  "))
        print()


if __name__ == "__main__":
    define_flags()
    cli.run(main)
