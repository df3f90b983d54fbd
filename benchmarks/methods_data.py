"""The small corpora on which `benchmarks.methods` trains: real text in two parts."""

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from benchmarks.processes import run_module
from official_cmlm.errors import UserError

VOCAB_SIZE = 12000
LANGUAGES = ("en", "de")
# Books, and rows at the end of each table, that no training reads.
TRAIN_BOOKS, HELD_OUT_BOOKS = 40, 4
HELD_OUT_PAIRS, HELD_OUT_INFERENCES = 1000, 1000


def prepare(work_dir: Path) -> dict[str, Path]:
    """Writes texts, a vocabulary and records below `work_dir`, unless they are there.

    Returns:
      Name -> folder of records: `books`, `sentences`, `pairs`, `inferences`, each also with
      `_held_out` but `sentences`; and `sts`, STS-B's development set.

    Raises:
      UserError: if CMLM_DATA_DIR is not set or lacks the data.
    """
    data = Path(os.environ.get("CMLM_DATA_DIR", ""))
    if not os.environ.get("CMLM_DATA_DIR") or not data.is_dir():
        raise UserError(
            "CMLM_DATA_DIR is not set: these trainings need books, translations, inferences and "
            "STS-B, which no fallback has"
        )
    texts = work_dir / "texts"
    texts.mkdir(parents=True, exist_ok=True)
    _write_texts(data, texts)
    vocabulary = work_dir / "vocab.txt"
    if not vocabulary.exists():
        run_module(
            *("data_prep.build_vocab", f"--input={texts}", "--lines=paragraphs"),
            *(f"--output={vocabulary}", f"--vocab_size={VOCAB_SIZE}"),
        )
    tables = {name: [texts / f"{name}.{lang}" for lang in LANGUAGES] for name in _TABLES}
    makers = {
        "books": ("documents", texts / "books.txt", "--lines=paragraphs"),
        "books_held_out": ("documents", texts / "books_held_out.txt", "--lines=paragraphs"),
        "sentences": ("documents", texts / "sentences.txt", "--lines=sentences", "--keep_text"),
        "pairs": ("pairs", *tables["pairs"]),
        "pairs_held_out": ("pairs", *tables["pairs_held_out"]),
        "inferences": ("pairs", *tables["inferences"], *_INFERENCES),
        "inferences_held_out": ("pairs", *tables["inferences_held_out"], *_INFERENCES),
    }
    for name, (kind, *arguments) in makers.items():
        folder = work_dir / "records" / name
        if not (folder / "dataset.json").exists():
            paths = [str(a) for a in arguments if isinstance(a, Path)]
            run_module(
                *(f"data_prep.create_{kind}", f"--input={','.join(paths)}"),
                *(f"--vocab_file={vocabulary}", f"--output_dir={folder}"),
                *([f"--languages={','.join(LANGUAGES)}"] if kind == "pairs" else []),
                *(a for a in arguments if isinstance(a, str)),
            )
    folders = {name: work_dir / "records" / name for name in makers}
    return folders | {"sts": data / "senteval/downstream/STS/STSBenchmark/sts-dev.csv"}


_TABLES = ("pairs", "pairs_held_out", "inferences", "inferences_held_out")
_INFERENCES = ("--format=tsv", "--row_aligned", "--drop_empty")


def _write_texts(data: Path, folder: Path) -> None:
    books = sorted((data / "text/en").glob("*.txt"))
    _write(folder / "books.txt", _paragraphs(books[:TRAIN_BOOKS]))
    _write(folder / "books_held_out.txt", _paragraphs(books[-HELD_OUT_BOOKS:]))
    _write(
        folder / "sentences.txt",
        _lines(data / "mirror_bert/stsbenchmark_train_10k_sents_random_sampled.txt"),
    )
    for language in LANGUAGES:
        captions = _lines(data / f"multi30k/train.lc.norm.tok.{language}")
        _write(folder / f"pairs.{language}", captions[:-HELD_OUT_PAIRS])
        _write(folder / f"pairs_held_out.{language}", captions[-HELD_OUT_PAIRS:])
        rows = _lines(data / f"multinli_translated/multinli.train.{language}.tsv")[1:]
        _write(folder / f"inferences.{language}", rows[:-HELD_OUT_INFERENCES])
        _write(folder / f"inferences_held_out.{language}", rows[-HELD_OUT_INFERENCES:])


def _paragraphs(books: list[Path]) -> Iterable[str]:
    """A paragraph a line, a blank line between books."""
    for book in books:
        text = book.read_text(encoding="utf-8", errors="replace")
        for paragraph in text.split("\n\n"):
            if joined := " ".join(paragraph.split()):
                yield joined
        yield ""


def _lines(path: Path) -> list[str]:
    if not path.exists():
        raise UserError(f"{path}: missing below CMLM_DATA_DIR")
    return path.read_text(encoding="utf-8").splitlines()


def _write(path: Path, lines: Iterable[str]) -> None:
    if not path.exists():
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def held_out_pairs(work_dir: Path) -> tuple[list[str], list[str]]:
    """Sentences and their translations that no training has seen."""
    first, second = (_lines(work_dir / f"texts/pairs_held_out.{lang}") for lang in LANGUAGES)
    return list(itertools.islice(first, HELD_OUT_PAIRS)), second[:HELD_OUT_PAIRS]
