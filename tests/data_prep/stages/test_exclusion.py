"""Evaluation sentences: every form of file is understood, and no neighbours are made up."""

import gzip
import json

import numpy as np
import pytest

from data_prep.counts import DropCounter
from data_prep.readers import Document, ReadOptions
from data_prep.stages.duplicates import drop
from data_prep.stages.exclusion import Cutter, Exclusion
from official_cmlm.common.errors import UserError

FILES = {
    "sts.tsv": "main-news\t4.5\tA man is dancing .\tA man dances on the table .\n",
    "sst": "2 in his first stab at the form , jacquot is slow .\nit 's charming . \t1\n",
    "trec": "DESC:manner How did serfdom develop in Cura\xe7ao ?\n",
    "tatoeba": "Stop!\n你们都去哪儿\nMary didn't know. Tom did not know either.\nmain\n",
    "stsb.csv": '"Ein Mann, der tanzt.","Eine Frau, die ""singt"".",5.0\n',
    "mrpc.txt": "\ufeffQuality\t#1 String\n1\tThe rise -LRB- of prices -RRB- stopped .\n",
    "snli.jsonl": '{"sentence1": "A cat sleeps.", '
    '"more": [{"x": ["Two \\"dogs\\" play.\\nIn snow."]}]}\n'
    '{"sentence1": "Cut in the mid',
    "pretty.json": '[\n {\n  "text": "Caf\\u00e9 is open.",\n  "half": "a \\ud800 b"\n }\n]\n',
    "lines.txt": '[{"question": "Where is the key?"}]\n',
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
    *("A cat sleeps.", "Two dogs play. In snow.", "Two dogs play.", "In snow.", "A b."),
    *("Café is open.", "Where is the key?"),
]
STAY = ["main", "4.5", "A man.", "2", "DESC:manner", "A woman is dancing.", "5.0", "neutral"]


def _keep(exclusion, sentence):
    return bool(exclusion.keep_each([sentence])[0])


