"""Removal of duplicates: the earliest stays, whatever the order and the split of the work."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.counts import Counts, DropCounter
from data_prep.pipeline.key_files import KeyFiles
from data_prep.readers import Document, plain_text
from data_prep.readers.document import ReadOptions
from data_prep.stages import duplicates
from data_prep.stages.duplicates import DuplicateOptions, drop, file_keys
from data_prep.stages.normalise import normalise_document
from tests.data_prep import plain_duplicates

WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("anu", "ero", "ilo", "ose", "uti")]
OPTIONS = DuplicateOptions("near", "near", min_paragraph_letters=60)


def _text(seed, words: int = 40) -> str:
    return " ".join(random.Random(f"text {seed}").choices(WORDS, k=words)) + "."


def _change(text: str, seed: int = 0) -> str:
    """Replaces one word of the text."""
    words = text.split()
    words[random.Random(seed).randrange(1, len(words))] = "changed"
    return " ".join(words)


def _document(name: str, *paragraphs: str, continues: bool = False) -> Document:
    return Document(name, "en", list(paragraphs), continues)


def _find_duplicates(files, options=OPTIONS, partitions=1):
    """Returns what the pipeline's files of keys remove, with two elements a group."""
    with tempfile.TemporaryDirectory() as folder:
        keys = KeyFiles(Path(folder), options, len(files), partitions)
        for element, file in enumerate(files):
            keys.save_keys(element, file_keys(iter(file), options))
        for kind in options.ways:
            for partition in range(partitions):
                keys.find_duplicates(kind, partition)
            for first in range(0, len(files), 2):
                keys.collect_duplicates(kind, range(first, min(first + 2, len(files))))
        return [keys.read_duplicates(element) for element in range(len(files))]


def _run(files: list[list[Document]], options: DuplicateOptions = OPTIONS):
    counters = DropCounter()
    removed = zip(files, _find_duplicates(files, options))
    return [left for file, places in removed for left in drop(file, places, counters)], counters


@st.composite
def _corpora(draw):
    """Draws files of documents, of few texts and their variants, so with many duplicates."""
    texts = [_text(i) for i in range(3)]
    variants = [v for t in texts for v in (t, t.upper(), _change(t), _change(t, 1), t[:50])]
    paragraph = st.sampled_from([*variants, "Chapter 1"])
    document = st.lists(paragraph, min_size=1, max_size=4)
    corpus = draw(st.lists(st.lists(document, max_size=4), min_size=1, max_size=4))
    continues = draw(st.booleans())
    return [
        [
            _document(f"{f}#{d}", *paragraphs, continues=continues and d % 2 == 1)
            for d, paragraphs in enumerate(file)
        ]
        for f, file in enumerate(corpus)
    ]


@settings(max_examples=8, deadline=None)
@given(_corpora())
def test_any_split_gives_the_same(files):
    """Partitions, batches and files do not show in the losses, which plain loops find too."""
    expected = plain_duplicates.find_losses(files, OPTIONS)
    assert _find_duplicates(files) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_BATCH_CHARACTERS", 100)
        assert _find_duplicates(files, partitions=7) == expected
    # Each document in a file of its own: the same documents are lost.
    apart = [[document] for file in files for document in file]
    places = [(f, d) for f, file in enumerate(files) for d in range(len(file))]
    removals = {
        (*places[i], p): why
        for i, lost in enumerate(_find_duplicates(apart, partitions=2))
        for (_, p), why in lost.items()
    }
    assert removals == {(f, *p): why for f, lost in enumerate(expected) for p, why in lost.items()}


def test_near_duplicates_of_documents():
    """A changed copy goes, another text and a text too short to tell stay."""
    first, short = _text(0, 120), "A short one."
    documents = [_document("a", first), _document("b", _text(1, 120)), _document("c", short)]
    copies = [_document("d", _change(first)), _document("e", short[:-1] + " too.")]
    left, counters = _run([documents, copies])
    assert [document.id for document in left] == ["a", "b", "c", "e"]
    assert counters == {"duplicates/near_document": 1}


def test_characters_instead_of_words():
    """Chinese has no spaces; a change of one character is found."""
    characters = [chr(code) for code in range(0x4E00, 0x4E60)]
    text = "".join(random.Random(0).choices(characters, k=150))
    other = "".join(random.Random(1).choices(characters, k=150))
    files = [[_document("a", text), _document("b", text[:70] + "龍" + text[71:])]]
    left, counters = _run([*files, [_document("c", other)]])
    assert [document.id for document in left] == ["a", "c"]
    assert counters == {"duplicates/near_document": 1}


