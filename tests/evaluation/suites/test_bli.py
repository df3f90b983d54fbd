"""Lexicon induction on dictionary files: directions, sizes, several translations."""

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation import suites
from official_cmlm.evaluation.encoder import LanguageEncoders
from official_cmlm.evaluation.metrics.nearest import unit
from official_cmlm.evaluation.suites import bli
from official_cmlm.evaluation.suites.bli import Options, center, translations
from tests.evaluation import toy


def rotation_of(dim, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=[dim, dim]))[0]


def random_vectors(n, dim=5, seed=0):
    return unit(np.random.default_rng(seed).normal(size=[n, dim]))


def test_centred_vectors_lose_their_mean_and_have_length_one():
    """Scaled, moved, scaled again: by hand for two vectors."""
    vectors = np.array([[2.0, 0.0], [0.0, 3.0]])
    half = np.sqrt(0.5)
    np.testing.assert_allclose(center(vectors), [[half, -half], [-half, half]], rtol=1e-6)


def csls_by_loops(queries, candidates, vocabulary, most, k):
    def mean(vector, others):
        cosines = sorted((float(vector @ other) for other in others), reverse=True)[:k]
        return sum(cosines) / len(cosines)

    rows = []
    for query in queries:
        own = mean(query, candidates)
        scores = [
            2 * float(query @ candidate) - own - mean(candidate, vocabulary)
            for candidate in candidates
        ]
        rows.append(sorted(range(len(scores)), key=lambda j: (-scores[j], j))[:most])
    return np.array(rows)


