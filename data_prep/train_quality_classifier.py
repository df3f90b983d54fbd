"""Trains the main-content classifier: `python -m data_prep.train_quality_classifier`.

Learns from text that is to be kept and text that is to be dropped, each a document of its own, to
tell one from the other by logistic regression; states precision and recall on documents that it
did not learn from, and writes one file for `data_prep.stages.quality_classifier`.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import flags

from data_prep.hold_out import is_held_out
from data_prep.readers import Document, ReadOptions, ReadReport, expand_inputs, read_documents
from data_prep.readers.document import DOCUMENTS_BY, LINES
from data_prep.stages.quality_classifier import (
    SIGNALS,
    Features,
    QualityModel,
    signals,
    standardised,
)
from data_prep.stages.quality_signals import Words
from official_cmlm import cli
from official_cmlm.errors import UserError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

FLAGS = flags.FLAGS
THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Training:
    """How the weights are found; values of our own.

    Attributes:
      l2: what half the squared length of the weights costs, beside the mean loss of an example.
        The bias is free. More of it makes phrases that were never seen easier to tell, and the
        order of words harder.
      max_steps: of L-BFGS, which ends earlier at the optimum.
    """

    l2: float = 1e-5
    max_steps: int = 200


def train(
    kept: list[Document],
    dropped: list[Document],
    features: Features | None = None,
    training: Training | None = None,
) -> QualityModel:
    """The classifier that best tells `kept` from `dropped`; no random numbers are involved.

    Raises:
      UserError: one of the two is empty.
    """
    if not kept or not dropped:
        what = "to keep" if not kept else "to drop"
        raise UserError(f"no example of text {what} is left to learn from; give more text")
    features, training = features or Features(), training or Training()
    documents = [*kept, *dropped]
    labels = np.repeat([1.0, 0.0], [len(kept), len(dropped)])
    ngrams, values = vectors(documents, features)
    known = ~np.isnan(values)
    count = np.maximum(known.sum(axis=0), 1)
    means = np.where(known, values, 0.0).sum(axis=0) / count
    scales = np.sqrt(np.where(known, (values - means) ** 2, 0.0).sum(axis=0) / count)
    # A signal that never changes says nothing, and must not divide by 0.
    scales = np.where(scales > 1e-9, scales, 1.0)
    weights, signal_weights, bias = fit(
        ngrams, standardised(values, means, scales), labels, training
    )
    return QualityModel(
        features, weights.astype(np.float32), signal_weights, means, scales, float(bias)
    )


def vectors(documents: Iterable[Document], features: Features) -> tuple["csr_matrix", np.ndarray]:
    """[documents, 2^bits] float64, n-grams by the root of how many there are; [documents, signals].

    The signals are as measured, with NaN where there is none.
    """
    from scipy.sparse import csr_matrix

    columns, data, bounds, rows = [], [], [0], []
    for document in documents:
        words = Words(document.paragraphs)
        found, counts = np.unique(features.buckets(words), return_counts=True)
        columns.append(found.astype(np.int32))
        data.append(counts / np.sqrt(max(counts.sum(), 1)))
        bounds.append(bounds[-1] + len(found))
        rows.append(signals(document.paragraphs, words, document.language))
    shape = (len(rows), 1 << features.bits)
    matrix = csr_matrix((np.concatenate(data), np.concatenate(columns), bounds), shape)
    return matrix, np.stack(rows)


def fit(
    ngrams: "csr_matrix", dense: np.ndarray, labels: np.ndarray, training: Training
) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights of [examples, a] n-grams and [examples, b] signals, and the bias.

    Minimises the mean log loss of the 0/1 `labels` and `training.l2` / 2 times the squared length
    of the weights, by L-BFGS from 0.
    """
    from scipy.optimize import minimize

    split = ngrams.shape[1]
    start = np.zeros(split + dense.shape[1] + 1)
    options = {"maxiter": training.max_steps, "ftol": 1e-10, "gtol": 1e-7}
    loss = objective(ngrams, dense, labels, training.l2)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    return found[:split], found[split:-1], float(found[-1])


def objective(
    ngrams: "csr_matrix", dense: np.ndarray, labels: np.ndarray, l2: float
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """What `fit` minimises: [a + b + 1] weights and bias -> the loss and its gradient."""
    split = ngrams.shape[1]
    transposed = ngrams.T.tocsr()

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        weights = parameters[:-1]
        logits = ngrams @ weights[:split] + dense @ weights[split:] + parameters[-1]
        signed = np.where(labels > 0, logits, -logits)
        # log(1 + exp(-x)) without overflow.
        value = np.logaddexp(0, -signed).mean() + l2 / 2 * (weights @ weights)
        error = (_sigmoid(logits) - labels) / len(labels)
        gradient = np.concatenate([transposed @ error, dense.T @ error, [error.sum()]])
        gradient[:-1] += l2 * weights
        return value, gradient

    return loss


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -logits))


