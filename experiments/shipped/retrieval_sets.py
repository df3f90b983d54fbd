"""Makes the two retrieval data sets by which the shipped encoders are scored, in BEIR's form.

    python -m experiments.shipped.retrieval_sets held_out_pairs.jsonl qnli/dev.tsv out

The first file is the output of `cmlm title-pairs`, the second QNLI's as GLUE ships it (Wang et al.
2019). `out/titles` asks with titles for their bodies. `out/qnli` asks with questions for the
sentences that answer them, among all of its sentences.
"""

import csv
import json
from collections.abc import Iterable
from pathlib import Path

from official_cmlm import cli
from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.common.files import stage_folder


def main(title_pairs: str, qnli: str, output: str) -> None:
    """Writes both data sets into a new folder."""
    if Path(output).exists():
        raise UserError(f"{output}: exists already; remove it, or name another folder")
    with guard_reading(title_pairs), open(title_pairs, encoding="utf-8") as file:
        titles = [(row["title"], row["body"]) for row in map(json.loads, file)]
    with guard_reading(qnli), open(qnli, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        answers = [(r["question"], r["sentence"]) for r in rows if r["label"] == "entailment"]
    with stage_folder(Path(output)) as folder:
        write_set(folder / "titles", titles, [body for _, body in titles])
        write_set(folder / "qnli", answers, [row["sentence"] for row in rows])


def write_set(folder: Path, pairs: Iterable[tuple[str, str]], texts: Iterable[str]) -> None:
    """Writes a data set of queries that have one right text each.

    Args:
      folder: folder to make.
      pairs: queries and their texts; a query with several texts is left out, as it identifies none
        of them.
      texts: all texts, in order; equal texts are written once.
    """
    right: dict[str, set[str]] = {}
    for query, text in pairs:
        right.setdefault(query, set()).add(text)
    ids = {text: f"d{i}" for i, text in enumerate(dict.fromkeys(texts))}
    judged = [(query, *answers) for query, answers in right.items() if len(answers) == 1]
    if not judged:
        raise UserError(f"{folder.name}: no query has one right text; check the files")
    (folder / "qrels").mkdir(parents=True)
    queries = {query: f"q{i}" for i, (query, _) in enumerate(judged)}
    for name, named in (("corpus", ids), ("queries", queries)):
        lines = (json.dumps({"_id": id_, "text": text}) + "\n" for text, id_ in named.items())
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    lines = [f"{queries[query]}\t{ids[text]}\t1\n" for query, text in judged]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))


if __name__ == "__main__":
    cli.run(main)