@pytest.mark.parametrize("k", [1, 3, 100])
def test_csls_is_the_formula(k):
    """2 cos − r(x) − r(y), with r(y) among the whole source vocabulary, not the queries alone."""
    vocabulary, candidates = random_vectors(40), random_vectors(25, seed=1)
    places = translations(vocabulary[:8], candidates, vocabulary, Options(csls_k=k))
    np.testing.assert_array_equal(
        places, csls_by_loops(vocabulary[:8], candidates, vocabulary, 5, k)
    )
    plain = translations(vocabulary[:8], candidates, vocabulary, Options(retrieval="cosine"))
    expected = np.argsort(-(vocabulary[:8] @ candidates.T), axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(plain, expected)
    assert (plain != places).any()


def test_equal_candidates_are_ordered_by_index():
    """All of them where fewer than wanted; copies in the order of their indices."""
    vectors = np.array([[0, 0], [1, 0], [1, 0]], np.float32)
    assert translations(vectors, vectors, vectors, Options(retrieval="cosine")).tolist() == [
        [0, 1, 2],
        [1, 2, 0],
        [1, 2, 0],
    ]


class _Toy:
    """Source words `s<i>` lie at random, target words `t<i>` at the same place, turned."""

    def __init__(self, shift=0.0):
        self.meanings = random_vectors(60, dim=8)
        self.rotation = rotation_of(8)
        self.shift = shift

    def __call__(self, texts):
        rows = []
        for text in texts:
            row = self.meanings[int(text[1:])]
            turned = row @ self.rotation + self.shift * np.eye(8)[0]
            rows.append(row if text[0] == "s" else turned)
        return np.array(rows, np.float32)


def _write(path, pairs):
    toy.write(path, map("\t".join, pairs))


def _pairs(rows):
    return [(f"s{i}", f"t{i}") for i in rows]


def _dictionaries(root):
    folder = root / "bli/xx-yy"
    _write(folder / "yacle.train.freq.5k.xx-yy.tsv", _pairs(range(40)))
    _write(folder / "yacle.train.freq.500.xx-yy.tsv", _pairs(range(20)))
    _write(folder / "yacle.test.freq.2k.xx-yy.tsv", _pairs(range(40, 50)))
    return folder


def _run(root, encode=None, **options):
    return toy.run(bli, encode or _Toy(), root, **options)


def test_sizes_and_directions_are_those_of_the_folder(tmp_path):
    """Each training size is a task; a turned space is found by the map and not without."""
    folder = _dictionaries(tmp_path)
    _write(folder / "yacle.train.freq.5k.yy-xx.tsv", [(t, s) for s, t in _pairs(range(40))])
    _write(folder / "yacle.test.freq.2k.yy-xx.tsv", [(t, s) for s, t in _pairs(range(40, 45))])
    report = _run(tmp_path)
    assert not report.failures
    metrics = {f"p@{k}{how}" for k in (1, 5) for how in ("", "_centered", "_unmapped")}
    tasks = {"xx-yy.5k", "xx-yy.500", "yy-xx.5k"}
    assert {(s.task, s.metric) for s in report.scores} == {(t, m) for t in tasks for m in metrics}
    for task in tasks:
        assert report.get(task, "p@1") == 100.0
        assert report.get(task, "p@1_unmapped") <= report.get(task, "p@5_unmapped") < 60
    assert {s.count for s in report.scores if s.task == "xx-yy.5k"} == {10}
    assert {s.count for s in report.scores if s.task == "yy-xx.5k"} == {5}
    assert any("xx-yy: 50 target words to search" in note for note in report.notes)


def test_scores_are_the_formulas_on_the_files(tmp_path):
    """The map from the training pairs alone, CSLS over all words: the same by hand."""
    _dictionaries(tmp_path)
    rng = np.random.default_rng(3)
    noise = {f"{side}{i}": 0.2 * rng.normal(size=8) for side in "st" for i in range(60)}
    toy = _Toy()

    def encode(texts):
        return toy(texts) + np.array([noise[text] for text in texts], np.float32)

    report, cosine = _run(tmp_path, encode), _run(tmp_path, encode, retrieval="cosine")
    # The small dictionary is read first; its words are among those of the large one.
    source, target = (unit(encode([f"{side}{i}" for i in range(50)])) for side in "st")
    left, _, right = np.linalg.svd(source[:20].T.astype(float) @ target[:20])
    mapped = source @ (left @ right)
    for metric, queries in (("p@{}", mapped), ("p@{}_unmapped", source)):
        places = csls_by_loops(queries[40:], target, queries, 5, 10)
        for k in (1, 5):
            hits = [i in row[:k] for i, row in zip(range(40, 50), places.tolist())]
            assert report.get("xx-yy.500", metric.format(k)) == pytest.approx(100 * np.mean(hits))
        nearest_one = (queries[40:] @ target.T).argmax(axis=1)
        right = 100 * np.mean(nearest_one == np.arange(40, 50))
        assert cosine.get("xx-yy.500", metric.format(1)) == pytest.approx(right)
    assert 0 < report.get("xx-yy.500", "p@1") < 100
    assert [s.value for s in cosine.scores] != [s.value for s in report.scores]


def test_centering_undoes_a_shift(tmp_path):
    """A target space moved far away is mapped better once both are centred."""
    _dictionaries(tmp_path)
    report = _run(tmp_path, _Toy(shift=4.0))
    assert report.get("xx-yy.5k", "p@1_centered") > report.get("xx-yy.5k", "p@1")


def test_each_language_has_its_encoder(tmp_path):
    """A source word is asked of its own encoder only; nothing is compared without a map."""
    _dictionaries(tmp_path)
    source, target = toy.Recording(_Toy()), toy.Recording(_Toy())
    encoders = LanguageEncoders({"xx": source, "yy": target})
    report, one = _run(tmp_path, encoders), _run(tmp_path)
    assert {w[0] for w in source.texts} == {"s"} and {w[0] for w in target.texts} == {"t"}
    assert {s.metric for s in report.scores} == {"p@1", "p@5", "p@1_centered", "p@5_centered"}
    for score in report.scores:
        assert score.value == one.get(score.task, score.metric)
    without = _run(tmp_path, encoders, mapping="none")
    assert not without.scores and "cannot be compared without a map" in without.failures[0]


def test_encoders_that_do_not_fit(tmp_path):
    """Other widths, and a language without an encoder: a line each."""
    _dictionaries(tmp_path)
    narrow = LanguageEncoders({"xx": _Toy(), "yy": lambda texts: _Toy()(texts)[:, :5]})
    assert "8 and 5 wide" in _run(tmp_path, narrow).failures[0]
    lacking = LanguageEncoders({"xx": _Toy()})
    with pytest.raises(UserError, match="which has xx; there are xx-yy$"):
        _run(tmp_path, lacking)
    (failure,) = _run(tmp_path, lacking, pairs=["xx-yy"]).failures
    assert failure == "xx-yy: no encoder for 'yy'; --encoder has xx"


def test_directions_without_encoders_are_left_out(tmp_path):
    """The publisher's folder has all pairs of eight languages: one note lists the others."""
    for pair in ("xx-yy", "xx-zz", "zz-yy"):
        _write(tmp_path / f"bli/{pair}/yacle.train.freq.1k.{pair}.tsv", _pairs(range(40)))
        _write(tmp_path / f"bli/{pair}/yacle.test.freq.2k.{pair}.tsv", _pairs(range(40, 50)))
    encoders = LanguageEncoders({"xx": _Toy(), "yy": _Toy()})
    report = _run(tmp_path, encoders)
    assert report.unscored == [] and {s.task for s in report.scores} == {"xx-yy.1k"}
    assert report.notes[0] == "left out, --encoder has only xx, yy: xx-zz, zz-yy"
    assert {s.task for s in _run(tmp_path).scores} == {"xx-yy.1k", "xx-zz.1k", "zz-yy.1k"}


def test_directions_are_chosen(tmp_path):
    """Any code selects each direction separately; others are neither read nor missing."""
    for pair in ("en-fr", "fr-en", "de-en"):
        _write(tmp_path / f"bli/yacle.train.freq.1k.{pair}.tsv", _pairs(range(40)))
        _write(tmp_path / f"bli/yacle.test.freq.2k.{pair}.tsv", _pairs(range(40, 50)))
    (tmp_path / "bli/yacle.test.freq.2k.de-en.tsv").write_text("one\n")
    for pairs, tasks in (
        (["en-fr"], {"en-fr.1k"}),
        (["FRA-eng", "en-fr"], {"en-fr.1k", "fr-en.1k"}),
    ):
        report = _run(tmp_path, pairs=pairs)
        assert {s.task for s in report.scores} == tasks and report.unscored == []
    assert len(_run(tmp_path).failures) == 1
    with pytest.raises(UserError, match="bli.pairs: the data has no 'en-de'; it has de-en, en-fr"):
        _run(tmp_path, pairs=["en-de"])
    assert suites.read_options("bli", {"pairs": "en-fr,de-en"}).pairs == ["en-fr", "de-en"]


def test_several_translations_are_one_question(tmp_path):
    """A source word counts once; any of its translations is right."""
    folder = _dictionaries(tmp_path)
    _write(folder / "yacle.test.freq.2k.xx-yy.tsv", [("s41", "t3"), ("s41", "t41"), ("s42", "t7")])
    report = _run(tmp_path)
    assert report.get("xx-yy.5k", "p@1") == 50.0
    assert {score.count for score in report.scores} == {2}


def test_vocabularies_add_words(tmp_path):
    """Words of `bli/<lang>.vocab.txt` can be retrieved, those of the source count for CSLS."""
    _dictionaries(tmp_path)
    (tmp_path / "bli/yy.vocab.txt").write_text("t1\nt55\n\nt56\n")
    (tmp_path / "bli/xx.vocab.txt").write_text("s57\n")
    encode = toy.Recording(_Toy())
    report = _run(tmp_path, encode)
    assert any("52 target words" in note and "51 source words" in note for note in report.notes)
    assert {"t55", "t56", "s57"} <= set(encode.texts)


def test_scores_without_a_map(tmp_path):
    """Without a training dictionary, under the direction's name; or where no map is asked for.

    A direction without a test is a failure.
    """
    _write(tmp_path / "bli/a.test.1k.xx-yy.tsv", _pairs(range(3)))
    _write(tmp_path / "bli/a.train.1k.yy-xx.tsv", [(t, s) for s, t in _pairs(range(3))])
    report = _run(tmp_path)
    assert [(s.task, s.metric) for s in report.scores] == [
        ("xx-yy", "p@1_unmapped"),
        ("xx-yy", "p@5_unmapped"),
    ]
    assert len(report.failures) == 1 and "no test dictionary of yy-xx" in report.failures[0]
    _dictionaries(tmp_path)
    report = _run(tmp_path, mapping="none", retrieval="cosine")
    assert {score.metric for score in report.scores} == {"p@1_unmapped", "p@5_unmapped"}


def test_bad_lines_are_counted_and_bad_files_fail_alone(tmp_path):
    """Lines without two words are noted; a dictionary without any is its own failure."""
    folder = _dictionaries(tmp_path)
    with (folder / "yacle.train.freq.5k.xx-yy.tsv").open("a") as file:
        file.write("one\n\t\na\tb\tc\n")
    (folder / "yacle.train.freq.500.xx-yy.tsv").write_text("one\n")
    report = _run(tmp_path)
    assert any("3 of 43 lines of yacle.train" in note for note in report.notes)
    assert len(report.failures) == 1 and report.failures[0].startswith("xx-yy.500: ")
    assert {score.task for score in report.scores} == {"xx-yy.5k"}