def precision_recall(kept_scores: np.ndarray, dropped_scores: np.ndarray) -> list[dict[str, float]]:
    """For each of `THRESHOLDS` the precision and recall of what is kept.

    `precision` is the share of what is kept that should be, `recall` the share of what should be
    kept that is, `dropped` the share of what should be dropped that is.
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
    """[documents] float64, the model's score of each."""
    return np.array([model.score(one.paragraphs, one.language) for one in documents])


def format_table(table: list[dict[str, float]]) -> str:
    """The table of `precision_recall` in Markdown."""
    lines = ["| threshold | precision of what is kept | recall | dropped rightly |"]
    lines.append("|---|---|---|---|")
    for row in table:
        lines.append(
            f"| {row['threshold']:g} | {row['precision']:.1%} | {row['recall']:.1%} "
            f"| {row['dropped']:.1%} |"
        )
    return "\n".join(lines)


def sample(documents: Iterable[Document], count: int, seed: int) -> list[Document]:
    """Those `count` documents with the smallest hash of seed and text, in the order of the hash.

    Neither the order of the documents nor other documents' ids matter; of equal texts one stays.
    """
    keys = {}
    for document in documents:
        text = "\n".join([str(seed), *document.paragraphs]).encode("utf-8", "replace")
        keys.setdefault(hashlib.blake2b(text, digest_size=16).digest(), document)
    return [keys[key] for key in heapq.nsmallest(count, keys)]


def define_flags() -> None:
    """Defines the flags of the binary."""
    what = "text or .jsonl, plain or gzip; files, directories or patterns separated by commas"
    flags.DEFINE_list("kept", None, f"Text to keep: {what}. Required.")
    flags.DEFINE_list("dropped", None, f"Text to drop: {what}. Required.")
    flags.DEFINE_string("output", None, "JSON file to write. Required.")
    flags.DEFINE_string(
        "language", "en", "Language code of the documents that do not name their own."
    )
    flags.DEFINE_enum(
        "documents_by",
        "blank_line",
        DOCUMENTS_BY,
        "Where an example of plain text ends: at a blank_line, or at the end of the file.",
    )
    flags.DEFINE_enum("lines", "paragraphs", LINES, "What a line of text is; see create_documents.")
    flags.DEFINE_float(
        "held_out", 0.1, "Share of the documents to measure on.", lower_bound=0, upper_bound=0.9
    )
    flags.DEFINE_integer(
        "max_examples", 20000, "Documents of either kind at most; bounds the memory.", lower_bound=1
    )
    flags.DEFINE_integer("seed", 0, "Decides which documents are taken where there are more.")
    flags.DEFINE_float(
        "l2",
        Training.l2,
        "Cost of large weights; more helps with phrases that no example has.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "bits", Features.bits, "Weights of n-grams, as a power of 2.", lower_bound=8, upper_bound=22
    )
    cli.required("kept", "dropped", "output")


def _examples(name: str) -> tuple[list[Document], list[Document]]:
    """(those to learn from, those to measure on) of the files of a flag."""
    options = ReadOptions(FLAGS.documents_by, FLAGS.lines, FLAGS.language)
    documents = read_documents(expand_inputs(FLAGS[name].value), options, ReadReport())
    parts: tuple[list[Document], list[Document]] = ([], [])
    for document in sample(documents, FLAGS.max_examples, FLAGS.seed):
        parts[is_held_out(document, FLAGS.held_out)].append(document)
    if not parts[0] or (FLAGS.held_out and not parts[1]):
        raise UserError(
            f"--{name}: {sum(map(len, parts))} document(s) are too few to learn from some and "
            "measure on others; give more text, or change --documents_by or --held_out"
        )
    return parts


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    output = Path(FLAGS.output)
    if not output.parent.is_dir():
        raise UserError(f"{output.parent}: no such directory; make it or change --output")
    kept, held_out_kept = _examples("kept")
    dropped, held_out_dropped = _examples("dropped")
    model = train(kept, dropped, Features(bits=FLAGS.bits), Training(l2=FLAGS.l2))
    report: dict[str, Any] = {
        "kept": {"learned_from": len(kept), "held_out": len(held_out_kept)},
        "dropped": {"learned_from": len(dropped), "held_out": len(held_out_dropped)},
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
        f"{output}: learned from {len(kept)} documents to keep and {len(dropped)} to drop, "
        f"measured on {len(held_out_kept)} and {len(held_out_dropped)}"
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
