"""What the quality filter finds and what it costs: `python -m benchmarks.quality`.

Trains the main-content classifier on paragraphs of books in three languages against corruptions of
other paragraphs (see `quality_corruptions`), measures it and the published rules on books and
phrases that it never saw, and measures the throughput of every stage on pages of those books.
"""

import hashlib
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from benchmarks.quality_corruptions import CORRUPTIONS, UNSEEN
from data_prep.output.dropped import DropCounter
from data_prep.readers import Document, ReadOptions, ReadReport, expand_inputs, read_documents
from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS
# How each language's books are laid out.
LINES = {"en": "wrapped", "de": "paragraphs", "fr": "paragraphs"}
MIN_WORDS = 40
_HELD_OUT = 0.25  # of the books
# Sizes of a page to measure the speed on, in characters: of the web, and of long articles.
_PAGES = (3000, 30_000)


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string(
        "data_dir", "", "Folder that holds text/{en,de,fr}. Default: CMLM_DATA_DIR."
    )
    flags.DEFINE_integer(
        "examples", 8000, "Paragraphs of each language to learn from; half are corrupted.",
        lower_bound=100,
    )  # fmt: skip
    flags.DEFINE_integer(
        "held_out", 3000, "Paragraphs of each language to measure on.", lower_bound=100
    )
    flags.DEFINE_float("speed_mb", 4.0, "Text of each language to measure the speed on, in MB.")
    flags.DEFINE_integer("seed", 0, "Of paragraphs and corruptions.")


def share(text: str) -> float:
    """A number from 0 to 1 that depends on the text alone."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64


def books(folder: Path, language: str) -> Iterator[tuple[Document, bool]]:
    """Yields (book, whether it is held out); the file's name decides."""
    options = ReadOptions(documents_by="file", lines=LINES[language], language=language)
    for path in expand_inputs([str(folder / "text" / language)]):
        for book in read_documents([path], options, ReadReport()):
            yield book, share(Path(path).name) < _HELD_OUT


def choose(paragraphs: list[tuple[str, str]], count: int, seed: int) -> list[tuple[str, str]]:
    """`count` of (id, text), those with the smallest hashes."""
    return sorted(paragraphs, key=lambda one: share(f"{seed} {one[0]} {one[1]}"))[:count]


