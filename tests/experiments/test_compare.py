"""`cmlm compare`: encoders and BM25 on a table or a folder, with intervals."""

import itertools
import re
import shutil

import numpy as np
import pytest

from experiments.compare import compare
from official_cmlm.checkpoints.encoder_directory import NO_SETTINGS, write_settings
from official_cmlm.evaluation.data import beir
from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.encoder import add_prompt
from tests.binaries import call
from tests.evaluation import toy
from tests.pairs_helpers import write_prompted_encoder

ROWS = ("red apple,an apple is red", "red apple,apples are sweet", "blue sea,the sea is blue")
TABLE = [
    "question,answer,n",
    *(f"{row},1" for row in ROWS),
    "no answer,,1",
    "sky,the sea is blue,1",
]


def count_vowels(texts):
    """Is an encoder that knows little of a text."""
    return np.array([[text.count(c) + 1 for c in "ae"] for text in texts], np.float32)


def _compare(queries, *more, encoders=("tests.evaluation.toy:encode", f"{__name__}:count_vowels")):
    return call(
        "experiments.compare", f"--encoders={','.join(encoders)}", f"--queries={queries}", *more
    )


def _read_scores(lines):
    """Returns row -> for each metric (value, low, high)."""
    scores = {}
    for line in lines[2:]:
        name, rest = re.match(r"(.*?)\s+([+-]?\d.*)", line).groups()
        numbers = [float(number) for number in re.findall(r"[+-]?\d+\.\d+", rest)]
        scores[name] = np.reshape(numbers, [3, 3])
    return scores


def test_table_and_folder_of_the_same_texts_have_the_same_scores(tmp_path, capsys):
    """Equal answers are one document, and all answers of a question are right."""
    toy.write(tmp_path / "pairs.csv", TABLE)
    assert _compare(tmp_path / "pairs.csv", "--columns=question,answer") == 0
    table = capsys.readouterr().out.splitlines()
    documents = {"d0": "an apple is red", "d1": "apples are sweet", "d2": "the sea is blue"}
    queries = {"q0": "red apple", "q1": "blue sea", "q2": "sky"}
    judged = ["q0\td0\t1", "q0\td1\t1", "q1\td2\t1", "q2\td2\t1"]
    toy.write_beir(tmp_path / "set", documents, queries, judged, ["test"])
    assert _compare(tmp_path / "set") == 0
    assert capsys.readouterr().out.splitlines() == table
    assert table[0].startswith("3 queries, 3 documents; ")
    # BM25 finds one of two answers first, one right away, and for a word of no document nothing.
    ndcg = (1 / (1 + 1 / np.log2(3)) + 1) / 3
    scores = _read_scores(table)
    assert scores["BM25"][:, 0] == pytest.approx([100 * ndcg, 200 / 3, 50], abs=0.01)


def test_differences_are_those_of_the_scores_and_their_intervals_are_paired():
    rng = np.random.default_rng(0)
    pairs = [(f"query {i}", f"text {i}") for i in range(60)]
    vectors = {text: rng.normal(size=8) for pair in pairs for text in pair}
    # The worse encoder fails where the better one does, and in a tenth of the other queries.
    for i, (query, text) in enumerate(pairs):
        vectors[query] = vectors[text] if i % 2 else vectors[query]
    worse = vectors | {query: rng.normal(size=8) for query, _ in pairs[1::10]}
    encoders = {"better": toy.lookup(vectors), "worse": toy.lookup(worse)}
    scores = _read_scores(compare(encoders, beir.make_of_pairs(pairs)))
    assert set(scores) > {"better", "worse", "BM25", "worse and BM25", "worse − better"}
    difference = scores["worse − better"]
    np.testing.assert_allclose(
        difference[:, 0], scores["worse"][:, 0] - scores["better"][:, 0], atol=0.02
    )
    assert (difference[0, 1] < difference[0, 0]) and (difference[0, 2] < 0)
    widths = {name: rows[0, 2] - rows[0, 1] for name, rows in scores.items()}
    assert widths["worse − better"] < 0.8 * widths["worse"]


def test_queries_and_documents_get_their_prompts():
    def encode(texts):
        return np.array([[text.startswith(("ask ", "tell ")), 1] for text in texts], np.float32)

    asked = []

    def record(texts):
        asked.extend(texts)
        return encode(texts)

    roles = {"query": add_prompt(record, "ask "), "document": add_prompt(record, "tell ")}
    compare({"one": CachedEncoder(record, roles=roles)}, beir.make_of_pairs([("q", "d")]))
    assert sorted(asked) == ["ask q", "tell d"]


def test_command_gives_texts_the_prompts_of_an_encoder(tmp_path, vocabulary, capsys):
    """The same weights without prompts have other scores."""
    prompted = write_prompted_encoder(tmp_path / "prompted", vocabulary)
    plain = shutil.copytree(prompted, tmp_path / "plain")
    write_settings(plain, NO_SETTINGS)
    words = list(itertools.combinations(vocabulary.tokens[-12:], 2))
    rows = [f"{first} {second},{second} {first} {first}" for first, second in words]
    toy.write(tmp_path / "pairs.csv", ["question,answer", *rows])
    columns = "--columns=question,answer"
    assert _compare(tmp_path / "pairs.csv", columns, encoders=(str(prompted), str(plain))) == 0
    scores = _read_scores(capsys.readouterr().out.splitlines())
    assert scores[f"{plain} − {prompted}"][:, 0].any()


def test_mistakes_are_one_line(tmp_path, capsys):
    toy.write(tmp_path / "pairs.csv", TABLE)
    toy.write(tmp_path / "blank.csv", ["question,answer", "a,"])
    for queries, more, words in (
        (tmp_path / "pairs.csv", [], "name two columns of the table"),
        (tmp_path / "pairs.csv", ["--columns=question,reply"], "no column 'reply'"),
        (tmp_path / "blank.csv", ["--columns=question,answer"], "no row has both"),
        (tmp_path, [], "missing; a data set of BEIR"),
        (tmp_path, ["--columns=question,answer"], "a folder has none"),
    ):
        assert _compare(queries, *more) == 1
        assert words in capsys.readouterr().err
    assert _compare(tmp_path, encoders=("a:b", "a:b")) == 1
    assert "name each once" in capsys.readouterr().err
