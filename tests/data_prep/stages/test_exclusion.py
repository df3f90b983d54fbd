"""Evaluation sentences: every form of file is understood, and no neighbours are made up."""

import gzip
from collections import Counter

import numpy as np
import pytest

from data_prep.readers import Document
from data_prep.stages.exclusion import Cutter, Exclusion
from official_cmlm.errors import UserError

FILES = {
    "sts.tsv": "main-news\t4.5\tA man is dancing .\tA man dances on the table .\n",
    "sst": "2 in his first stab at the form , jacquot is slow .\nit 's charming . \t1\n",
    "trec": "DESC:manner How did serfdom develop in Cura\xe7ao ?\n",
    "tatoeba": "Stop!\n你们都去哪儿\nMary didn't know. Tom did not know either.\nmain\n",
    "stsb.csv": '"Ein Mann, der tanzt.","Eine Frau, die ""singt"".",5.0\n',
    "mrpc.txt": "\ufeffQuality\t#1 String\n1\tThe rise -LRB- of prices -RRB- stopped .\n",
}
GONE = [
    *(
        "a man is dancing",
        "A man dances on the table!",
        "In his first stab at the form, Jacquot is slow.",
    ),
    *("It's charming.", "How did serfdom develop in Curaçao?", "stop.", "你们都去哪儿？"),
    *("Mary didn't know. Tom did not know either.", "Mary did n't know .", "Ein Mann, der tanzt."),
    *("Tom did not know either", "Eine Frau, die „singt“.", "The rise (of prices) stopped."),
]
STAY = ["main", "4.5", "A man.", "2", "DESC:manner", "A woman is dancing.", "5.0", "neutral"]


@pytest.fixture
def paths(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text.encode("latin-1" if name == "trec" else "utf-8"))
    return [str(tmp_path / name) for name in FILES]


def test_formats(paths):
    """Cells and lines of all forms are found, with and without classes; labels are no sentences."""
    exclusion = Exclusion.of(paths)
    assert [text for text in GONE if exclusion.keep(text)] == []
    assert [text for text in STAY if not exclusion.keep(text)] == []
    each = exclusion.keep_each([*GONE, *STAY])
    assert each.tolist() == [False] * len(GONE) + [True] * len(STAY)
    assert exclusion.keep_each([]).tolist() == []
    assert (np.diff(exclusion.keys.astype(object)) > 0).all()


def test_the_order_of_files_does_not_matter(paths):
    """Hashes only, sorted."""
    one, other = Exclusion.of(paths), Exclusion.of(paths[::-1])
    np.testing.assert_array_equal(one.keys, other.keys)
    assert one.keys.dtype == np.uint64


def test_split():
    """Runs between what is left out; each sentence counted."""
    exclusion = Exclusion(Exclusion.of([__file__]).keys)
    counters = Counter()
    sentences = ["a b", "c", "Runs between what is left out; each sentence counted.", "d", "e"]
    assert exclusion.split(sentences, counters) == [["a b", "c"], ["d", "e"]]
    gone = sentences[2]
    assert exclusion.split([gone, gone, "x", gone], counters) == [["x"]]
    assert exclusion.split([gone], counters) == [] == exclusion.split([], counters)
    assert exclusion.split(["x", "y"], counters) == [["x", "y"]]
    assert counters == {"excluded_sentences": 5}


def test_files_that_are_no_text(tmp_path):
    """An archive is skipped and named, gzip is read, nothing usable is a mistake."""
    archive, packed = tmp_path / "a.zip", tmp_path / "b.gz"
    archive.write_bytes(b"PK\0\0")
    packed.write_bytes(gzip.compress(b"What is this?"))
    exclusion = Exclusion.of([str(archive), str(packed)])
    assert exclusion.skipped == (str(archive),) and not exclusion.keep("what is this")
    with pytest.raises(UserError, match=r"a\.zip: no sentence to leave out"):
        Exclusion.of([str(archive)])
    with pytest.raises(UserError, match=r"none: No such file or directory; check --exclude"):
        Exclusion.of([str(tmp_path / "none")])


def test_published_files(data_dir):
    """Sentences of SentEval, STS and Tatoeba as running text would write them."""
    downstream = data_dir / "senteval" / "downstream"
    exclusion = Exclusion.of(
        [
            str(downstream / "STS" / "STSBenchmark" / "sts-test.csv"),
            str(downstream / "TREC" / "TREC_10.label"),
            str(data_dir / "tatoeba" / "v1" / "tatoeba.deu-eng.deu"),
        ]
    )
    assert not exclusion.keep("A girl is styling her hair.")
    assert not exclusion.keep("What county is Modesto, California in?")
    first = (data_dir / "tatoeba" / "v1" / "tatoeba.deu-eng.deu").read_text().splitlines()[0]
    assert not exclusion.keep(first.upper()) and exclusion.keep("A girl is reading a book.")


def test_documents_are_cut_where_a_sentence_is_taken_out(tmp_path):
    """By hand: a piece goes on after the one before only if their neighbours both stayed."""
    (tmp_path / "sts.txt").write_text("Taken out.\n")
    cut = Cutter(Exclusion.of([str(tmp_path / "sts.txt")]))

    def document(name, continues=False):
        return Document(name, "en", ["unused"], continues)

    batches = [
        [
            (document("a"), ["One.", "Taken out!", "Two.", "Three."]),
            (document("b", True), ["Four."]),
            (document("c", True), ["Five.", "taken OUT"]),
        ],
        [
            (document("d", True), ["Six."]),
            (document("e", True), ["Taken out.", "Seven."]),
            (document("f"), ["Taken out."]),
            (document("g", True), []),
            (document("h"), ["Eight."]),
        ],
    ]
    counters = Counter()
    found = [
        (piece.id, piece.continues, sentences)
        for batch in batches
        for piece, sentences in cut(batch, counters)
    ]
    assert found == [
        ("a", False, ["One."]),
        ("a/1", False, ["Two.", "Three."]),
        ("b", True, ["Four."]),
        ("c", True, ["Five."]),
        ("d", False, ["Six."]),
        ("e", False, ["Seven."]),
        ("g", False, []),
        ("h", False, ["Eight."]),
    ]
    assert counters == {"excluded_sentences": 4}
