"""Ids after a space: sentences joined by their ids are the ids of the joined sentences."""

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.counts import DropCounter
from data_prep.readers import Counts, ReadOptions, read_documents
from data_prep.sentences import split_paragraphs
from official_cmlm.tokenization import build_tokenizer, load_vocabulary

# Contractions, digits, marks, several spaces, rare white space, and a lone surrogate.
_PARTS = ("'s", "'", "'ve", "the", "The", "é", "語", "7", "!", "…", '"', " ", "  ", "\t", "\x1c")
_PARTS += ("\u00a0", "\u3000", "\u0301", "\ud800", "\n")
_TEXT = st.lists(st.sampled_from(_PARTS), min_size=1, max_size=6).map("".join).map(str.strip)
_RUNS = st.lists(_TEXT.filter(bool), min_size=1, max_size=5)


def _join(tokenizer, sentences):
    """Joins the ids of a run as the interface says."""
    rows = tokenizer.tokenize(sentences).to_list()
    after = tokenizer.after_space(sentences)
    if after is None:
        return sum(rows, [])
    result = list(rows[0])
    for row, replaced, ids in list(zip(rows, after.replaced, after.ids.to_list()))[1:]:
        result += ids + row[replaced:]
    return result


@pytest.fixture(scope="module")
def tokenizers(small, vocabulary):
    """Builds one tokenizer of each kind; they remember earlier texts."""
    spaced = dataclasses.replace(small, add_prefix_space=True)
    return [build_tokenizer(entries) for entries in (small, spaced, vocabulary)]


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(sentences=_RUNS)
def test_any_run(tokenizers, sentences):
    """The joined ids are right for all texts without white space at their ends."""
    for tokenizer in tokenizers:
        expected = tokenizer.tokenize([" ".join(sentences)]).to_list()[0]
        assert _join(tokenizer, sentences) == expected


def test_by_hand(small):
    """A word after a space is another entry; a mark gets a space in front; equal ends stay."""
    tokenizer = build_tokenizer(small)
    texts = ["tree", "!", "'s a", "tree x"]
    rows, after = tokenizer.tokenize(texts).to_list(), tokenizer.after_space(texts)
    space, tree = small.tokens.index("Ġ"), small.tokens.index("Ġtree")
    assert after.ids.to_list() == [[tree], [space], [space], [tree]]
    whole = len(rows[0])
    assert whole > 1 and after.replaced.tolist() == [whole, 0, 0, whole]
    assert small.space_changes_ids


def test_where_nothing_changes(tokenizers, small, vocabulary):
    """WordPiece, and a vocabulary that puts a space before every text, have nothing to store."""
    assert [tokenizer.after_space(["a"]) is None for tokenizer in tokenizers] == [False, True, True]
    spaced = dataclasses.replace(small, add_prefix_space=True)
    assert not spaced.space_changes_ids and not vocabulary.space_changes_ids


def test_remembered_words_are_bounded(small, monkeypatch):
    """Beginnings that were seen before give the same ids, also after they were forgotten."""
    monkeypatch.setattr("official_cmlm.tokenization.byte_pair._REMEMBERED_HEADS", 3)
    tokenizer = build_tokenizer(small)
    for texts in (
        ["a", "the"],
        ["b", "'s", "the"],
        ["c", "a", "d", "x" * 99],
        ["a", "e"],
        ["x" * 99],
    ):
        seen = tokenizer.after_space(texts)
        fresh = build_tokenizer(small).after_space(texts)
        assert seen.ids.to_list() == fresh.ids.to_list()
        assert seen.replaced.tolist() == fresh.replaced.tolist()
        assert len(tokenizer._heads) <= 3 + len(texts)
        assert all(len(head) <= 32 for head in tokenizer._heads)


@pytest.mark.parametrize(
    ("name", "language", "settings"),
    [
        ("roberta", "en", {}),
        ("bert_uncased.txt", "en", {"lower_case": True}),
        pytest.param("roberta", "de", {}, marks=pytest.mark.long),
        pytest.param(
            "bert_multilingual_cased.txt", "de", {"lower_case": False}, marks=pytest.mark.long
        ),
    ],
)
def test_real_text(data_dir, name, language, settings):
    """Sentences of books: pairs, longer runs, and everything from some sentence on."""
    vocabulary = load_vocabulary(data_dir / "vocab" / name, **settings)
    tokenizer = build_tokenizer(vocabulary)
    files = sorted((data_dir / "text" / language).glob("*.txt"))[:3]
    options = ReadOptions(documents_by="file")
    checked = 0
    for document in read_documents(list(map(str, files)), options, Counts()):
        sentences = split_paragraphs(document.paragraphs, language, DropCounter())[:800]
        for start, stop in [(0, len(sentences)), (7, len(sentences))]:
            run = sentences[start:stop]
            assert _join(tokenizer, run) == tokenizer.tokenize([" ".join(run)]).to_list()[0]
        for start in range(0, len(sentences) - 20, 17):
            for stop in (start + 1, start + 2, start + 13):
                run = sentences[start:stop]
                assert _join(tokenizer, run) == tokenizer.tokenize([" ".join(run)]).to_list()[0]
                checked += 1
    assert checked > 200