@pytest.fixture
def paths(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_bytes(text.encode("latin-1" if name == "trec" else "utf-8"))
    return [str(tmp_path / name) for name in FILES]


def test_formats(paths):
    """Cells and lines of all forms are found, with or without classes; labels are left out."""
    exclusion = Exclusion.of(paths)
    # The order of the files does not matter.
    np.testing.assert_array_equal(exclusion.keys, Exclusion.of(paths[::-1]).keys)
    assert [text for text in GONE if _keep(exclusion, text)] == []
    assert [text for text in STAY if not _keep(exclusion, text)] == []
    marks = exclusion.keep_each([*GONE, *STAY])
    assert marks.tolist() == [False] * len(GONE) + [True] * len(STAY)
    assert exclusion.keep_each([]).tolist() == []
    assert (np.diff(exclusion.keys.astype(object)) > 0).all()


_SCRIPTS = {
    "urdu": "بلی سو رہی ہے\u06d4 کتا بھونکتا ہے\u06d4",
    "amharic": "ድመቷ ተኝታለች\u1362 ውሻው ይጮኻል\u1362",
    "khmer": "ឆ្មាកំពុងដេក\u17d4 ឆ្កែព្រុស\u17d4",
    "burmese": "ကြောင်အိပ်နေသည်\u104b ခွေးဟောင်နေသည်\u104b",
    "armenian": "Կատուն քնած է\u0589 Շունը հաչում է\u0589",
    "hindi": "बिल्ली सो रही है\u0964 कुत्ता भौंकता है\u0964",
    "arabic": "هل القطة نائمة\u061f هل الكلب ينبح\u061f",
    "chinese": "猫在睡觉\u3002狗在叫呢\u3002",
}


@pytest.mark.parametrize("name", _SCRIPTS)
def test_two_sentences_of_any_script_in_a_cell(tmp_path, name):
    """Each is known alone, whatever its mark, as well as both together."""
    text = _SCRIPTS[name]
    (tmp_path / "a.tsv").write_text(f"1.0\t{text}\tother\n")
    exclusion = Exclusion.of([str(tmp_path / "a.tsv")])
    middle = next(at for at, mark in enumerate(text) if mark == text[-1]) + 1
    assert not _keep(exclusion, text)
    assert not _keep(exclusion, text[:middle]) and not _keep(exclusion, text[middle:])
    assert _keep(exclusion, text[: middle // 2])


def test_french_titles_in_a_cell(tmp_path):
    """Split as French text is, where a title ends no sentence."""
    path = tmp_path / "cells.tsv"
    path.write_text("Il a vu Mgr. Roux au port. Mme. Durand dort encore.\t1\n")
    exclusion = Exclusion.of([str(path)])
    for text in ("Il a vu Mgr. Roux au port.", "Mme. Durand dort encore."):
        assert not _keep(exclusion, text)


def test_each_line_is_decoded_by_itself(tmp_path):
    """One bad byte does not turn the whole file into another text."""
    path = tmp_path / "mixed.txt"
    german = "Das Mädchen läuft nach Hause."
    path.write_bytes(german.encode() + b"\nCura\xe7ao is far.\r\n" + "Er läuft.\r".encode())
    exclusion = Exclusion.of([str(path)])
    gone = [german, "Curaçao is far.", "Er läuft."]
    assert [text for text in gone if _keep(exclusion, text)] == []


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16(tmp_path, monkeypatch, encoding, pack):
    """In chunks of any size, of which one may end within a character."""
    monkeypatch.setattr("official_cmlm.common.text_files.BUFFER_BYTES", 7)
    text = "\ufeffDas Mädchen läuft 😀 nach Hause.\nWhat is this?\n"
    (tmp_path / "a").write_bytes(pack(text.encode(encoding)))
    exclusion = Exclusion.of([str(tmp_path / "a")])
    assert not _keep(exclusion, "das mädchen läuft nach hause")
    assert not _keep(exclusion, "What is this?") and _keep(exclusion, "nach Hause")


def test_cells_of_any_length(tmp_path):
    """More than the csv module takes, with quotes, commas and an unclosed end."""
    long = "word " * 40_000
    (tmp_path / "a.csv.gz").write_bytes(
        gzip.compress(
            f'7,"{long}","He said ""no"", twice.",Plain cell here,,"Not closed, or'.encode()
        )
    )
    exclusion = Exclusion.of([str(tmp_path / "a.csv.gz")])
    gone = [long, "He said no, twice.", "Plain cell here", "Not closed, or"]
    assert [text for text in gone if _keep(exclusion, text)] == []


_UNREADABLE = {
    "archive.zip": (b"PK\0\0", "archive.zip: looks like a binary .* .NUL byte at byte 2"),
    "cut.gz": (gzip.compress(b"What is this? " * 99)[:-20], "cut.gz: the gzip stream ends early"),
    "cut16": (b"\xff\xfea\0b", "cut16: no UTF-16 text"),
    "long": (b"word " * 99, "long:1: the line is longer than 200 bytes"),
}


@pytest.mark.parametrize("name", _UNREADABLE)
def test_files_that_cannot_be_read(tmp_path, name):
    """An error, as a leak must not be silent; or it is noted and the rest is read."""
    content, message = _UNREADABLE[name]
    (tmp_path / name).write_bytes(content)
    (tmp_path / "good").write_text("What are those?\n")
    paths = [str(tmp_path / name), str(tmp_path / "good")]
    with pytest.raises(UserError, match=message) as caught:
        Exclusion.of(paths, ReadOptions(max_line_bytes=200))
    assert str(caught.value).startswith(str(tmp_path / name)) and "\n" not in str(caught.value)
    exclusion = Exclusion.of(paths, ReadOptions(max_line_bytes=200, on_error="skip"))
    assert exclusion.faults == (str(caught.value),)
    assert not _keep(exclusion, "What are those?")


def test_nothing_to_leave_out(tmp_path):
    """A missing file, or files without a sentence, are mistakes."""
    (tmp_path / "a").write_text("main\n2\n")
    (tmp_path / "b").write_bytes(b"\0")
    with pytest.raises(UserError, match="a: no sentence to leave out in there$"):
        Exclusion.of([str(tmp_path / "a")])
    with pytest.raises(
        UserError, match=r"b: no sentence to leave out in there \(.*b: looks like a binary"
    ):
        Exclusion.of([str(tmp_path / "b")], ReadOptions(on_error="skip"))
    with pytest.raises(UserError, match="none: no such file"):
        Exclusion.of([str(tmp_path / "none")])


def test_json_at_any_depth(tmp_path):
    """Strings are found deeper than a parser goes, and beside any other content of the line."""
    deep = '{"a": ' * 2000 + json.dumps("Deep down it says so.") + "}" * 2000
    (tmp_path / "a.jsonl").write_text(deep)
    assert not _keep(Exclusion.of([str(tmp_path / "a.jsonl")]), "Deep down it says so.")


def test_endless_punctuation(tmp_path):
    """A splitter by backtracking would take hours for these."""
    leaders = "." * 100_000
    (tmp_path / "a").write_text(f"Chapter one {leaders} 7\nOne. two{'. ' * 50_000}\n{leaders}\n")
    exclusion = Exclusion.of([str(tmp_path / "a")])
    assert not _keep(exclusion, "Chapter one 7") and not _keep(exclusion, "one two")
    assert exclusion.keep_whole([(f"A {leaders} b", "en"), (leaders, "en")]).all()


def test_texts_are_kept_whole_or_not(tmp_path):
    """A text with several sentences goes for one of them; parts of a sentence are none."""
    (tmp_path / "a").write_text("A dog barks.\nOne. Two of them.\n")
    exclusion = Exclusion.of([str(tmp_path / "a")])
    texts = ["It rains. A dog barks!", "A dog barks loudly.", "One. Two of them.", "", "Two.  One."]
    marks = exclusion.keep_whole([(text, "en") for text in texts])
    assert marks.tolist() == [False, True, False, True, False]
    assert exclusion.keep_whole([]).tolist() == []


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
    assert not _keep(exclusion, "A girl is styling her hair.")
    assert not _keep(exclusion, "What county is Modesto, California in?")
    first = (data_dir / "tatoeba" / "v1" / "tatoeba.deu-eng.deu").read_text().splitlines()[0]
    assert not _keep(exclusion, first.upper()) and _keep(exclusion, "A girl is reading a book.")


def test_documents_are_cut_where_a_sentence_is_taken_out(tmp_path):
    """A piece continues the one before only if the sentences at the cut both stayed."""
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
    counters = DropCounter()
    pieces_left = [
        (piece.id, piece.continues, sentences)
        for batch in batches
        for piece, sentences in cut(batch, counters)
    ]
    assert pieces_left == [
        ("a", False, ["One."]),
        ("a#exclude-1", False, ["Two.", "Three."]),
        ("b", True, ["Four."]),
        ("c", True, ["Five."]),
        ("d", False, ["Six."]),
        ("e", False, ["Seven."]),
        ("g", False, []),
        ("h", False, ["Eight."]),
    ]
    assert counters == {"exclude/sentence": 4, "exclude/no_sentence_left": 1}


def test_pieces_of_pieces_have_names_of_their_own(tmp_path):
    """Cuts by removed paragraphs and by excluded sentences of documents named like each other."""
    (tmp_path / "sts.txt").write_text("Taken out.\n")
    cut = Cutter(Exclusion.of([str(tmp_path / "sts.txt")]))
    names = ["http://a", "http://a/1", "http://a/2"]
    documents = [Document(name, "en", [f"A{name}.", "gone", f"B{name}."]) for name in names]
    losses = {(number, 1): "duplicates/exact_paragraph" for number in range(3)}
    pieces = list(drop(documents, losses, DropCounter()))
    assert len(pieces) == 6
    left = list(cut([(piece, ["One.", "Taken out.", "Two."]) for piece in pieces], DropCounter()))
    pieces_left = [piece.id for piece, _ in left]
    assert len(set(pieces_left)) == len(pieces_left) == 12
    assert pieces_left[:4] == ["http://a", "http://a#exclude-1", "http://a#duplicates-1"] + [
        "http://a#duplicates-1#exclude-1"
    ]
