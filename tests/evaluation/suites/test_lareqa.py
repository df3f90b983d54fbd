"""LAReQA: average precision by loops, roles, removal fitted on the set and on other text."""

import json

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.encoder import Role
from official_cmlm.evaluation.metrics.principal_components import PrincipalComponentRemoval
from official_cmlm.evaluation.suites import lareqa
from tests.evaluation import toy

LANGUAGES = ("de", "en", "th")
SETTINGS = {"languages": list(LANGUAGES), "fit_on": "texts/other.jsonl"}


def _vectors(rows=12, dim=8, apart=2.0, seed=0):
    """Draws language -> vectors of the same meanings, each language moved its own way."""
    rng = np.random.default_rng(seed)
    meaning = rng.normal(size=[rows, dim])
    return {
        code: (meaning + 0.3 * rng.normal(size=[rows, dim]) + apart * np.eye(dim)[i]).round(4)
        for i, code in enumerate(LANGUAGES)
    }


def _write(root, vectors, asked):
    """Writes two paragraphs of sentences a language, the first of which has all questions.

    Question i is `asked[language][i]`, and sentence i + 1 answers it.
    """
    for code, rows in vectors.items():
        sentences = toy.as_numbers(rows)
        questions = [(text, i + 1) for i, text in enumerate(toy.as_numbers(asked[code]))]
        paragraphs = (sentences[:6], questions), (sentences[6:], [])
        toy.write_xquad_r(root / f"lareqa/xquad-r/{code}.json", *paragraphs)


def _run(root, encode=toy.read_numbers, **options):
    return toy.run(lareqa, encode, root, **options)


def _by_loops(questions, candidates):
    """Computes the scores as the paper defines them, a question after the other."""
    scores = {}
    for own, asked in questions.items():
        precisions, alone, shares = [], [], []
        for i, question in enumerate(asked):
            pool = [
                (question @ row / np.linalg.norm(row), code, j)
                for code, rows in candidates.items()
                for j, row in enumerate(rows)
            ]
            ranking = [(code, j) for _, code, j in sorted(pool, reverse=True)]
            relevant = [rank for rank, (_, j) in enumerate(ranking, 1) if j == i + 1]
            precisions.append(np.mean([n / rank for n, rank in enumerate(relevant, 1)]))
            mine = [j for code, j in ranking if code == own]
            alone.append(1 / (mine.index(i + 1) + 1))
            shares.append(np.mean([code == own for code, _ in ranking[:10]]))
        values = zip(("map", "map_own_language", "share_own"), (precisions, alone, shares))
        scores[own] = {name: 100 * np.mean(value) for name, value in values}
    return scores


@pytest.mark.parametrize("sides", ["both", "queries"])
@pytest.mark.parametrize("directions", [0, 2])
def test_scores_are_those_of_loops(tmp_path, sides, directions):
    """Before the removal and after it, of either kind, fitted to questions and candidates."""
    vectors, asked = _vectors(), {code: rows[:4] for code, rows in _vectors(seed=1).items()}
    _write(tmp_path, vectors, asked)
    report = _run(tmp_path, sides=sides, language_components=directions)
    assert not report.failures
    both = {code: np.concatenate([asked[code], vectors[code]]) for code in LANGUAGES}
    fit = PrincipalComponentRemoval.fit
    removal = PrincipalComponentRemoval.fit_common(both, 2) if directions else fit(both)
    queries, pool = (
        {code: removal(rows, code) for code, rows in side.items()} for side in (asked, vectors)
    )
    for suffix, expected in (
        ("", _by_loops(asked, vectors)),
        ("_pcr", _by_loops(queries, pool if sides == "both" else vectors)),
    ):
        for code, metrics in expected.items():
            values = {name: report.get(code, name + suffix) for name in metrics}
            assert values == pytest.approx(metrics)
        mean = np.mean([metrics["map"] for metrics in expected.values()])
        assert report.get("all", f"map{suffix}") == pytest.approx(mean)
    assert {score.count for score in report.scores} == {4, 12}


def _translations():
    """Returns sentences and questions whose nearest sentences are those of their language."""
    vectors = _vectors(apart=30.0)
    return vectors, {code: rows[1:5] for code, rows in vectors.items()}


def test_one_projection_finds_answers_in_other_languages(tmp_path):
    """Its texts are others, in two of the three languages and in one that the pool lacks."""
    vectors, asked = _translations()
    _write(tmp_path, vectors, asked)
    other = _vectors(rows=200, apart=30.0, seed=2)
    other = {"deu": other["de"], "en": other["en"], "fr": other["th"]}
    # The set's own sentence is left out, also with other spaces in it.
    texts = [("en", f" {toy.as_numbers(vectors['en'])[3]} ".replace(" ", "  "))]
    texts += [(code, text) for code, rows in other.items() for text in toy.as_numbers(rows)]
    rows = [json.dumps({"lang": code, "text": text}) for code, text in texts]
    toy.write(tmp_path / "texts/other.jsonl", [*rows, '{"lang": "en", "text": " "}'])
    report = _run(tmp_path, language_components=2, **SETTINGS)
    assert not report.failures
    whole = "all of de+en+th"
    assert report.get(whole, "share_own") > 95 and report.get(whole, "map") < 50
    assert report.get(whole, "share_own_pcr") < 60 and report.get(whole, "map_pcr") > 90
    assert any("600 texts in 3 languages of texts/other.jsonl; 1 more" in n for n in report.notes)
    with pytest.raises(UserError, match="no text in th; .* set lareqa.language_components"):
        _run(tmp_path, **SETTINGS)


def test_questions_and_candidates_have_their_roles(tmp_path):
    """A candidate may have its paragraph behind it."""
    vectors, asked = _translations()
    _write(tmp_path, vectors, asked)
    texts = {"query": toy.Recording(toy.read_numbers), "document": toy.Recording(toy.read_numbers)}

    def encode(texts):
        raise AssertionError("each text has a role")

    encode.roles = {name: Role(function) for name, function in texts.items()}
    assert _run(tmp_path, encode).get("all", "map_own_language") == 100.0
    assert set(texts["query"].texts) == {t for r in asked.values() for t in toy.as_numbers(r)}
    sentences = {text for rows in vectors.values() for text in toy.as_numbers(rows)}
    assert set(texts["document"].texts) == sentences
    document = json.loads((tmp_path / "lareqa/xquad-r/en.json").read_text())
    part = lareqa.parse(document, context=True)
    first, *_, last = toy.as_numbers(vectors["en"])
    assert part.candidates[0].startswith(f"{first} {first} ")
    assert part.candidates[-1].startswith(f"{last} ") and part.candidates[-1].endswith(f" {last}")
    assert part.answers == {f"q{i}": i + 1 for i in range(4)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "damaged .TypeError"),
        ('{"data": [{"paragraphs": [{"context": ""}]}]}', "damaged .KeyError"),
        ('{"data": [', "not valid JSON"),
        ('{"data": []}', "no question in it"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    _write(tmp_path, *_translations())
    toy.write(tmp_path / "lareqa/xquad-r/en.json", [content])
    with pytest.raises(UserError, match=rf"en.json: {message}.*google-research-datasets/lareqa"):
        _run(tmp_path)


def test_a_pool_needs_two_languages(tmp_path):
    _write(tmp_path, *_translations())
    with pytest.raises(UserError, match="the pool has en only"):
        _run(tmp_path, languages=["en"])
    report = _run(tmp_path, language_components=3)
    assert (
        "language_components=3: the means of 3 languages (de, en, th) differ in 2 "
        in (report.failures[0])
    )
