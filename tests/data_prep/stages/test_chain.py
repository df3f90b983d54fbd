"""A chain of stages: order, counts, samples, and pieces of long documents."""

import json
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from data_prep.readers import Document
from data_prep.stages import SAMPLE_CHARACTERS, Chain, Samples, count_dropped, keep_paragraphs


@dataclass(frozen=True)
class DropIf:
    """Drops documents and paragraphs that hold a word."""

    word: str

    def __call__(self, document, counters):
        if any(f"DOCUMENT {self.word}" in text for text in document.paragraphs):
            count_dropped(counters, f"drop/{self.word}", document)
            return None
        kept = []
        for text in document.paragraphs:
            if self.word in text:
                count_dropped(counters, f"drop/paragraph_{self.word}", document, text)
            else:
                kept.append(text)
        return keep_paragraphs(document, kept)


@dataclass(frozen=True)
class Append:
    """Adds a paragraph, and counts what is no loss."""

    text: str

    def __call__(self, document, counters):
        counters["append/done"] += 1
        return replace(document, paragraphs=[*document.paragraphs, self.text])


def document(name, *paragraphs, continues=False):
    return Document(name, "en", list(paragraphs), continues)


def test_stages_run_in_order_until_one_drops():
    chain = Chain([Append("one"), DropIf("bad"), Append("two")])
    counters = Counter()
    assert chain(document("a", "bad", "good"), counters).paragraphs == ["good", "one", "two"]
    assert chain(document("b", "DOCUMENT bad"), counters) is None
    assert counters == {"append/done": 3, "drop/bad": 1, "drop/paragraph_bad": 1}
    assert list(chain.samples.lines()) == []


def test_counts_are_the_same_with_samples():
    documents = [document(f"d{n}", "DOCUMENT bad" if n % 3 else "bad", "x") for n in range(20)]
    counts = []
    for sample in (0, 2):
        counters = Counter({"drop/bad": 5})
        chain = Chain([Append("one"), DropIf("bad")], sample_dropped=sample)
        for one in documents:
            chain(one, counters)
        counts.append(counters)
    assert counts[0] == counts[1]
    assert counts[0]["drop/bad"] == 5 + 13


def test_samples_do_not_depend_on_order_nor_on_workers():
    documents = [document(f"d{n}", f"DOCUMENT bad {n}" if n % 2 else f"bad {n}") for n in range(50)]
    whole = Chain([DropIf("bad")], sample_dropped=3)
    for one in documents:
        whole(one, Counter())
    merged = Samples(3)
    for part in (documents[::-2], documents[::2], documents[1::2][::-1]):
        chain = Chain([DropIf("bad")], sample_dropped=3)
        for one in part:
            chain(one, Counter())
        merged.merge(chain.samples)
    lines = [json.loads(line) for line in whole.samples.lines()]
    assert lines == [json.loads(line) for line in merged.lines()]
    assert Counter(line["reason"] for line in lines) == {"drop/bad": 3, "drop/paragraph_bad": 3}
    # By hash: not just the first ones.
    assert {line["id"] for line in lines} != {f"d{n}" for n in range(6)}


def test_samples_are_cut_and_readable():
    chain = Chain([DropIf("bad")], sample_dropped=1)
    chain(document("é\ud800", "DOCUMENT bad" + "y" * 1000, "z" * 10**6), Counter())
    (line,) = chain.samples.lines()
    sample = json.loads(line)
    assert sample["reason"] == "drop/bad" and sample["id"] == "é\ud800"
    assert sample["text"] == ("DOCUMENT bad" + "y" * 1000)[:SAMPLE_CHARACTERS]


def test_a_piece_behind_a_dropped_one_continues_nothing():
    pieces = [
        document("a#0", "x"),
        document("a#1", "DOCUMENT bad", continues=True),
        document("a#2", "y", continues=True),
        document("a#3", "z", continues=True),
        document("b#0", "DOCUMENT bad"),
        document("c#0", "w"),
    ]
    left = list(Chain([DropIf("bad")]).run(pieces, Counter()))
    assert [(piece.id, piece.continues) for piece in left] == [
        ("a#0", False),
        ("a#2", False),
        ("a#3", True),
        ("c#0", False),
    ]


def test_a_chain_is_a_stage():
    inner = Chain([DropIf("bad")])
    outer = Chain([inner, Append("one")], sample_dropped=1)
    counters = Counter()
    assert outer(document("a", "good"), counters).paragraphs == ["good", "one"]
    assert outer(document("a", "DOCUMENT bad"), counters) is None
    assert len(list(outer.samples.lines())) == 1


@pytest.mark.parametrize("paragraphs", [["a"], ["a", "b"]])
def test_unchanged_documents_are_the_same_object(paragraphs):
    one = document("a", *paragraphs)
    assert Chain([DropIf("bad")])(one, Counter()) is one
