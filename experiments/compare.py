"""Compares encoders on a retrieval set of your own, beside BM25: `cmlm compare A B --queries=…`.

    cmlm compare mini-en static-en --queries=my/set
    cmlm compare mini-en work/mine --queries=my/pairs.csv --columns=question,answer

The set is a folder in BEIR's form (corpus.jsonl, queries.jsonl, qrels/test.tsv), or a table whose
answers are the documents. It is scored as by the suite `retrieval`: with the encoders' prompts, by
cosines. Brackets are 95 % intervals over bootstrap samples of the queries; that of a difference is
paired. If it does not hold 0, other queries of the same kind would hardly change the sign.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from official_cmlm import cli
from official_cmlm.common.errors import UserError

if TYPE_CHECKING:
    from official_cmlm.evaluation.data.beir import Collection
    from official_cmlm.evaluation.encoder import Encode

_METRICS = ("ndcg_at_10", "mrr_at_10", "recall_at_10")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Encoders, and the queries that they are compared on.

    Attributes:
      encoders: one or more, each as `cmlm evaluate` takes it; the others are compared with the
        first.
      queries: a folder in BEIR's form; or with --columns a table (.csv, .tsv, .jsonl, .json or
        .parquet).
      columns: two columns of the table: a question and its answer.
    """

    encoders: tuple[str, ...]
    queries: str
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        is_table = not os.path.isdir(os.path.expanduser(self.queries))
        if len(set(self.columns)) != 2 * is_table:
            hint = "name two columns of the table, as --columns=question,answer"
            raise UserError(
                f"--queries={self.queries}: {hint if is_table else 'a folder has none'}"
            )
        if len(set(self.encoders)) != len(self.encoders):
            raise UserError(f"--encoders={','.join(self.encoders)}: name each once")


def define_flags() -> None:
    """Defines the flags of `Comparison`, and of the encoders' computation."""
    cli.define(Comparison)
    cli.define(cli.Backend)


def main() -> None:
    """Runs the binary."""
    comparison = cli.read(Comparison)
    cli.quiet_tensorflow()
    from official_cmlm.encoding.encoders import open_encoder
    from official_cmlm.evaluation.embedding_cache import CachedEncoder

    collection = read_collection(comparison)
    encoders = {}
    for name in comparison.encoders:
        cli.announce(f"opening {name} …")
        opened = open_encoder(name, **dataclasses.asdict(cli.read(cli.Backend)))
        encoders[name] = CachedEncoder(opened.encode, roles=opened.roles)
    print(*compare(encoders, collection), sep="\n")


def read_collection(comparison: Comparison) -> "Collection":
    """Reads the folder or table; raises `UserError` if it is not one, or has no queries."""
    from official_cmlm.common.text_files import open_file, read_cells
    from official_cmlm.evaluation.data import beir
    from official_cmlm.evaluation.data.folder import DataFolder

    path = os.path.expanduser(comparison.queries)
    if not comparison.columns:
        collection = beir.read(DataFolder(Path(path)), Path(path), "test")
        for note in collection.notes:
            cli.warn(note)
        return collection
    with open_file(path) as file:
        pairs = [cells for _, cells in read_cells(path, file, comparison.columns)]
    if not pairs:
        raise UserError(f"{path}: no row has both a question and an answer; check --columns")
    return beir.make_of_pairs(pairs)


def compare(encoders: Mapping[str, "Encode"], collection: "Collection") -> list[str]:
    """Returns the lines of a table of scores, and of differences to the first encoder.

    Besides the encoders it has BM25, and each encoder joined with it, as a hybrid search.

    Args:
      encoders: name -> encoder; its `roles`, if it has any, are used.
      collection: queries, documents and judgements.
    """
    import numpy as np

    from official_cmlm.evaluation.metrics.intervals import MEAN_RESAMPLES, bootstrap_means
    from official_cmlm.evaluation.suites import retrieval
    from official_cmlm.search.bm25 import JOINED, Bm25, join_rankings

    options = retrieval.Options()
    places = {
        name: retrieval.rank(encode, collection, options) for name, encode in encoders.items()
    }
    words = Bm25(retrieval.list_documents(collection).values())
    by_words = words.search(list(collection.queries.values()), options.k + 1)
    joined = {
        f"{name} and BM25": join_rankings([by_vectors[:, :JOINED], by_words[:, :JOINED]], options.k)
        for name, by_vectors in places.items()
    }
    places |= {"BM25": by_words} | {name: rows for name, (rows, _) in joined.items()}
    values = {}
    for name, ranking in places.items():
        by_query = retrieval.measure(ranking, collection, options)
        values[name] = np.stack([by_query[metric] for metric in _METRICS], axis=1)
    first, *others = values
    differences = {f"{name} − {first}": values[name] - values[first] for name in others}
    width = max(map(len, differences))
    labels = [retrieval.RESULTS.metric(metric).label for metric in _METRICS]
    lines = [
        f"{len(collection.queries):,} queries, {len(collection.documents):,} documents; "
        f"in brackets 95 % of {MEAN_RESAMPLES:,} bootstrap samples of the queries",
        f"{'':{width}}" + "".join(f"  {label:<24}" for label in labels).rstrip(),
    ]
    for rows, sign in ((values, ""), (differences, "+")):
        for name, columns in rows.items():
            cells = (
                f"  {f'{mean:{sign}.2f} [{low:{sign}.2f}, {high:{sign}.2f}]':<24}"
                for mean, (low, high) in zip(columns.mean(axis=0), bootstrap_means(columns))
            )
            lines.append(f"{name:{width}}{''.join(cells)}".rstrip())
    return lines


if __name__ == "__main__":
    define_flags()
    cli.run(main)
