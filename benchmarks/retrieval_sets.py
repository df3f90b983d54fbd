"""Makes two retrieval data sets in BEIR's form, by which shipped encoders are scored.

    python -m benchmarks.retrieval_sets --title_pairs=held_out_pairs.jsonl \
        --qnli=qnli/dev.tsv --output_dir=work/shipped/retrieval

`titles` asks with the titles of `data_prep.title_pairs` for their bodies. `qnli` asks with the
questions of QNLI (Wang et al. 2019) for the sentences that answer them, among all of its sentences.
"""

import csv
import json
from collections.abc import Iterable
from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import staged_folder

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the two sources and of the output."""
    flags.DEFINE_string("title_pairs", None, "Output of data_prep.title_pairs. Required.")
    flags.DEFINE_string("qnli", None, "QNLI's dev.tsv, as GLUE ships it. Required.")
    flags.DEFINE_string("output_dir", None, "Folder to write. Required.")
    cli.required("title_pairs", "qnli", "output_dir")


def main(argv: list[str]) -> None:
    """Runs the program."""
    del argv
    with open(FLAGS.title_pairs, encoding="utf-8") as file:
        titles = [(row["title"], row["body"]) for row in map(json.loads, file)]
    with open(FLAGS.qnli, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    answers = [(r["question"], r["sentence"]) for r in rows if r["label"] == "entailment"]
    output = Path(FLAGS.output_dir)
    if output.exists():
        raise UserError(f"--output_dir={output}: exists already; remove it, or name another folder")
    with staged_folder(output) as folder:
        for name, pairs, texts in (
            ("titles", titles, [body for _, body in titles]),
            ("qnli", answers, [row["sentence"] for row in rows]),
        ):
            write(folder / name, pairs, texts)


def write(folder: Path, pairs: Iterable[tuple[str, str]], texts: Iterable[str]) -> None:
    """Writes a data set of queries that have one right text each.

    Args:
      folder: folder to make.
      pairs: queries and their texts; a query with several texts is left out, as it identifies none
        of them.
      texts: all texts, in order; equal texts are written once.
    """
    found: dict[str, set[str]] = {}
    for query, text in pairs:
        found.setdefault(query, set()).add(text)
    ids = {text: f"d{i}" for i, text in enumerate(dict.fromkeys(texts))}
    queries = [(query, *right) for query, right in found.items() if len(right) == 1]
    if not queries:
        raise UserError(f"{folder.name}: no query has one right text; check the files")
    (folder / "qrels").mkdir(parents=True)
    _write_lines(folder / "corpus.jsonl", ((each, text) for text, each in ids.items()))
    _write_lines(folder / "queries.jsonl", ((f"q{i}", q) for i, (q, _) in enumerate(queries)))
    judged = [f"q{i}\t{ids[right]}\t1\n" for i, (_, right) in enumerate(queries)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))


def _write_lines(path: Path, rows: Iterable[tuple[str, str]]) -> None:
    lines = [json.dumps({"_id": name, "text": text}, ensure_ascii=False) for name, text in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
