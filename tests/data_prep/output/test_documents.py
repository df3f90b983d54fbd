"""Documents to records: no pair is lost or doubled over cuts, and everything is counted once."""

from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.counts import Counts, DropCounter
from data_prep.output.documents import RecordOptions, document_records
from data_prep.readers import Document
from data_prep.sentences import split_paragraphs
from official_cmlm.tokenization import build_tokenizer, load_vocabulary
from tests.conftest import WORDS, make_documents

ROBERTA = Path(__file__).parents[2] / "checkpoints" / "references" / "roberta"
# Tokenizing in TensorFlow is slow to start.
SLOW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
LINES = {"one_sentence_a_line": True, "keep_text": True}

_LINE = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
_PIECE = st.lists(_LINE, min_size=1, max_size=9)
# Documents in one or more pieces.
_DOCUMENTS = st.lists(st.lists(_PIECE, min_size=1, max_size=3), min_size=1, max_size=4)


def _run(documents, vocabulary, **options):
    """Returns the records as (sentences of ids, repeats_last, texts), and the counts."""
    statistics = Counts()
    result = []
    for _, data in document_records(documents, vocabulary, RecordOptions(**options), statistics):
        feature = tf.train.Example.FromString(data).features.feature
        ids, sentences = list(feature["token_ids"].int64_list.value), []
        for length in feature["sentence_lengths"].int64_list.value:
            sentences.append(tuple(ids[:length]))
            del ids[:length]
        assert not ids and all(sentences)
        texts = [text.decode() for text in feature["text"].bytes_list.value]
        result.append((sentences, bool(feature["repeats_last"].int64_list.value[0]), texts))
    return result, statistics


def _documents(pieces):
    """Returns each document's pieces, all but its first as continuing; sentences are numbered."""
    result = []
    for number, document in enumerate(pieces):
        for index, lines in enumerate(document):
            texts = [f"{line} {number * 7 + index} {i}" for i, line in enumerate(lines)]
            result.append(Document(f"d{number}.{index}", "en", texts, index > 0))
    return result


def _pairs(sentences):
    return [(sentences[i], sentences[i + 1]) for i in range(len(sentences) - 1)]


@SLOW
@given(pieces=_DOCUMENTS, max_sentences=st.integers(2, 9))
def test_pairs_over_cuts(vocabulary, pieces, max_sentences):
    """The records' adjacent pairs are those of the whole documents, each as often as there."""
    documents = _documents(pieces)
    result, statistics = _run(documents, vocabulary, max_sentences=max_sentences, **LINES)
    whole = []
    for document in documents:
        if document.continues:
            whole[-1] += document.paragraphs
        else:
            whole.append(list(document.paragraphs))
    expected = Counter(pair for sentences in whole for pair in _pairs(sentences))
    assert Counter(pair for *_, texts in result for pair in _pairs(texts)) == expected
    # Once without what is repeated: the text, in order.
    once = [text for _, repeats, texts in result for text in texts[1 if repeats else 0 :]]
    assert once == [text for sentences in whole for text in sentences]
    assert [not repeats for _, repeats, _ in result].count(True) == len(whole)
    for (*_, before), (_, repeats, texts) in zip(result, result[1:]):
        assert not repeats or (texts[0] == before[-1] and len(texts) > 1)
    assert all(len(texts) <= max_sentences for *_, texts in result)
    # The ids are those of the text beside them.
    ids = build_tokenizer(vocabulary).tokenize([t for *_, texts in result for t in texts])
    assert [list(s) for sentences, *_ in result for s in sentences] == ids.to_list()
    kept = [s for sentences, repeats, _ in result for s in sentences[1 if repeats else 0 :]]
    assert statistics.documents == len(whole)
    assert statistics.sentences == len(kept) == statistics.languages["en"]
    assert statistics.tokens == sum(map(len, kept))
    assert statistics.lengths == Counter(map(len, kept))
    assert sum(statistics.histogram().values()) == len(kept)


def test_batches_of_the_tokenizer_do_not_show(vocabulary, monkeypatch):
    """However many sentences are tokenised together, the records are the same."""
    documents = _documents([[["a", "b"], ["c"]], [["d"] * 9], [["e"]]]) + make_documents(20)
    expected = list(document_records(documents, vocabulary, RecordOptions(), Counts()))
    monkeypatch.setattr("data_prep.output.documents._BATCH_SENTENCES", 3)
    assert list(document_records(documents, vocabulary, RecordOptions(), Counts())) == expected


