"""Searches an index by meaning: `cmlm search my.index "where is the key kept?" -k 5`.

Prints file, line, score and text of the passages that are nearest. `cmlm index` makes an index.
"""

import json
import os
import shutil
import textwrap

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags: index, question, number and form of the answers."""
    flags.DEFINE_string("index", None, "Folder of the index. Required.")
    flags.DEFINE_string("query", None, "What is asked. Required.")
    flags.DEFINE_integer("k", 5, "Passages to print.", lower_bound=1, upper_bound=100_000)
    flags.DEFINE_string("model", None, "The encoder. Default: the one of the index.")
    cli.define(cli.Backend)
    flags.DEFINE_bool("json", False, "Whether to print a JSON object a line, for programs.")
    cli.require_flags("index", "query")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    from official_cmlm.encoding.encoders import load_model
    from official_cmlm.search import Index

    settings = dict(Index.read_settings(FLAGS.index).get("encoder", {}))
    if FLAGS.model:
        # The folder of the encoder may have moved; another encoder is refused by its vectors.
        settings["model"] = FLAGS.model
    if not settings.get("model"):
        raise UserError(f"{FLAGS.index}: names no encoder; give --model")
    index = Index.load(FLAGS.index, load_model("queries", settings), verify=False)
    width = min(100, shutil.get_terminal_size().columns)
    for hit in index.search(FLAGS.query, FLAGS.k):
        if FLAGS.json:
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