def test_a_paragraph_is_not_removed_for_one_that_goes_itself():
    """The only other copy is in a document that is a near duplicate of another."""
    shared = _text("shared", 20)
    body = [_text(i, 60) for i in range(5)]
    first = _document("a", *body)
    copy = _document("b", *body, shared)
    later = _document("c", _text("own"), shared)
    left, counters = _run([[first, copy], [later]])
    assert [(document.id, document.paragraphs) for document in left] == [
        ("a", body),
        ("c", later.paragraphs),
    ]
    assert counters == {"duplicates/near_document": 1}


def test_documents_are_cut_where_paragraphs_go():
    """No new neighbours; short paragraphs may repeat; ids stay unique."""
    again = _text("again")
    file = [
        _document("a", "Chapter 1", again, _text(1)),
        _document("b", "Chapter 1", _text(2), again.upper(), _text(3), "Chapter 1", again),
        _document("c", _text(4), continues=True),
        _document("d", again, continues=True),
        _document("e", _text(5), continues=True),
        _document("f", _text(6), continues=True),
    ]
    left, counters = _run([file])
    assert [(d.id, d.paragraphs, d.continues) for d in left] == [
        ("a", ["Chapter 1", again, _text(1)], False),
        ("b", ["Chapter 1", _text(2)], False),
        ("b#duplicates-1", [_text(3), "Chapter 1"], False),
        ("c", [_text(4)], False),
        ("e", [_text(5)], False),
        ("f", [_text(6)], True),
    ]
    assert counters == {"duplicates/exact_paragraph": 3, "duplicates/no_paragraph_left": 1}


def test_a_removed_document_is_not_a_neighbour():
    """A document that continued it stays alone; documents without losses are passed as they are."""
    file = [_document("a", "x y"), _document("b", "X, y."), _document("c", "z", continues=True)]
    counters = DropCounter()
    left = list(drop(file, {(1, -1): "duplicates/exact_document"}, counters))
    assert left[0] is file[0] and left[1] == _document("c", "z")
    assert _run([file])[1] == counters == {"duplicates/exact_document": 1}


def test_nothing_to_do():
    """No documents, no letters."""
    assert _run([[]])[0] == []
    file = [_document("a", "* * *"), _document("b", "* * *")]
    assert _run([file]) == (file, DropCounter())


@pytest.mark.parametrize("way", ["exact", "normalised"])
def test_lines_are_compared_as_they_are_written(tmp_path, way):
    """White space counts for exact duplicates, unless a stage has made it one space."""
    lines = ["A  cat sat.", "A cat sat.", "A cat sat. ", "A cat sat.", "A cat sat!"]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    reading = ReadOptions(documents_by="line", lines="sentences")
    file = list(plain_text.read(str(tmp_path / "lines.txt"), reading, Counts()))
    options = DuplicateOptions(way, min_paragraph_letters=4)
    number = 4 if way == "exact" else 1
    assert _run([file], options)[0] == [*file[:3], *file[4:]][:number]
    normal = [normalise_document(document, DropCounter()) for document in file]
    assert len(_run([normal], options)[0]) == (2 if way == "exact" else 1)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["co-op", "coop", "Coop", "ﬁ", "fi"]), min_size=1, max_size=2)
    )
)
def test_exact_duplicates_have_the_same_bytes(corpus):
    """A set of the texts as they are written finds the same; case and punctuation count."""
    file = [_document(str(i), *paragraphs) for i, paragraphs in enumerate(corpus)]
    left, counters = _run([file], DuplicateOptions("exact", "off"))
    assert [d.paragraphs for d in left] == [list(p) for p in dict.fromkeys(map(tuple, corpus))]
    assert counters.total() == len(corpus) - len(left)
    # As paragraphs of at least five letters.
    left, _ = _run([file], DuplicateOptions("off", "exact", min_paragraph_letters=4))
    texts = [p for paragraphs in corpus for p in paragraphs]
    seen = {text for text in texts if sum(map(str.isalpha, text)) >= 4}
    short = [text for text in texts if text not in seen]
    assert sorted(p for d in left for p in d.paragraphs) == sorted([*short, *seen])
