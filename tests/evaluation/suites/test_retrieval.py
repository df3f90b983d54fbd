"""Retrieval: the numbers of trec_eval, BEIR's conventions, splits, means and prompts."""

import numpy as np
import pytest

from official_cmlm.evaluation.data import beir
from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.encoder import Role, add_prompt
from official_cmlm.evaluation.suites import retrieval
from official_cmlm.evaluation.suites.retrieval import NANO_BEIR, Options
from tests.evaluation import toy

# Similarity of each query (row) with the documents d1 to d6: ties, also at the first rank.
SIMILARITY = np.array(
    [
        [0.5, 0.5, 0.5, 0.9, 0.1, 0.0],
        [0.3, 0.2, 0.2, 0.3, 0.3, 0.1],
        [0.9, 0.1, 0.0, 0.8, 0.8, 0.8],
        [0.2, 0.4, 0.6, 0.8, 1.0, 1.0],
    ],
    np.float32,
)
# Graded, negative, of a document that is not there, and one query without a relevant document.
JUDGED = {
    "q1": {"d1": 1, "d2": 0, "d3": 2, "lost": 3},
    "q2": {"d2": 0, "d3": 0},
    "q3": {"d1": -1, "d4": 1, "d6": 2},
    "q4": {"d1": 1, "d2": 1, "d6": 3},
}
# Means over the four queries of pytrec_eval-terrier 0.5.11 (trec_eval) for this run.
TREC_EVAL = {
    "ndcg_at_10": 47.62160753960146,
    "mrr_at_10": 50.0,
    "mrr": 50.0,
    "map_at_100": 36.666666666666664,
    "recall_at_1": 8.333333333333332,
    "recall_at_5": 58.33333333333333,
    "recall_at_10": 66.66666666666666,
    "recall_at_100": 66.66666666666666,
}


def _collection(judged=JUDGED):
    documents = {f"d{i + 1}": f"document {i}" for i in range(6)}
    return beir.Collection(documents, {q: f"query {q[1:]}" for q in judged}, judged, [])


def score(encode, collection, options):
    """Returns the means over the queries."""
    places = retrieval.rank(encode, collection, options)
    by_query = retrieval.measure(places, collection, options)
    return {name: values.mean() for name, values in by_query.items()}


def _by_table(texts):
    """Makes queries of the table's rows and documents of unit vectors; products are its cells."""
    rows = []
    for text in texts:
        kind, number = text.split()
        rows.append(SIMILARITY[int(number) - 1] if kind == "query" else np.eye(6)[int(number)])
    return np.array(rows, np.float32)


def _write(folder, splits=("test",)):
    """Writes a data set whose query i has document i as its only relevant one."""
    documents = {"d0": "cats sleep by day", "d1": "dogs bark at night", "d2": "fish swim"}
    queries = {"q1": "cats sleep", "q2": "dogs bark"}
    toy.write_beir(folder, documents, queries, ["q1\td0\t1", "q2\td1\t1"], splits)


def _run(root, encode=toy.encode, **options):
    return toy.run(retrieval, encode, root, **options)


@pytest.mark.parametrize("part", [1, 2, 4, 50_000])
def test_numbers_are_those_of_trec_eval(monkeypatch, part):
    """Graded gains, ties by falling id, documents without judgement, however the corpus is cut."""
    monkeypatch.setattr(retrieval, "_PART", part)
    scores = score(_by_table, _collection(), Options(score="dot"))
    assert scores == pytest.approx(TREC_EVAL, abs=1e-9)


def test_own_document_is_left_out():
    """As in BEIR: a query that is a document does not find itself, unless that is wanted.

    It takes no rank: the hundredth of the others is still found among a hundred.
    """
    documents = {f"{i:03}": f"document {i}" for i in range(101)}
    collection = beir.Collection(documents, {"000": "query"}, {"000": {"100": 1}}, [])

    def encode(texts):
        return np.array([[-float(text.partition(" ")[2] or -1)] for text in texts], np.float32)

    scores = score(encode, collection, Options(score="dot", k=100))
    assert (scores["recall_at_100"], scores["mrr"]) == (100, pytest.approx(1))
    scores = score(encode, collection, Options(score="dot", k=100, ignore_identical_ids=False))
    assert (scores["recall_at_100"], scores["mrr"]) == (0, 0)


def test_long_vector_wins_by_its_inner_product_only():
    """A long vector wins by its inner product only."""
    encode = toy.lookup({"q": [1, 0], "near": [1, 0.1], "long": [5, 5]})
    collection = beir.Collection({"n": "near", "l": "long"}, {"q": "q"}, {"q": {"n": 1}}, [])
    assert score(encode, collection, Options())["mrr"] == 100
    assert score(encode, collection, Options(score="dot"))["mrr"] == 50


def test_every_data_set_of_a_folder_is_scored(tmp_path):
    """Every data set below `beir`, all metrics, queries as count, and the mean over data sets."""
    for name in ("scifact", "nfcorpus"):
        _write(tmp_path / "beir" / name)
    report = _run(tmp_path)
    assert not report.failures and not report.missing
    assert [s.task for s in report.scores if s.metric == "ndcg_at_10"] == [
        *("nfcorpus", "scifact", "macro"),
    ]
    assert {s.metric for s in report.scores} == set(TREC_EVAL)
    assert {s.task: s.count for s in report.scores} == {"nfcorpus": 2, "scifact": 2, "macro": 2}
    assert report.get("macro", "recall_at_1") == report.get("scifact", "recall_at_1") == 100
    assert "macro: mean over nfcorpus, scifact" in report.notes
    # Both queries find their document, so that no sample has another mean.
    intervals = {s.task: s.interval for s in report.scores if s.metric == "recall_at_1"}
    assert intervals == {"nfcorpus": (100, 100), "scifact": (100, 100), "macro": None}
    assert any("10,000 bootstrap samples of the queries" in note for note in report.notes)
    # The data folder may be one data set; there is nothing to average then.
    assert {s.task for s in _run(tmp_path / "beir/scifact").scores} == {"scifact"}