def examples(
    chosen: list[tuple[str, str]], language: str, seed: int, held_out: bool
) -> list[tuple[Document, str]]:
    """(document, "" or the name of its corruption); every other paragraph is corrupted."""
    corruptions = CORRUPTIONS | UNSEEN if held_out else CORRUPTIONS
    kinds = list(corruptions)
    result = []
    for number, (name, text) in enumerate(chosen):
        kind = kinds[number // 2 % len(kinds)] if number % 2 else ""
        rng = random.Random(f"{seed} {name}")  # noqa: S311 - an example, no secret
        paragraphs = corruptions[kind](text, language, rng) if kind else [text]
        result.append((Document(name, language, paragraphs), kind))
    return result


def pages(book: Document, characters: int) -> Iterator[Document]:
    """Yields documents of at least so many characters, of whole paragraphs."""
    page: list[str] = []
    size = 0
    for number, text in enumerate(book.paragraphs):
        page.append(text)
        size += len(text)
        if size >= characters:
            yield Document(f"{book.id}/{number}", book.language, page)
            page, size = [], 0


def print_speed(some_books: list[Document], model: str) -> None:
    """Prints MB per CPU-second of each stage on pages of each size, the best of three."""
    from data_prep.stages.language_id import LanguageId
    from data_prep.stages.normalise import Normalise
    from data_prep.stages.quality_classifier import QualityClassifier
    from data_prep.stages.quality_rules import QualityRules

    stages = {
        "normalise": Normalise(),
        "language_id": LanguageId(),
        "quality_rules": QualityRules(),
        "quality_classifier": QualityClassifier(model),
        "quality_classifier_paragraphs": QualityClassifier(model, level="paragraph"),
    }
    speeds: dict[str, list[str]] = {name: [] for name in stages}
    print(
        "\n| stage, MB per CPU-second | " + " | ".join(f"{n:,} characters" for n in _PAGES) + " |"
    )
    print("|---|" + "---|" * len(_PAGES))
    for size in _PAGES:
        documents = [page for book in some_books for page in pages(book, size)]
        megabytes = sum(len(text.encode()) for one in documents for text in one.paragraphs) / 1e6
        for name, stage in stages.items():
            best = float("inf")
            for _ in range(3):
                began = time.process_time()
                kept = sum(stage(one, DropCounter()) is not None for one in documents)
                best = min(best, time.process_time() - began)
            speeds[name].append(f"{megabytes / best:.1f} (keeps {kept / len(documents):.1%})")
    for name, values in speeds.items():
        print(f"| {name} | {' | '.join(values)} |")


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    import numpy as np

    from data_prep.stages import quality_training as training
    from data_prep.stages.quality_rules import QualityRules

    folder = Path(FLAGS.data_dir or os.environ.get("CMLM_DATA_DIR", ""))
    languages = [one for one in LINES if (folder / "text" / one).is_dir()]
    if not languages:
        raise UserError(f"{folder}: no text/en, de or fr; give --data_dir or set CMLM_DATA_DIR")
    learn: list[tuple[Document, str]] = []
    measure: list[tuple[Document, str]] = []
    speed: list[Document] = []
    for language in languages:
        found: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
        size = 0.0
        for book, held_out in books(folder, language):
            for number, text in enumerate(book.paragraphs):
                if len(text.split()) >= MIN_WORDS and text[-1] in ".!?\"'”»«“":
                    found[held_out].append((f"{book.id}/{number}", text))
            if size < FLAGS.speed_mb * 1e6:
                speed.append(book)
                size += sum(map(len, book.paragraphs))
        learn += examples(
            choose(found[0], FLAGS.examples, FLAGS.seed), language, FLAGS.seed, held_out=False
        )
        measure += examples(
            choose(found[1], FLAGS.held_out, FLAGS.seed), language, FLAGS.seed, held_out=True
        )
    began = time.process_time()
    model = training.train(
        [one for one, kind in learn if not kind], [one for one, kind in learn if kind]
    )
    print(f"figure train_examples {len(learn)}")
    print(f"figure train_cpu_seconds {time.process_time() - began:.1f}")
    scores = training.scores(model, (one for one, _ in measure))
    kinds = np.array([kind for _, kind in measure])
    real = scores[kinds == ""]
    print(f"\nheld out: {len(real)} paragraphs, {len(scores) - len(real)} corruptions\n")
    print(training.format_table(training.precision_recall(real, scores[kinds != ""])))
    print("\n| corruption | examples | classifier drops | rules drop | precision against it |")
    print("|---|---|---|---|---|")
    # A paragraph is no page: its rules only, not those of pages' sizes.
    rules = QualityRules(min_words=0, min_sentences=0)
    by_rules = np.array([rules(one, DropCounter()) is None for one, _ in measure])
    kept = int((real >= 0.5).sum())
    for kind in (*CORRUPTIONS, *UNSEEN):
        here = kinds == kind
        let_through = int((scores[here] >= 0.5).sum())
        # As if there were as many of it as there is real text.
        wrong = let_through * len(real) / here.sum()
        print(
            f"| {kind} | {here.sum()} | {1 - let_through / here.sum():.1%} "
            f"| {by_rules[here].mean():.1%} | {kept / (kept + wrong):.1%} |"
        )
    print(
        f"| none | {len(real)} | {1 - kept / len(real):.1%} | {by_rules[kinds == ''].mean():.1%} |"
    )
    print("\n| language | recall | corruptions dropped |\n|---|---|---|")
    spoken = np.array([one.language for one, _ in measure])
    for language in languages:
        own, others = (spoken == language) & (kinds == ""), (spoken == language) & (kinds != "")
        print(
            f"| {language} | {(scores[own] >= 0.5).mean():.1%} "
            f"| {(scores[others] < 0.5).mean():.1%} |"
        )
    with tempfile.TemporaryDirectory() as temporary:
        model.save(f"{temporary}/model.json")
        print_speed(speed, f"{temporary}/model.json")
    wrong = int((scores[kinds != ""] >= 0.5).sum())
    learned = int((scores[np.isin(kinds, list(CORRUPTIONS))] >= 0.5).sum())
    print(f"\nfigure precision_against_learned_kinds {kept / (kept + learned):.4f}")
    print(f"figure precision {kept / (kept + wrong):.4f}")
    print(f"figure recall {kept / len(real):.4f}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
