"""Stages one after the other: order, counts, samples, and pieces of long documents."""

import json
from collections import Counter
from dataclasses import dataclass, replace

from data_prep.counts import SAMPLE_CHARACTERS, DropCounter, drop_document
from data_prep.readers import Document
from data_prep.stages import keep_paragraphs, run_stages


@dataclass(frozen=True)
class DropIf:
    """Drops documents and paragraphs that hold a word."""

    word: str

    def __call__(self, document, counters):
        if any(f"DOCUMENT {self.word}" in text for text in document.paragraphs):
            drop_document(counters, f"drop/{self.word}", document)
            return None
        kept = []
        for text in document.paragraphs:
            if self.word in text:
                drop_document(counters, f"drop/paragraph_{self.word}", document, text)
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
    assert list(counters.sample_lines()) == []


def test_samples_and_languages_do_not_depend_on_order_nor_on_workers():
    """Languages are counted by their codes, whatever script, region or nonsense is declared."""
    languages = ["en", "en-US", "deu", "zh_Hant", "english", ""]
    documents = [
        replace(
            document(f"d{n}", f"DOCUMENT bad {n}" if n % 2 else f"bad {n}"),
            language=languages[n % 6],
        )
        for n in range(50)
    ]
    whole, without_samples, merged = DropCounter(limit=3), DropCounter(), DropCounter(limit=3)
    run([DropIf("bad")], documents, whole)
    run([DropIf("bad")], documents, without_samples)
    assert without_samples == whole
    for part in (documents[::-2], documents[::2], documents[1::2][::-1]):
        counters = DropCounter(limit=3)
        run([DropIf("bad")], part, counters)
        merged.merge(counters, counters.languages, counters.examples())
    lines = [json.loads(line) for line in whole.sample_lines()]
    assert lines == [json.loads(line) for line in merged.sample_lines()]
    assert Counter(line["reason"] for line in lines) == {"drop/bad": 3, "drop/paragraph_bad": 3}
    # The hash decides: examples are not just the first ones.
    assert {line["id"] for line in lines} != {f"d{n}" for n in range(6)}
    # The odd ones, in en-US, zh_Hant and nothing known, come twice.
    assert whole.languages["drop/bad"] == {"en": 9, "zh": 8, "und": 8}
    assert whole.languages["drop/paragraph_bad"] == {"en": 9, "de": 8, "und": 8}
    assert merged.languages["drop/bad"] == {"en": 18, "zh": 16, "und": 16}


def test_samples_are_cut_and_readable():
    counters = DropCounter(limit=1)
    long = document("é\ud800", "DOCUMENT bad" + "y" * 1000, "z" * 10**6)
    run([DropIf("bad")], [long], counters)
    (line,) = counters.sample_lines()
    sample = json.loads(line)
    assert sample["reason"] == "drop/bad" and sample["id"] == "é\ud800"
    assert sample["text"] == ("DOCUMENT bad" + "y" * 1000)[:SAMPLE_CHARACTERS]


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
