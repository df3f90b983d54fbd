"""Trains the main-content classifier: `cmlm train-quality-classifier`.

Learns to tell text to keep from text to drop, by logistic regression on the measurements of
`stages.quality_classifier`. An example is a document or, with --level=sentence, a sentence. Prints
precision and recall on documents that it did not learn from, and writes the model as one file.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError, one_line
from official_cmlm.common.files import check_output
from official_cmlm.common.hashing import Smallest, hash_text
from official_cmlm.common.languages import check_language_tag
from official_cmlm.common.validation import SEED, OneOf, at_least, between

from .common_flags import other_fields
from .counts import Counts, DropCounter
from .hold_out import is_held_out
from .readers import Document, ReadOptions, expand_inputs, read_documents
from .readers.document import cut_id
from .sentences import split_paragraphs
from .stages import group_pieces
from .stages.normalise import normalise_document
from .stages.quality_classifier import SIGNALS, Features, QualityModel, signals, standardise
from .stages.quality_signals import Words

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

FLAGS = flags.FLAGS
# Our own value of the cost of weights.
L2 = 1e-5
_MOST_STEPS = 200
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def train(
    kept: list[Document],
    dropped: list[Document],
    features: Features | None = None,
    l2: float = L2,
) -> QualityModel:
    """Trains the classifier that best tells `kept` from `dropped`; uses no random numbers.

    Args:
      kept, dropped: the examples; some of each.
      features: how texts become n-grams.
      l2: cost of half the squared length of the weights, added to the mean loss of an example. The
        bias costs nothing. A larger value makes phrases that were never seen easier to tell, and
        the order of words harder.
    """
    features = features or Features()
    documents = [*kept, *dropped]
    labels = np.repeat([1.0, 0.0], [len(kept), len(dropped)])
    ngrams, values = vectors(documents, features)
    is_known = ~np.isnan(values)
    count = np.maximum(is_known.sum(axis=0), 1)
    means = np.where(is_known, values, 0.0).sum(axis=0) / count
    scales = np.sqrt(np.where(is_known, (values - means) ** 2, 0.0).sum(axis=0) / count)
    # A signal that never changes says nothing, and must not cause a division by 0.
    scales = np.where(scales > 1e-9, scales, 1.0)
    weights, signal_weights, bias = fit(ngrams, standardise(values, means, scales), labels, l2)
    return QualityModel(
        features, weights.astype(np.float32), signal_weights, means, scales, float(bias)
    )


def vectors(documents: Iterable[Document], features: Features) -> tuple["csr_matrix", np.ndarray]:
    """Describes documents by their n-grams and signals.

    Returns:
      The count of each n-gram over the root of their number, [documents, 2^bits], float64; the
      signals as measured, [documents, signals], with NaN for unknown ones.
    """
    from scipy.sparse import csr_matrix

    columns, data, bounds, rows = [], [], [0], []
    for document in documents:
        words = Words(document.paragraphs)
        buckets, counts = np.unique(features.buckets(words), return_counts=True)
        columns.append(buckets.astype(np.int32))
        data.append(counts / np.sqrt(max(counts.sum(), 1)))
        bounds.append(bounds[-1] + len(buckets))
        rows.append(signals(document.paragraphs, words, document.language))
    shape = (len(rows), 1 << features.bits)
    matrix = csr_matrix((np.concatenate(data), np.concatenate(columns), bounds), shape)
    return matrix, np.stack(rows)


def fit(
    ngrams: "csr_matrix", dense: np.ndarray, labels: np.ndarray, l2: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Fits weights of [examples, a] n-grams and [examples, b] signals, and the bias.

    It minimises the mean log loss of the 0/1 `labels` plus `l2` / 2 times the squared length of the
    weights, by L-BFGS from 0.
    """
    from scipy.sparse import csr_matrix, hstack
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    # C of scikit-learn multiplies the sum of the losses.
    strength = 1 / (l2 * len(labels)) if l2 else np.inf
    regression = LogisticRegression(C=strength, tol=1e-7, max_iter=_MOST_STEPS)
    with warnings.catch_warnings():
        # After so many steps the decisions no longer change.
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression.fit(hstack([ngrams, csr_matrix(dense)], "csr"), labels)
    split = ngrams.shape[1]
    return regression.coef_[0, :split], regression.coef_[0, split:], float(regression.intercept_[0])


def precision_recall(kept_scores: np.ndarray, dropped_scores: np.ndarray) -> list[dict[str, float]]:
    """Returns the quality of the decision at each of `THRESHOLDS`.

    `precision` is the share of the kept texts that should be kept, `recall` the share of the texts
    to keep that are kept, `dropped` the share of the texts to drop that are dropped.
    """
    table = []
    for threshold in THRESHOLDS:
        right = int((kept_scores >= threshold).sum())
        wrong = int((dropped_scores >= threshold).sum())
        table.append(
            {
                "threshold": threshold,
                "precision": right / max(right + wrong, 1),
                "recall": right / max(len(kept_scores), 1),
                "dropped": 1 - wrong / max(len(dropped_scores), 1),
            }
        )
    return table


def scores(model: QualityModel, documents: Iterable[Document]) -> np.ndarray:
    """Returns the model's score of each document; [documents] float64."""
    return np.array([model.score(one.paragraphs, one.language) for one in documents])


def format_table(table: list[dict[str, float]]) -> str:
    """Formats the table of `precision_recall` in Markdown."""
    lines = ["| threshold | precision of what is kept | recall | dropped rightly |"]
    lines.append("|---|---|---|---|")
    for row in table:
        lines.append(
            f"| {row['threshold']:g} | {row['precision']:.1%} | {row['recall']:.1%} "
            f"| {row['dropped']:.1%} |"
        )
    return "\n".join(lines)


