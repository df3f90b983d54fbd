"""Principal component removal: what the paper's formula says, and files."""

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.metrics.principal_components import (
    PrincipalComponentRemoval,
    language_subspace,
)


def _languages(rows=60, dim=6):
    """Draws the same sentences in two languages, each set moved its own way."""
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=[rows, dim])
    return {
        "en": (meaning + 4 * np.eye(dim)[0]).astype(np.float32),
        "de": (meaning - 4 * np.eye(dim)[1]).astype(np.float32),
    }


@pytest.mark.parametrize(
    ("number", "center", "formula"),
    [(1, False, "unit"), (3, True, "unit"), (1, False, "printed"), (3, False, "printed")],
)
def test_removal_follows_its_formula(number, center, formula):
    """v − Σ (vᵀc) c with c from the SVD, of unit vectors; printed, v − Σ (vᵀc / ‖v‖) c."""
    embeddings = _languages()
    removal = PrincipalComponentRemoval.fit(embeddings, number, center, formula)
    for language, vectors in embeddings.items():
        matrix = vectors.astype(float)
        if formula == "unit":
            matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix -= matrix.mean(axis=0) if center else 0.0
        components = np.linalg.svd(matrix)[2][:number]
        assert removal.components[language].shape == components.shape
        removed = removal(vectors, language)
        divisors = np.linalg.norm(matrix, axis=1) if formula == "printed" else np.ones(len(matrix))
        expected = [v - sum(v @ c / d * c for c in components) for v, d in zip(matrix, divisors)]
        np.testing.assert_allclose(removed, expected, atol=1e-5)


def test_formulas_agree_for_vectors_of_length_1_alone():
    vectors = _languages()["en"]
    unit_vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for rows, agree in ((unit_vectors, True), (vectors, False)):
        unit, printed = (
            PrincipalComponentRemoval.fit({"en": rows}, formula=formula)(rows, "en")
            for formula in ("unit", "printed")
        )
        assert np.allclose(unit, printed, atol=1e-5) == agree


def test_the_subspace_of_languages_is_that_of_their_covariance():
    """Its directions are the largest eigenvectors of the covariance of the means."""
    rng = np.random.default_rng(0)
    means = dict(zip("abcde", rng.normal(size=[5, 8]) * np.arange(1, 9)))
    rows = np.array(list(means.values()))
    for directions in (1, 4):
        basis, mean = language_subspace(means, directions)
        np.testing.assert_allclose(mean, rows.mean(axis=0))
        axes = np.linalg.eigh(np.cov(rows.T))[1][:, ::-1][:, :directions]
        np.testing.assert_allclose(basis.T @ basis, axes @ axes.T, atol=1e-10)
    # All directions make the means equal.
    left = rows - mean - (rows - mean) @ basis.T @ basis
    np.testing.assert_allclose(left, 0, atol=1e-10)
    for some, number in ((means, 5), ({"a": rows[0]}, 1), ({"a": rows[0], "b": rows[0]}, 1)):
        with pytest.raises(UserError, match=f"of {len(some)} languages .* differ in {number - 1} "):
            language_subspace(some, number)


def test_one_projection_lets_a_query_find_the_passage_of_another_language(tmp_path):
    """Before it, an English passage that fits less is nearer; a third language needs no fit."""
    embeddings = _languages()
    removal = PrincipalComponentRemoval.fit_common(embeddings, 1)
    removal.save(tmp_path / "common.npz")
    removal = PrincipalComponentRemoval.load(tmp_path / "common.npz")
    query, german = embeddings["en"][:1], embeddings["de"][:1]
    unfit = query + 2.5 * np.eye(6, dtype=np.float32)[3]

    def cosine(a, b):
        return (a @ b.T).item() / np.linalg.norm(a) / np.linalg.norm(b)

    assert cosine(query, unfit) > cosine(query, german)
    query, unfit, german = (removal(v, code) for v, code in zip((query, unfit, german), "abc"))
    assert cosine(query, german) > cosine(query, unfit)


def test_encoder_passes_to_any_evaluation():
    """The wrapped encoder maps strings to what is left of their vectors."""
    vectors = _languages()["en"]
    removal = PrincipalComponentRemoval.fit({"en": vectors})
    encode = removal.encoder(lambda sentences: vectors[: len(sentences)], "en")
    np.testing.assert_array_equal(encode(["a", "b"]), removal(vectors[:2], "en"))


def test_file_round_trip(tmp_path):
    """Languages, settings and components are loaded as they were saved."""
    removal = PrincipalComponentRemoval.fit(_languages(), num_components=2, formula="printed")
    removal.save(tmp_path / "pcr.npz")
    again = PrincipalComponentRemoval.load(tmp_path / "pcr.npz")
    vectors = _languages()["de"]
    np.testing.assert_array_equal(again(vectors, "de"), removal(vectors, "de"))
    assert again.formula == "printed"


def test_bad_input_is_named(tmp_path):
    """Unknown languages, too many components, and files that are none."""
    removal = PrincipalComponentRemoval.fit(_languages())
    with pytest.raises(ValueError, match="language 'fr'; fitted: de, en"):
        removal(np.ones([1, 6]), "fr")
    with pytest.raises(UserError, match="3 components cannot be removed from the 2 vectors"):
        PrincipalComponentRemoval.fit({"en": np.ones([2, 6])}, num_components=3)
    with pytest.raises(UserError, match="No such file.*; fit and save"):
        PrincipalComponentRemoval.load(tmp_path / "none.npz")
    for content in (b"text", b"PK\x03\x04 cut"):
        (tmp_path / "other.npz").write_bytes(content)
        with pytest.raises(UserError, match=r"other\.npz: damaged"):
            PrincipalComponentRemoval.load(tmp_path / "other.npz")
    np.savez(tmp_path / "else.npz", other=np.ones(2))
    with pytest.raises(UserError, match=r"else\.npz"):
        PrincipalComponentRemoval.load(tmp_path / "else.npz")
