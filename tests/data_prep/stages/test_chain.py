"""Stages one after the other: order, counts, and pieces of long documents."""

from dataclasses import dataclass, replace

from data_prep.counts import DropCounter
from data_prep.readers import Document
from data_prep.stages import keep_paragraphs, run_stages


@dataclass(frozen=True)
class DropIf:
    """Drops documents and paragraphs that hold a word."""

    word: str

    def __call__(self, document, counters):
        if any(f"DOCUMENT {self.word}" in text for text in document.paragraphs):
            counters.drop(f"drop/{self.word}", document.language)
            return None
        kept = []
        for text in document.paragraphs:
            if self.word in text:
                counters.drop(f"drop/paragraph_{self.word}", document.language)
            else:
                kept.append(text)
        return keep_paragraphs(document, kept)


@dataclass(frozen=True)
class Append:
    """Adds a paragraph, and counts a change."""

    text: str

    def __call__(self, document, counters):
        counters["append/done"] += 1
        return replace(document, paragraphs=[*document.paragraphs, self.text])


def document(name, *paragraphs, continues=False):
    return Document(name, "en", list(paragraphs), continues)


def run(stages, documents, counters):
    """Returns the documents that stay."""
    return list(run_stages(stages, documents, counters))


def test_stages_run_in_order_until_one_drops():
    stages = [Append("one"), DropIf("bad"), Append("two")]
    counters = DropCounter()
    (left,) = run(stages, [document("a", "bad", "good"), document("b", "DOCUMENT bad")], counters)
    assert left.paragraphs == ["good", "one", "two"]
    assert counters == {"append/done": 3, "drop/bad": 1, "drop/paragraph_bad": 1}


def test_languages_of_dropped_texts_depend_neither_on_order_nor_on_workers():
    """Languages are counted by their codes, whatever script, region or nonsense is declared."""
    languages = ["en", "en-US", "deu", "zh_Hant", "english", ""]
    documents = [
        replace(
            document(f"d{n}", f"DOCUMENT bad {n}" if n % 2 else f"bad {n}"),
            language=languages[n % 6],
        )
        for n in range(50)
    ]
    whole, merged = DropCounter(), DropCounter()
    run([DropIf("bad")], documents, whole)
    for part in (documents[::-2], documents[::2]):
        counters = DropCounter()
        run([DropIf("bad")], part, counters)
        merged.merge(counters, counters.languages)
    assert whole.languages["drop/bad"] == {"en": 9, "zh": 8, "und": 8}
    assert whole.languages["drop/paragraph_bad"] == {"en": 9, "de": 8, "und": 8}
    assert merged == whole and merged.languages == whole.languages


def test_a_piece_after_a_dropped_one_continues_nothing():
    pieces = [
        document("a#0", "x"),
        document("a#1", "DOCUMENT bad", continues=True),
        document("a#2", "y", continues=True),
        document("a#3", "z", continues=True),
        document("b#0", "DOCUMENT bad"),
        document("c#0", "w"),
    ]
    left = run([DropIf("bad")], pieces, DropCounter())
    assert [(piece.id, piece.continues) for piece in left] == [
        ("a#0", False),
        ("a#2", False),
        ("a#3", True),
        ("c#0", False),
    ]
