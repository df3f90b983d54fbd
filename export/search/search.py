"""Searches text by meaning: `cmlm search my/ "where is the key kept?" -k 5`.

Prints file, line, score and text of the passages that are nearest. The text is an index that `cmlm
index` has made, or a file or folder, of which an index is kept in the cache and brought up to date
by each search; `-` is text from standard input.
"""

import dataclasses
import json
import os
import shutil
import textwrap
from typing import TYPE_CHECKING, Annotated

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import between

from . import index as indexing

if TYPE_CHECKING:
    from official_cmlm.search import Index


@dataclasses.dataclass(frozen=True)
class Question:
    """A question to texts, and the form of its answers.

    Attributes:
      index: folder of an index; or a file or folder of text, as `cmlm index` takes it; or - for
        text from standard input.
      query: text of the question.
      k: number of passages to print.
      model: the encoder. Default: the one of the index; of text, mini-en.
      hybrid: whether to rank by words too (BM25), and join both rankings.
      json: whether to print a JSON object a line, for programs.
    """

    index: str
    query: str
    k: Annotated[int, between(1, 100_000)] = 5
    model: str | None = None
    hybrid: bool = False
    json: bool = False


def define_flags() -> None:
    """Defines the flags of the question and of the encoder's backend."""
    cli.define(Question)
    cli.define(cli.Backend)


def main() -> None:
    """Runs the binary."""
    question = cli.read(Question)
    index = _index_standard_input() if question.index == "-" else _open_index(question)
    width = min(100, shutil.get_terminal_size().columns)
    for hit in index.search(question.query, question.k, hybrid=question.hybrid):
        if question.json:
            print(json.dumps(hit._asdict()))
            continue
        file, line = hit.metadata.get("file", hit.id), hit.metadata.get("line")
        if os.path.isabs(file) and not (near := os.path.relpath(file)).startswith(".."):
            file = near
        print(f"{hit.score:.{4 if question.hybrid else 3}f}  {file}{f':{line}' if line else ''}")
        for paragraph in hit.text.splitlines():
            print(textwrap.fill(paragraph, width, initial_indent="  ", subsequent_indent="  "))
        print()


def _index_standard_input() -> "Index":
    from official_cmlm.encoding.encoders import load_model
    from official_cmlm.search import Index

    cli.take_default_model()
    encoder = load_model("queries", {"model": flags.FLAGS.model})
    passages = list(indexing.read_passages("-", indexing.make_cutter(encoder)))
    lines = [{"file": "-", "line": passage.line} for passage in passages]
    return Index.build(encoder, [passage.text for passage in passages], metadata=lines)


def _open_index(question: Question) -> "Index":
    from official_cmlm.encoding.encoders import load_model
    from official_cmlm.search import Index

    folder, model = os.path.expanduser(question.index), question.model
    if os.path.exists(folder) and not Index.is_at(folder):
        model = model or cli.DEFAULT_MODEL
        folder = _index_in_cache(folder, model)
    settings = indexing.IndexSettings.read(folder).encoder
    if model:
        # The folder of the encoder may have moved; another encoder is refused by its vectors.
        settings = dataclasses.replace(settings, model=model)
    if not settings.model:
        raise UserError(f"{folder}: names no encoder; give --model")
    return Index.load(folder, load_model("queries", dataclasses.asdict(settings)))


def _index_in_cache(text: str, model: str) -> str:
    """Returns the folder of an index in the cache, after the changes of its files are read into it.

    Args:
      text: file or folder, of which each encoder has its own index.
      model: name of the encoder.
    """
    from official_cmlm.checkpoints.encoder_directory import encoder_digest
    from official_cmlm.checkpoints.find_encoder import find_encoder
    from official_cmlm.common import files

    digest = encoder_digest(find_encoder(model))
    facts = f"{os.path.abspath(text)} {digest}"
    folder = files.cache_folder() / "indices" / files.digest([], facts)
    if not files.is_cached(folder):
        cli.take_default_model()
        cli.announce(f"reading {text} …")
        files.remove_cached(folder)
    options = indexing.IndexOptions((text,), str(folder))
    change, left_out = indexing.update_index(options, indexing.EncoderSettings(model=model))
    if change:
        indexing.announce_left_out(left_out)
        files.note_cached(folder, folder)
        cli.announce(f"{text}: index built in {folder}, {change}")
    return str(folder)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