def sample(
    examples: Iterable[tuple[Document, bool]], count: int, seed: int
) -> list[tuple[Document, bool]]:
    """Returns the `count` examples with the smallest hash of seed and text, in order of the hash.

    Neither the order of the documents nor other documents' ids matter; of equal texts one stays.
    The second part of an example is passed on.
    """
    smallest = Smallest(count)
    for example in examples:
        smallest.add(hash_text("\n".join([str(seed), *example[0].paragraphs]), 16), example)
    return smallest.items()


@dataclasses.dataclass(frozen=True)
class Options:
    """The texts to learn from, the classifier's size and its file.

    Attributes:
      kept: files of text to keep: text or .jsonl, plain or gzip; directories or patterns too.
      dropped: files of text to drop.
      output: JSON file to write.
      overwrite: whether to replace a file of that name.
      level: the kind of example that the classifier learns from, and judges best: a document, or
        each sentence of the documents (prepare --quality_level=sentence, CMLM §3).
      held_out: share of the documents to measure on.
      max_examples: examples of either kind at most; bounds the memory.
      seed: decides which documents are taken where there are more.
      l2: cost of large weights; more helps with phrases that no example has.
      bits: weights of n-grams, as a power of 2.
    """

    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    output: str
    overwrite: bool = False
    level: Annotated[str, OneOf(("document", "sentence"))] = "document"
    held_out: Annotated[float, between(0, 0.9)] = 0.1
    max_examples: Annotated[int, between(1, 100_000_000)] = 20_000
    seed: Annotated[int, SEED] = 0
    l2: Annotated[float, at_least(0)] = L2
    bits: Annotated[int, between(8, 22)] = Features.bits


def define_flags() -> None:
    """Defines the flags of training."""
    cli.define(Options)
    names = ("documents_by", "lines", "language")
    cli.define(ReadOptions, skip=other_fields(ReadOptions, names), lines="paragraphs")


def _examples(name: str, files: list[str]) -> tuple[list[Document], list[Document]]:
    """Returns (documents to learn from, documents to measure on) of the flag `name`."""
    counts = Counts()
    examples = make_examples(read_documents(files, cli.read(ReadOptions), counts))
    parts: tuple[list[Document], list[Document]] = ([], [])
    for document, is_measured in sample(examples, FLAGS.max_examples, FLAGS.seed):
        parts[is_measured].append(document)
    for warning in counts.warnings():
        cli.warn(f"--{name}: {warning}")
    if not parts[0] or (FLAGS.held_out and not parts[1]):
        raise UserError(
            f"--{name}: {sum(map(len, parts))} {FLAGS.level}(s) are too few to learn from some and "
            "measure on others; give more text, or change --documents_by or --held_out"
        )
    return parts


def make_examples(documents: Iterator[Document]) -> Iterator[tuple[Document, bool]]:
    """Yields the examples as the classifier will see them, and whether they are to measure on.

    All pieces of a long document are measured on if its first piece is.
    """
    for pieces in group_pieces(documents, lambda piece: piece.continues):
        first = next(pieces)
        is_measured = is_held_out(first, FLAGS.held_out)
        for piece in itertools.chain([first], pieces):
            if document := normalise_document(piece, DropCounter()):
                yield from ((example, is_measured) for example in _at_level(document))


def _at_level(document: Document) -> Iterator[Document]:
    """Yields the examples of a document: itself, or with --level=sentence each of its sentences."""
    if FLAGS.level == "document":
        yield document
        return
    if FLAGS.lines == "sentences":
        sentences = document.paragraphs
    else:
        sentences = split_paragraphs(document.paragraphs, document.language, DropCounter())
    for number, sentence in enumerate(sentences):
        yield Document(cut_id(document.id, "sentence", number), document.language, [sentence])


def main() -> None:
    """Runs the binary."""
    check_language_tag(FLAGS.language, "language")
    output = Path(FLAGS.output)
    if not output.parent.is_dir():
        raise UserError(f"{output.parent}: no such directory; make it or change --output")
    files = {name: expand_inputs(FLAGS[name].value) for name in ("kept", "dropped")}
    check_output(FLAGS.output, FLAGS.overwrite, itertools.chain(*files.values()))
    cli.announce("reading examples …")
    kept, held_out_kept = _examples("kept", files["kept"])
    dropped, held_out_dropped = _examples("dropped", files["dropped"])
    cli.announce(f"training on {len(kept) + len(dropped)} {FLAGS.level}s …")
    model = train(kept, dropped, Features(bits=FLAGS.bits), FLAGS.l2)
    report: dict[str, Any] = {
        "kept": {"learned_from": len(kept), "held_out": len(held_out_kept)},
        "dropped": {"learned_from": len(dropped), "held_out": len(held_out_dropped)},
        "level": FLAGS.level,
        "l2": FLAGS.l2,
        "seed": FLAGS.seed,
    }
    if FLAGS.held_out:
        table = precision_recall(scores(model, held_out_kept), scores(model, held_out_dropped))
        report["held_out"] = table
        print(format_table(table))
    QualityModel(**(vars(model) | {"report": report})).save(output)
    strongest = sorted(zip(model.signal_weights, SIGNALS), key=lambda row: -abs(row[0]))
    print(f"signals by weight: {', '.join(f'{name} {w:+.2f}' for w, name in strongest[:6])}")
    print(
        f"{one_line(output)}: learned from {len(kept)} {FLAGS.level}s to keep and {len(dropped)}"
        f" to drop, measured on {len(held_out_kept)} and {len(held_out_dropped)}"
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
