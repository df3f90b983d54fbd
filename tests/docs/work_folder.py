"""The folder that the pages' blocks run in: tiny text, tiny data, and what other pages made."""

import shutil
from pathlib import Path

from tests.conftest import WORDS, make_documents, write_records
from tests.docs.pages import ROOT
from tests.evaluation.toy import write, write_senteval, write_year
from tests.pairs_helpers import bitext, nli_rows, triples, write_pairs

# A BERT of two layers × 16 with 40 positions, which transformers wrote.
PUBLIC = ROOT / "tests" / "checkpoints" / "references" / "minilm"
# Files below work/ that a page needs and does not make itself; see `prepare`.
NEEDS = {
    "docs/recipes.md": ("records", "sentences", "pairs", "minilm"),
    "docs/data.md": ("encoder",),
    "docs/reliability.md": ("records",),
    "docs/accelerators.md": ("records",),
    "docs/contributing.md": ("records",),
    "docs/objectives/cmlm.md": ("records",),
    "docs/objectives/mlm.md": ("records",),
    "docs/objectives/nsp.md": ("records",),
    "docs/objectives/quick-thought.md": ("records",),
    "docs/objectives/bitext-retrieval.md": ("records", "pairs", "mined", "minilm"),
    "docs/objectives/nli.md": ("vocab.txt", "minilm", "nli"),
    "docs/objectives/distillation.md": ("minilm",),
    "docs/objectives/contrastive.md": ("sentences", "minilm"),
    "docs/objectives/cmlm-cse.md": ("sentences", "minilm"),
    "docs/objectives/declutr.md": ("minilm",),
    "docs/objectives/diff-cse.md": ("sentences",),
}
_STS_YEARS = ("STS12", "STS13", "STS14", "STS15", "STS16")


def _text(count: int, seed: int, rows_a_paragraph: int = 3) -> str:
    sentences = [p for d in make_documents(count, seed) for p in d.paragraphs]
    return "\n\n".join(
        "\n".join(sentences[i : i + rows_a_paragraph])
        for i in range(0, len(sentences), rows_a_paragraph)
    )


def write_inputs(folder: Path) -> None:
    """Writes a user's files: text, a crawl, translations, inferences, a public checkpoint, data."""
    from tests.data_prep.readers.crawl_pages import article, page

    for i in range(80):
        write(folder / "my" / f"text_{i}.txt", [_text(4, i)])
    lines = _text(30, 20, 1000).splitlines()
    write(folder / "my" / "sentences.txt", lines)
    write(folder / "my" / "texts.csv", ["id,text", *(f'{i},"{t}"' for i, t in enumerate(lines))])
    write(folder / "my" / "kept.txt", [f"{line}\n" for line in lines])
    dropped = [f"{WORDS[i % 30]} | {WORDS[i % 7]} | home | about {i}\n" for i in range(30)]
    write(folder / "my" / "dropped.txt", dropped)
    write(folder / "my" / "labelled.tsv", [f"{'ab'[i % 2]}\t{t}" for i, t in enumerate(lines)])
    for language in ("en", "sw"):
        write(folder / "crawl" / language / "text.txt", [_text(60, ord(language[0]))])
    paragraphs = _text(40, 30).split("\n\n")
    pages = [
        page(f"http://a.example/{i}", article(*paragraphs[i : i + 4], language="en"))
        for i in range(0, len(paragraphs), 4)
    ]
    import gzip

    (folder / "crawl" / "a.warc.gz").write_bytes(b"".join(gzip.compress(p) for p in pages))
    rows = [row[0].texts for row in bitext(40)]
    for side, name in enumerate(("train.en", "train.de")):
        write(folder / name, [texts[side] for texts in rows])
    for number, language in enumerate(("en", "de")):
        table = [row[number] for row in nli_rows(24, ("en", "de"))]
        cells = ["\t".join((*pair.texts, pair.label)) for pair in table]
        write(folder / f"nli.{language}.tsv", ["premise\thypothesis\tlabel", *cells])
    shutil.copytree(PUBLIC, folder / "path" / "to" / "all-MiniLM-L6-v2")
    data = folder / "path" / "to" / "data"
    write_senteval(data / "senteval" / "downstream", 8)
    for year in _STS_YEARS:
        write_year(data / "senteval" / "downstream" / "STS" / f"{year}-en-test", [5, 4, 1, 0])
    for code in ("deu", "fra"):
        write(data / "tatoeba" / "v1" / f"tatoeba.{code}-eng.{code}", [t[1] for t in rows])
        write(data / "tatoeba" / "v1" / f"tatoeba.{code}-eng.eng", [t[0] for t in rows])
    (folder / "examples").symlink_to(ROOT / "examples")


def write_made(folder: Path) -> None:
    """Writes the results of other pages' commands, by their names below work/."""
    from data_prep.readers import Document
    from official_cmlm.checkpoints.formats.importing import import_checkpoint
    from official_cmlm.tokenization import load_vocabulary

    import_checkpoint(PUBLIC, folder / "minilm")
    shutil.copytree(folder / "minilm", folder / "encoder")
    vocabulary = load_vocabulary(folder / "minilm")
    vocabulary.save(folder)
    languages = [
        Document(f"{language}{d.id}", language, d.paragraphs)
        for language in ("en", "de")
        for d in make_documents(80, len(language))
    ]
    write_records(folder / "records", languages, vocabulary)
    write_records(folder / "sentences", make_documents(60), vocabulary, keep_text=True)
    write_pairs(folder / "pairs", bitext(60), vocabulary)
    write_pairs(folder / "mined", triples(60, "en-en"), vocabulary)
    write_pairs(folder / "nli", nli_rows(24, ("en", "de")), vocabulary)


def prepare(name: str, inputs: Path, made: Path, folder: Path) -> None:
    """Makes the folder of one page: a user's files, and what it needs of other pages."""
    shutil.copytree(inputs, folder, symlinks=True)
    (folder / "work").mkdir()
    needed = list(NEEDS.get(name, ()))
    if "vocab.txt" in needed:
        needed.append("vocab.json")
    for part in needed:
        source = made / part
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / "work" / part)