def test_min_tokens(vocabulary):
    """The whole document decides, in any number of pieces; too few sentences are named first."""
    pieces = [[["a b", "c"]], [["a", "b", "c d"]], [["a", "b"], ["c d"]], [["a b c d e"]], [["a"]]]
    options = {"min_sentences": 2, "min_tokens": 4}
    result, statistics = _run(_documents(pieces), vocabulary, **options, **LINES)
    # Each line ends with two numbers, one unknown word each.
    counts = [
        sum(2 + len(line.split()) for lines in document for line in lines) for document in pieces
    ]
    assert counts == [7, 10, 10, 7, 3]
    for least, documents in ((7, 3), (8, 2), (10, 2), (11, 0)):
        options["min_tokens"] = least
        result, statistics = _run(_documents(pieces), vocabulary, **options, **LINES)
        assert statistics.documents == documents
        assert statistics.counters["records/too_few_tokens"] == 3 - documents
        assert statistics.counters["records/too_few_sentences"] == 2
        kept = sum(len(s) for rows, repeats, _ in result for s in rows[1 if repeats else 0 :])
        assert kept == statistics.tokens == sum(n for n in counts[:3] if n >= least)


@pytest.mark.parametrize("cut", [False, True])
def test_min_tokens_of_byte_pairs(cut):
    """Counts the ids of the running text, also where a document comes in pieces."""
    vocabulary = load_vocabulary(ROBERTA)
    lines = ["tree walk", "'s slow", "!"]
    text = build_tokenizer(vocabulary).tokenize([" ".join(lines)])
    alone = build_tokenizer(vocabulary).tokenize(lines)
    assert len(text.values) != len(alone.values)
    documents = [Document("d", "en", lines)]
    if cut:
        documents = [Document("d", "en", lines[:1]), Document("d", "en", lines[1:], True)]
    for least, kept in ((len(text.values), 1), (len(text.values) + 1, 0)):
        _, statistics = _run(documents, vocabulary, min_tokens=least, one_sentence_a_line=True)
        assert statistics.documents == kept


def test_sentences_and_documents_without_tokens(vocabulary):
    """Sentences without tokens are left out and counted."""
    documents = [
        Document("0", "en", ["a", "\u200b", "b"]),
        Document("1", "en", ["\u200b", "\x07"]),
        Document("2", "en", ["c"]),
    ]
    result, statistics = _run(documents, vocabulary, **LINES)
    assert [texts for *_, texts in result] == [["a", "b"], ["c"]]
    assert statistics.counters["records/sentence_without_tokens"] == 3
    assert statistics.counters["records/no_sentence"] == 1
    assert (statistics.documents, statistics.sentences) == (2, 3)


@pytest.mark.parametrize("nothing", ["", "\u200b"])
def test_documents_do_not_join_over_an_empty_piece(vocabulary, nothing):
    """A piece goes on after its own document's text only, even where that held no sentence."""
    documents = [
        Document("0", "en", ["a", "b"]),
        Document("1", "en", [nothing]),
        Document("1", "en", ["c", "d"], continues=True),
    ]
    result, statistics = _run(documents, vocabulary, **LINES)
    assert [texts for *_, texts in result] == [["a", "b"], ["c", "d"]]
    assert statistics.documents == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Il a vu M. Dupont hier. Il part.", ["Il a vu M. Dupont hier.", "Il part."]),
        ("Voici (M. Dupont) et MM. Roux. Fin.", ["Voici (M. Dupont) et MM. Roux.", "Fin."]),
        ("Mme. Durand dort. Mlle. Anne lit.", ["Mme. Durand dort.", "Mlle. Anne lit."]),
        ("Lisez V. Hugo. Bien.", ["Lisez V. Hugo.", "Bien."]),
        ("Il part avec M.", ["Il part avec M."]),
        ("Elle aime la fin. Il dort.", ["Elle aime la fin.", "Il dort."]),
        ("C'est un film. Non.", ["C'est un film.", "Non."]),
    ],
)
def test_french_titles_end_no_sentence(text, expected):
    """Initials do not either; words that only end like them do."""
    assert split_paragraphs([text], "fr", DropCounter()) == expected
    english = split_paragraphs([text], "en", DropCounter())
    assert " ".join(english) == " ".join(expected)


def test_split_sentences():
    """Sentences in order, without white space around them, cut where they are too long."""
    text = "The first one.  The second one! Is this the third?"
    counters = DropCounter()
    sentences = list(split_paragraphs([text], "en", counters))
    assert sentences == ["The first one.", "The second one!", "Is this the third?"]
    assert not counters
    assert list(split_paragraphs([text], "en", counters, 9))[:2] == ["The first", "one."]
    german = ["Ein Satz.", "Noch einer."]
    assert list(split_paragraphs([" ".join(german)], "no-such", counters)) == german
