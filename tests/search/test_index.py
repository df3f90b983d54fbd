"""`Index`: found by every method, saved, loaded, added to, and refused to another encoder."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation.encoding import OpenedEncoder, Role
from official_cmlm.search import METHODS, Index
from tests.search.toy_encoder import WIDTH, Words, unit_vectors

TEXTS = [
    "the cat sat on the mat",
    "a dog ran over the river",
    "",
    "the cat sat on the mat",
    "zwei Wörter\nund eine Zeile",
    "五个 字符 \U0001f600",
    "a lone \ud800 surrogate",
    *(f"sentence number {i} about thing {i * i}" for i in range(60)),
]


@pytest.fixture(params=METHODS)
def method(request):
    if request.param == "faiss":
        pytest.importorskip("faiss", reason="needs the extra search (faiss-cpu)")
    return request.param


def _expected(encoder, query, texts=TEXTS):
    """Computes (position, cosine) of all texts, best first, in float64 by plain loops."""
    [wanted] = encoder.encode([query])
    scored = []
    for position, text in enumerate(texts):
        [found] = encoder.encode([text])
        lengths = np.linalg.norm(wanted) * np.linalg.norm(found)
        scored.append((float(wanted @ found) / lengths, position))
    return sorted(scored, key=lambda pair: (-pair[0], pair[1]))


def test_float32_finds_what_plain_loops_find():
    encoder = Words()
    index = Index.build(encoder, TEXTS)
    for query in ("the cat", "thing number", "und eine"):
        hits = index.search(query, k=7)
        expected = _expected(encoder, query)[:7]
        assert [hit.position for hit in hits] == [position for _, position in expected]
        np.testing.assert_allclose([hit.score for hit in hits], [s for s, _ in expected], atol=1e-6)
        assert [hit.text for hit in hits] == [TEXTS[hit.position] for hit in hits]


def test_every_method_finds_a_text_itself(method):
    index = Index.build(Words(), TEXTS, method)
    assert len(index) == len(TEXTS) and index.dimension == WIDTH
    found = index.search(TEXTS, k=2)
    for position, hits in enumerate(found):
        # The first of two equal texts, and its vector is rounded in int8 codes.
        assert hits[0].text == TEXTS[position]
        assert hits[0].score == pytest.approx(1, abs=0.02)
    assert list(index.texts) == TEXTS and index.texts[-1] == TEXTS[-1]


@pytest.mark.parametrize(
    ("method", "options", "least"),
    [
        ("int8", {}, 0.97),
        ("binary", {"oversample": 16}, 0.85),
        ("binary", {"oversample": 500}, 0.97),
    ],
)
def test_rounded_vectors_find_most_of_what_exact_search_finds(method, options, least):
    vectors = unit_vectors(4000)
    texts = [str(i) for i in range(len(vectors))]
    queries = unit_vectors(100, seed=0, spread=0.6)
    exact, scores = Index.build(Words(), texts, vectors=vectors).search_vectors(queries)
    index = Index.build(Words(), texts, method, vectors=vectors, **options)
    found, near = index.search_vectors(queries)
    assert np.mean([len({*a} & {*b}) / 10 for a, b in zip(exact, found)]) > least
    # Scores are those of the decoded vectors, best first.
    np.testing.assert_allclose(near[:, 0], scores[:, 0], atol=0.1)
    assert (np.diff(near, axis=1) <= 0).all()
    np.testing.assert_allclose(
        near, np.einsum("nkd,nd->nk", index.vectors()[found], queries), atol=1e-5
    )


def test_more_candidates_make_binary_search_exact_for_its_codes():
    vectors = unit_vectors(300)
    texts = [str(i) for i in range(len(vectors))]
    int8, binary = (
        Index.build(Words(), texts, method, vectors=vectors, oversample=300)
        for method in ("int8", "binary")
    )
    for a, b in zip(int8.search_vectors(vectors, 5), binary.search_vectors(vectors, 5)):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_what_is_saved_is_loaded(tmp_path, method):
    index = Index.build(Words(), TEXTS, method, oversample=7, probed=5)
    index.save(tmp_path / "a" / "index")
    assert sorted(path.name for path in tmp_path.joinpath("a").iterdir()) == ["index"]
    for mapped in (True, False):
        loaded = Index.load(tmp_path / "a" / "index", Words(), mapped)
        assert list(loaded.texts) == TEXTS and loaded.method == method
        assert loaded.search(TEXTS, 4) == index.search(TEXTS, 4)
    # Written again by the loaded one, over the files that it reads.
    loaded = Index.load(tmp_path / "a" / "index", Words())
    loaded.save(tmp_path / "a" / "index", overwrite=True)
    again = Index.load(tmp_path / "a" / "index", Words())
    assert again.search(TEXTS, 4) == index.search(TEXTS, 4)


def test_texts_that_are_added_are_found(tmp_path, method):
    first, more = TEXTS[:40], TEXTS[40:]
    grown = Index.build(Words(), first, method)
    grown.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index", Words())
    for index in (grown, loaded):
        index.add(more[:1])
        index.add([])
        index.add(more[1:])
        assert list(index.texts) == TEXTS and len(index) == len(TEXTS)
        assert index.vectors().shape == (len(TEXTS), WIDTH)
        for text in TEXTS[30:]:
            assert index.search(text, 1)[0].text == text
    # The folder is as it was.
    assert len(Index.load(tmp_path / "index", Words())) == 40


def test_adding_to_float32_is_as_building_of_all():
    grown = Index.build(Words(), TEXTS[:1])
    for text in TEXTS[1:]:
        grown.add([text])
    assert grown.search(TEXTS, 5) == Index.build(Words(), TEXTS).search(TEXTS, 5)


def test_another_encoder_is_refused(tmp_path):
    Index.build(Words(), TEXTS).save(tmp_path / "index")
    with pytest.raises(UserError, match="another encoder"):
        Index.load(tmp_path / "index", Words(seed=1))
    with pytest.raises(UserError, match="vectors of 24 dimensions, the encoder's have 20"):
        Index.load(tmp_path / "index", Words(width=20))
    # A backend that rounds otherwise is the same encoder; one that rounds much is not, unless told.
    noise = Words(seed=3)

    def about(size):
        return lambda texts: Words().encode(texts) + size * noise.encode(texts)

    Index.load(tmp_path / "index", about(1e-5))
    with pytest.raises(UserError, match="tolerance 0.001"):
        Index.load(tmp_path / "index", about(0.01))
    Index.load(tmp_path / "index", about(0.01), tolerance=0.1)


def test_queries_and_documents_are_encoded_in_their_own_ways(tmp_path):
    """Roles, as `open_encoder` gives them, and methods are both found."""
    words = Words()

    def before(word):
        return lambda texts: words.encode([f"{word} {text}" for text in texts])

    opened = OpenedEncoder(
        "toy",
        "python",
        "0",
        words.encode,
        roles={"query": Role(before("query:")), "document": Role(before("passage:"))},
    )
    methods = SimpleNamespace(
        encode=words.encode, encode_query=before("query:"), encode_document=before("passage:")
    )
    expected = _expected(words, "query: the cat", [f"passage: {text}" for text in TEXTS])[:3]
    for encoder in (opened, methods):
        hits = Index.build(encoder, TEXTS).search("the cat", 3)
        assert [hit.position for hit in hits] == [position for _, position in expected]
    Index.build(opened, TEXTS).save(tmp_path / "index")
    Index.load(tmp_path / "index", methods)
    methods.encode_query = before("question:")
    with pytest.raises(UserError, match="other settings"):
        Index.load(tmp_path / "index", methods)


def test_vectors_that_are_there_are_not_encoded_again():
    encoder = Words()
    vectors = encoder.encode(TEXTS)
    encoder.calls.clear()
    index = Index.build(encoder, TEXTS, vectors=vectors)
    assert encoder.calls == [] and index.search("the cat", 3) == Index.build(encoder, TEXTS).search(
        "the cat", 3
    )
    with pytest.raises(UserError, match="for 67 texts"):
        Index.build(encoder, TEXTS, vectors=vectors[:-1])


def test_progress_is_drawn_and_changes_nothing(capsys, monkeypatch):
    monkeypatch.setattr("official_cmlm.search.index._TEXTS", 10)
    encoder = Words()
    index = Index.build(encoder, TEXTS, show_progress=True)
    assert max(encoder.calls) == 10
    assert index.search(TEXTS, 3) == Index.build(encoder, TEXTS).search(TEXTS, 3)


def test_small_and_empty_questions():
    index = Index.build(Words(), ["one", "two"])
    assert [hit.text for hit in index.search("two", k=10)] == ["two", "one"]
    assert index.search([]) == [] and len(index.search(["one"])) == 1
    assert index.search("", 1)[0].score <= 1
    for call, error in (
        (lambda: index.search("one", 0), ValueError),
        (lambda: index.search([1]), TypeError),
        (lambda: index.search(b"one"), TypeError),
        (lambda: index.search_vectors(np.zeros([1, 3])), UserError),
        (lambda: Index.build(Words(), []), UserError),
        (lambda: Index.build(Words(), "one"), TypeError),
        (lambda: Index.build(Words(), ["one", None]), TypeError),
        (lambda: Index.build(Words(), ["one"], "hnsw"), ValueError),
        (lambda: Index.build(Words(), ["one"], "int8"), UserError),
        (lambda: Index.build(Words(), ["one"], oversample=0), ValueError),
        (lambda: Index.build(3, ["one"]), TypeError),
        (lambda: Index.build(lambda texts: np.full([len(texts), 4], np.nan), ["one"]), UserError),
    ):
        with pytest.raises(error):
            call()


def test_an_encoder_that_fails_leaves_the_index_unchanged():
    encoder = Words()
    index = Index.build(encoder, TEXTS)
    before = index.search("the cat")
    index._encode_document = lambda texts: np.zeros([len(texts), WIDTH + 1], np.float32)
    with pytest.raises(UserError, match="24 dimensions"):
        index.add(["x"])
    assert len(index) == len(TEXTS) and index.search("the cat") == before


def test_existing_folders_are_kept(tmp_path):
    index = Index.build(Words(), TEXTS)
    index.save(tmp_path / "index")
    with pytest.raises(UserError, match="exists already; pass overwrite"):
        index.save(tmp_path / "index")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo").touch()
    with pytest.raises(UserError, match="it is not an index"):
        index.save(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "photo").exists()


def _json(**values):
    def change(folder):
        path = folder / "index.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def _array(name, change):
    return lambda folder: np.save(folder / name, change(np.load(folder / name)))


def _pickled(folder):
    np.save(folder / "vectors.npy", np.array([{}], object), allow_pickle=True)


def _cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-30])


@pytest.mark.parametrize(
    "damage",
    [
        _json(format=1),
        _json(method="pickle"),
        _json(method="int8"),
        _json(texts=3),
        _json(texts=-1),
        _json(dimension=True),
        _json(oversample="many"),
        _pickled,
        _cut("vectors.npy"),
        _cut("texts.npy"),
        _cut("index.json"),
        _array("vectors.npy", lambda rows: rows[:-1]),
        _array("vectors.npy", lambda rows: rows.astype(np.float64)),
        _array("vectors.npy", lambda rows: rows[:, :, np.newaxis]),
        _array("ends.npy", lambda ends: ends[::-1]),
        _array("ends.npy", lambda ends: ends + 1),
        _array("texts.npy", lambda data: data.astype(np.int32)),
        _array("probes.npy", lambda rows: rows[:, :1]),
        _array("probes.npy", lambda rows: rows * np.nan),
        lambda folder: (folder / "probes.npy").unlink(),
    ],
)
@pytest.mark.parametrize("mapped", [True, False])
def test_damage_is_one_line(tmp_path, damage, mapped):
    Index.build(Words(), TEXTS).save(tmp_path / "index")
    damage(tmp_path / "index")
    with pytest.raises(UserError, match="index") as caught:
        Index.load(tmp_path / "index", Words(), mapped, verify=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["int8", "binary"])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("codes.npy", lambda rows: rows.view(np.uint8)),
        ("codes.npy", lambda rows: rows[:, :-1]),
        ("ranges.npy", lambda rows: rows[:1]),
        ("ranges.npy", lambda rows: rows * np.nan),
        ("ranges.npy", lambda rows: rows[::-1]),
        ("bits.npy", lambda rows: rows[:-1]),
    ],
)
def test_damaged_codes_are_one_line(tmp_path, method, name, change):
    Index.build(Words(), TEXTS, method).save(tmp_path / "index")
    if not (tmp_path / "index" / name).exists():
        pytest.skip("a file of the other method")
    _array(name, change)(tmp_path / "index")
    with pytest.raises(UserError, match="build and save"):
        Index.load(tmp_path / "index", Words(), verify=False)


@pytest.mark.parametrize(
    ("method", "name", "change"),
    [
        ("float32", "vectors.npy", lambda rows: rows[::-1]),
        ("float32", "vectors.npy", lambda rows: np.append(rows[:-1], [rows[-1] * np.nan], axis=0)),
        ("float32", "texts.npy", lambda data: np.where(np.arange(len(data)), data, 0xFF)),
        ("int8", "ranges.npy", lambda rows: rows[:, ::-1]),
        ("binary", "bits.npy", lambda rows: ~rows),
    ],
)
def test_changed_contents_are_refused(tmp_path, method, name, change):
    """The changed array has the right form; only the checksum shows the change."""
    Index.build(Words(), TEXTS, method).save(tmp_path / "index")
    _array(name, lambda rows: change(rows).astype(rows.dtype))(tmp_path / "index")
    with pytest.raises(UserError, match=f"{name}: is not as it was saved"):
        Index.load(tmp_path / "index", Words())
    index = Index.load(tmp_path / "index", Words(), verify=False)
    if name == "texts.npy":
        with pytest.raises(UserError, match="text 0 of the index is damaged"):
            index.search(TEXTS[0], k=len(TEXTS))


def test_checksums_are_needed(tmp_path):
    Index.build(Words(), TEXTS).save(tmp_path / "index")
    _json(sha256=None)(tmp_path / "index")
    with pytest.raises(UserError, match="has no checksums"):
        Index.load(tmp_path / "index", Words())


@pytest.mark.parametrize("kind", ["metric", "ids"])
def test_foreign_cells_are_refused(kind):
    faiss = pytest.importorskip("faiss", reason="needs the extra search")
    from official_cmlm.nearest import CellIndex

    metric = faiss.METRIC_L2 if kind == "metric" else faiss.METRIC_INNER_PRODUCT
    made, vectors = faiss.index_factory(24, "IVF2,Flat", metric), unit_vectors(200)
    made.train(vectors)
    made.add_with_ids(vectors, np.arange(200) + (0 if kind == "metric" else 1))
    with pytest.raises(UserError, match="inner product|ids are not"):
        CellIndex.from_bytes(faiss.serialize_index(made))


def test_queries_must_be_finite_and_scores_are_cosines(method):
    index = Index.build(Words(), TEXTS, method)
    for bad in (np.nan, np.inf):
        queries = Words().encode(TEXTS[:2])
        queries[1, 3] = bad
        with pytest.raises(UserError, match="NaN or infinity"):
            index.search_vectors(queries)
    # Along a rounded vector that is longer than 1, the product with it is above 1.
    rows = index.vectors()
    _, scores = index.search_vectors(rows, 1)
    assert scores.max() <= 1
    if method in ("int8", "binary"):
        assert np.linalg.norm(rows, axis=1).max() > 1


def test_no_folder_is_no_index(tmp_path):
    with pytest.raises(UserError, match="no index there"):
        Index.load(tmp_path, Words())


def test_a_save_that_fails_leaves_nothing(tmp_path, monkeypatch):
    index = Index.build(Words(), TEXTS)
    index.save(tmp_path / "index")
    other = Index.build(Words(), TEXTS[:5])

    def fail(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("official_cmlm.search.index.write_json", fail)
    with pytest.raises(UserError, match="No space left"):
        other.save(tmp_path / "index", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
    shutil.copytree(tmp_path / "index", tmp_path / "copy")
    assert len(Index.load(tmp_path / "copy", Words())) == len(TEXTS)