def test_development_scores_have_names_of_their_own(tmp_path):
    """`dev` is never shown under the name of `test`."""
    for name in ("a", "b"):
        _write(tmp_path / "beir" / name, splits=("dev", "test"))
    assert {s.task for s in _run(tmp_path, split="dev").scores} == {"a-dev", "b-dev", "macro-dev"}
    report = _run(tmp_path, split="train")
    assert not report.scores
    assert [one.task for one in report.missing] == ["a-train", "b-train"]
    assert "there are judgements of dev, test" in report.missing[0].hint


def test_parts_count_as_one_data_set(tmp_path):
    """CQADupStack's score is the mean of its parts, and counts once in the mean."""
    for name in ("cqadupstack/android", "cqadupstack/english", "scifact"):
        _write(tmp_path / "beir" / name)
    toy.write(
        tmp_path / "beir/cqadupstack/english/qrels/test.tsv",
        ["query-id\tcorpus-id\tscore", "q1\td1\t1", "q2\td0\t1"],
    )
    report = _run(tmp_path)
    counts = {s.task: s.count for s in report.scores}
    assert counts == {
        "cqadupstack/android": 2,
        "cqadupstack/english": 2,
        "scifact": 2,
        "cqadupstack": 2,
        "macro": 2,
    }
    assert report.get("cqadupstack/english", "recall_at_1") == 0
    assert report.get("cqadupstack", "recall_at_1") == 50
    assert report.get("macro", "recall_at_1") == 75
    chosen = _run(tmp_path, tasks=["cqadupstack", "cqadupstack/android"])
    assert {s.task for s in chosen.scores} == counts.keys() - {"scifact", "macro"}


def test_a_mean_over_some_parts_is_named_as_one(tmp_path):
    """Parts that were not chosen, or failed, are not in it; it never has the whole's name."""
    for name in ("cqadupstack/android", "cqadupstack/english", "cqadupstack/gis", "scifact"):
        _write(tmp_path / "beir" / name, splits=("test", "dev"))
    report = _run(tmp_path, tasks=["cqadupstack/android"], split="dev")
    assert {s.task: s.count for s in report.scores} == {
        "cqadupstack/android-dev": 2,
        "cqadupstack-dev (1 of 3 parts)": 1,
    }
    assert report.notes[:-1] == ["cqadupstack-dev (1 of 3 parts): mean over cqadupstack/android"]
    (tmp_path / "beir/cqadupstack/gis/queries.jsonl").write_text("{")
    report = _run(tmp_path)
    assert len(report.failures) == 1
    assert {s.task for s in report.scores if "/" not in s.task} == {
        *("cqadupstack (2 of 3 parts)", "scifact", "macro"),
    }
    assert "macro: mean over scifact, cqadupstack (2 of 3 parts)" in report.notes


def test_nano_beir_has_a_mean_when_all_are_there(tmp_path):
    """Over its 13 data sets, apart from what else is there."""
    for name in (*NANO_BEIR, "mine"):
        _write(tmp_path / "beir" / name)
    counts = {s.task: s.count for s in _run(tmp_path).scores}
    assert (counts["NanoBEIR"], counts["macro"]) == (13, 14)
    assert "NanoBEIR" not in {s.task for s in _run(tmp_path, tasks=list(NANO_BEIR[:12])).scores}


def test_data_sets_that_are_not_chosen_do_not_fail(tmp_path):
    """Only named data sets are read; one that is not there is missing, with those that are."""
    for name in ("scifact", "broken"):
        _write(tmp_path / "beir" / name)
    (tmp_path / "beir/broken/corpus.jsonl").write_text("{")
    report = _run(tmp_path, tasks=["scifact"])
    assert not report.failures and not report.missing
    report = _run(tmp_path, tasks=["scifact", "nq"])
    assert [one.task for one in report.missing] == ["nq"]
    assert "there are broken, scifact" in report.missing[0].hint
    report = _run(tmp_path)
    assert len(report.failures) == 1 and report.failures[0].startswith("broken: ")


def test_prompts_reach_queries_and_documents(tmp_path):
    """Prefixes go through the same cache; the suite says which were used."""
    _write(tmp_path / "beir/mine")
    encode = toy.Recording()
    roles = {"query": add_prompt(encode, "query: "), "document": add_prompt(encode, "passage: ")}
    cached = CachedEncoder(encode, roles=roles)
    for _ in range(2):
        report = _run(tmp_path, cached)
        assert sorted(encode.texts) == [
            *("passage: cats sleep by day", "passage: dogs bark at night", "passage: fish swim"),
            *("query: cats sleep", "query: dogs bark"),
        ]
    for prompt in ("query: ", "passage: "):
        assert any(prompt in note for note in report.notes)


def test_functions_of_their_own_are_called_apart(tmp_path):
    """`encode_query` without a prefix: equal texts of two roles have two vectors."""
    cached = CachedEncoder(toy.encode, roles={"query": Role(lambda texts: -toy.encode(texts))})
    _write(tmp_path / "beir/mine")
    # Turned round, a query finds its own document last.
    assert _run(tmp_path, cached).get("mine", "mrr") == pytest.approx(100 / 3)
    assert _run(tmp_path, CachedEncoder(toy.encode)).get("mine", "mrr") == 100
