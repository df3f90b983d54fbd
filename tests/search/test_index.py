"""`Index`: searches of every kind, saving, loading, changes, and refusal of other encoders."""

import concurrent.futures
import functools
import re
import resource
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.encoder import PROBES, OpenedEncoder, Role
from official_cmlm.search import PRECISIONS, Index
from official_cmlm.search.texts import Texts
from official_cmlm.search.vectors import Vectors
from official_cmlm.vectors.nearest import unit
from tests.conftest import change_json
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


WAYS = [(precision, approximate) for approximate in (False, True) for precision in PRECISIONS]


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}{'-graph' * way[1]}")
def way(request):
    return dict(zip(("precision", "approximate"), request.param))


def _list_positions(hits):
    return [int(hit.id) for hit in hits]


def _rank_by_loops(encoder, query, texts=TEXTS):
    """Computes (position, cosine) of all texts, best first, in float64 by plain loops."""
    [asked] = encoder.encode([query])
    scored = []
    for position, text in enumerate(texts):
        [vector] = encoder.encode([text])
        lengths = np.linalg.norm(asked) * np.linalg.norm(vector)
        scored.append((float(asked @ vector) / lengths, position))
    return sorted(scored, key=lambda pair: (-pair[0], pair[1]))


def test_float32_search_equals_plain_loops():
    encoder = Words()
    index = Index.build(encoder, TEXTS)
    for query in ("the cat", "thing number", "und eine"):
        hits = index.search(query, k=7)
        expected = _rank_by_loops(encoder, query)[:7]
        assert _list_positions(hits) == [position for _, position in expected]
        np.testing.assert_allclose([hit.score for hit in hits], [s for s, _ in expected], atol=1e-6)
        assert [hit.text for hit in hits] == [TEXTS[int(hit.id)] for hit in hits]


@pytest.mark.parametrize(
    ("precision", "least"), [("float16", 0.99), ("int8", 0.995), ("bits", 0.4)]
)
@pytest.mark.parametrize("approximate", [False, True])
def test_rounded_vectors_find_most_of_the_exact_neighbours(precision, least, approximate):
    vectors = unit_vectors(2000)
    texts = [str(i) for i in range(len(vectors))]
    queries = unit_vectors(100, seed=0, spread=0.6)
    encoder = Words()
    exact, _ = Index.build(encoder, texts, vectors=vectors).search_vectors(queries)
    assert encoder.calls == []
    np.testing.assert_array_equal(exact, np.argsort(-(queries @ vectors.T), axis=1)[:, :10])
    index = Index.build(Words(), texts, precision, approximate, vectors=vectors)
    rows, near = index.search_vectors(queries)
    recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(exact, rows)])
    assert recall > least - (0.05 if approximate else 0)
    # Scores are those of the decoded vectors, best first.
    assert (np.diff(near, axis=1) <= 0).all()
    decoded = np.einsum("nkd,nd->nk", index.vectors()[rows], queries)
    np.testing.assert_allclose(near, np.clip(decoded, -1, 1), atol=1e-5)


def test_saved_index_loads_again(tmp_path, way):
    index = Index.build(Words(), TEXTS, **way, metadata=[{"line": i} for i in range(len(TEXTS))])
    index.settings = {"model": "toy"}
    index.save(tmp_path / "a" / "index")
    assert sorted(path.name for path in tmp_path.joinpath("a").iterdir()) == ["index"]
    assert Index.read_settings(tmp_path / "a" / "index") == {"model": "toy"}
    for mapped in (True, False):
        loaded = Index.load(tmp_path / "a" / "index", Words(), mapped)
        assert list(loaded.texts) == TEXTS and loaded.settings == {"model": "toy"}
        assert (loaded.precision, loaded.approximate) == tuple(way.values())
        assert loaded.search(TEXTS, 4) == index.search(TEXTS, 4)
    # Written again by the loaded one, over the files that it reads.
    loaded = Index.load(tmp_path / "a" / "index", Words())
    loaded.save(tmp_path / "a" / "index", overwrite=True)
    again = Index.load(tmp_path / "a" / "index", Words())
    assert again.search(TEXTS, 4) == index.search(TEXTS, 4)
    assert again.search(TEXTS[3], 1)[0].metadata["line"] in (0, 3)


def test_added_texts_are_found(tmp_path, way):
    first, more = TEXTS[:40], TEXTS[40:]
    grown = Index.build(Words(), first, **way)
    grown.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index", Words())
    for index in (grown, loaded):
        index.add(more[:1])
        index.add([])
        index.add(more[1:])
        assert list(index.texts) == TEXTS and len(index) == len(TEXTS)
        assert index.vectors().shape == (len(TEXTS), WIDTH)
        assert index.ids == [str(i) for i in range(len(TEXTS))]
        for text in TEXTS:
            assert text in [hit.text for hit in index.search(text, 8)]
    # The folder is as it was.
    assert len(Index.load(tmp_path / "index", Words())) == 40


def test_removed_texts_are_gone_and_other_ids_stay(tmp_path, way):
    names = [f"id {i}" for i in range(len(TEXTS))]
    index = Index.build(Words(), TEXTS, **way, ids=names)
    removed = names[10:50] + names[:1]
    index.remove(removed)
    left = [name for name in names if name not in removed]
    index.save(tmp_path / "index")
    assert b"number 20 " not in (tmp_path / "index" / "texts.npy").read_bytes()
    for changed in (index, Index.load(tmp_path / "index", Words())):
        assert changed.ids == left and len(changed) == len(left)
        for name, hits in zip(names, changed.search(TEXTS, len(TEXTS))):
            assert {hit.id for hit in hits} == set(left)
            # Ids, texts and vectors still belong to each other.
            assert name in removed or hits[0].text == TEXTS[int(name[3:])]
        with pytest.raises(UserError, match="'id 10' is not in the index"):
            changed.remove(["id 1", "id 10"])
        changed.add(["again"], ids=["id 10"])
        assert "id 10" in [hit.id for hit in changed.search("again", 8)]
        changed.remove(changed.ids)
        assert len(changed) == 0 and changed.search("again") == []
    changed.save(tmp_path / "empty")
    assert len(Index.load(tmp_path / "empty", Words())) == 0


def test_filter_chooses_among_all_texts(way):
    index = Index.build(
        Words(), TEXTS, **way, metadata=[{"even": i % 2 == 0} for i in range(len(TEXTS))]
    )
    plain = index.search("thing number", len(TEXTS))
    for filter in (lambda hit: hit.metadata["even"], {str(i) for i in range(0, len(TEXTS), 2)}):
        hits = index.search("thing number", 5, filter=filter)
        assert len(hits) == 5 and all(int(hit.id) % 2 == 0 for hit in hits)
        if way["precision"] != "bits" and not way["approximate"]:
            expected = [hit.id for hit in plain if hit.metadata["even"]][:5]
            assert [hit.id for hit in hits] == expected
    assert [hit.id for hit in index.search("the cat", 5, filter={"66", "nowhere"})] == ["66"]
    assert index.search("the cat", 5, filter=lambda hit: False) == []
    with pytest.raises(TypeError, match="set of ids"):
        index.search("the cat", 5, filter="66")


@pytest.mark.parametrize("approximate", [False, True])
def test_filter_asks_for_more_candidates_until_enough_pass(approximate, monkeypatch):
    """The nearest texts do not pass; with few candidates at most, all texts are compared."""
    vectors = unit_vectors(800)
    texts = [str(i) for i in range(len(vectors))]
    index = Index.build(Words(), texts, approximate=approximate, vectors=vectors)
    order = np.argsort(-(vectors[:1] @ vectors.T), axis=1)[0]
    expected = [str(row) for row in order[60:] if row % 2][:5]
    passing = {str(row) for row in order[60:] if row % 2}
    calls = []

    def search(filter):
        rows, _ = index.search_vectors(vectors[:1], 5, filter)
        return [index.ids[row] for row in rows[0]]

    for most in (10_000, 20):
        monkeypatch.setattr("official_cmlm.search.index._MOST_CANDIDATES", most)
        assert search(passing) == expected
        assert search(lambda hit: calls.append(hit.id) or hit.id in passing) == expected
        # Each text is asked about once; as long as candidates suffice, not all are.
        assert len(calls) == len(set(calls)) and (len(calls) < 800) == (most > 20)
        calls.clear()


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize(("named", "most_read"), [(780, 40), (30, 60)])
def test_filter_of_ids_reads_few_vectors(approximate, named, most_read, monkeypatch):
    """Many ids are looked up among the candidates; the vectors of a few ids are all compared."""
    vectors = unit_vectors(800)
    texts = [str(i) for i in range(len(vectors))]
    index = Index.build(Words(), texts, approximate=approximate, vectors=vectors)
    read_rows, read = [], Vectors.read
    monkeypatch.setattr(
        Vectors, "read", lambda self, rows: read_rows.extend(rows) or read(self, rows)
    )
    rows, _ = index.search_vectors(vectors[:1], 5, set(texts[:named]))
    np.testing.assert_array_equal(rows[0], np.argsort(-(vectors[:named] @ vectors[0]))[:5])
    assert 0 < len(read_rows) <= most_read


def test_text_is_read_among_those_of_its_file():
    metadata = [{"file": "ab"[i // 4]} for i in range(8)]
    index = Index.build(Words(), list("stuvwxyz"), metadata=metadata)
    assert [hit.text for hit in index.read_around("5")] == list("wxyz")
    assert [hit.text for hit in index.read_around("5", most=1)] == list("wxy")
    with pytest.raises(UserError, match="id '9' is not in the index"):
        index.read_around("9")


def test_an_index_is_shown_in_one_line():
    index = Index.build(Words(), ["one cat", "two dogs"], "int8", approximate=True)
    assert repr(index) == "Index(texts=2, dimension=24, precision='int8', approximate=True)"


def test_each_id_occurs_once():
    index = Index.build(Words(), ["one", "two"], ids=["a", "b"])
    for ids, error in (
        (["b"], "'b' is there twice"),
        (["c", "d"], "2 ids for 1 texts"),
    ):
        with pytest.raises(UserError, match=error):
            index.add(["three"], ids=ids)
    with pytest.raises(UserError, match="twice"):
        Index.build(Words(), ["one", "two"], ids=["a", "a"])
    with pytest.raises(UserError, match="metadata must be JSON"):
        index.add(["three"], metadata=[{"a": object()}])
    assert len(index) == 2


def test_several_threads_search_at_once(way):
    index = Index.build(Words(), TEXTS, **way)
    expected = index.search(TEXTS, 4)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: index.search(TEXTS, 4), range(40))) == [expected] * 40


def test_probes_give_no_warning(tmp_path):
    class Warns(Words):
        def encode(self, texts):
            if any(len(text) > 200 for text in texts):
                warnings.warn("1 of 35 texts has too many tokens", UserWarning, stacklevel=1)
            return super().encode(texts)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Index.build(Warns(), TEXTS).save(tmp_path / "index")
        Index.load(tmp_path / "index", Warns())


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


class Follower:
    """A student of `Words`: its vectors are near, and it says whose they follow."""

    def __init__(self, followed, noise=0.3):
        self.compatible_with = unit(np.float16(followed.encode(list(PROBES))).astype(np.float32))
        self._noise = noise

    def encode(self, texts):
        return Words().encode(texts) + self._noise * Words(seed=3).encode(texts)


def test_a_student_searches_the_index_of_its_teacher(tmp_path, capsys):
    """It says so in one line, and adds and saves nothing."""
    Index.build(Words(), TEXTS).save(tmp_path / "index")
    index = Index.load(tmp_path / "index", Follower(Words()))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path / 'index'}: searched with an encoder that follows the one")
    assert 0.8 < float(line[-5:-1]) < 0.99
    hits = index.search("sentence number 7", k=3)
    vectors = Follower(Words()).encode(["sentence number 7"])
    assert _list_positions(hits) == index.search_vectors(vectors, 3)[0][0].tolist()
    for refused in (lambda: index.add(["new"]), lambda: index.save(tmp_path / "other")):
        with pytest.raises(UserError, match="texts to encode by an encoder that may only search"):
            refused()
    assert len(index) == len(TEXTS) and not (tmp_path / "other").exists()
    # The teacher's own index is loaded without a word, and so is the student's.
    Index.load(tmp_path / "index", Words()).add(["new"])
    Index.build(Follower(Words()), TEXTS).save(tmp_path / "own")
    Index.load(tmp_path / "own", Follower(Words())).add(["new"])
    assert capsys.readouterr().err == ""


def test_students_of_others_are_refused(tmp_path):
    """So is the student of the same teacher with a prompt, and one of other probes."""
    Index.build(Words(), TEXTS).save(tmp_path / "index")
    prompted = SimpleNamespace(encode=lambda texts: Words().encode([f"a {text}" for text in texts]))
    fewer = Follower(Words())
    fewer.compatible_with = fewer.compatible_with[1:]
    for student in (Follower(Words(seed=1)), Follower(prompted), fewer):
        with pytest.raises(UserError, match="was built with another encoder"):
            Index.load(tmp_path / "index", student)


def test_queries_and_documents_are_encoded_in_their_own_ways(tmp_path):
    """Roles, as `open_encoder` gives them, and methods are both used."""
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
    expected = _rank_by_loops(words, "query: the cat", [f"passage: {text}" for text in TEXTS])[:3]
    for encoder in (opened, methods):
        hits = Index.build(encoder, TEXTS).search("the cat", 3)
        assert _list_positions(hits) == [position for _, position in expected]
    Index.build(opened, TEXTS).save(tmp_path / "index")
    Index.load(tmp_path / "index", methods)
    methods.encode_query = before("question:")
    with pytest.raises(UserError, match="other settings"):
        Index.load(tmp_path / "index", methods)


def test_progress_is_drawn_and_changes_nothing(capsys, monkeypatch):
    """Texts are encoded in parts, so that it moves."""
    monkeypatch.setattr("official_cmlm.search.index._TEXTS", 10)
    encoder = Words()
    index = Index.build(encoder, TEXTS, show_progress=True)
    assert max(encoder.calls) == 10 and "encoding" in capsys.readouterr().err
    assert index.search(TEXTS, 3) == Index.build(encoder, TEXTS).search(TEXTS, 3)


def test_odd_arguments():
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
        (lambda: index.search("one", None), TypeError),
        (lambda: Index.build(Words(), ["one"], "hnsw"), ValueError),
        (lambda: Index.build(3, ["one"]), TypeError),
        (lambda: Index.build(Words(), ["one"], vectors=np.ones([2, WIDTH])), UserError),
        (lambda: Index.build(lambda texts: np.full([len(texts), 4], np.nan), ["one"]), UserError),
    ):
        with pytest.raises(error):
            call()


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([1.0, 2.0], r"vectors of shape \[2\] for 2 texts; give \[2, dim\]"),
        (np.ones([3, WIDTH]), r"vectors of shape \[3, 24\] for 2 texts; give \[2, dim\]"),
        (np.full([2, WIDTH], "a"), "vectors hold NaN, infinity or no numbers; encode"),
        (np.full([2, WIDTH], "1"), "vectors hold NaN, infinity or no numbers; encode"),
        (np.full([2, WIDTH], np.nan), "vectors hold NaN, infinity or no numbers; encode"),
    ],
)
def test_wrong_vectors_of_a_new_index_say_what_is_wrong(vectors, message):
    with pytest.raises(UserError, match=message):
        Index.build(Words(), ["one", "two"], vectors=vectors)


def test_failing_encoder_leaves_the_index_unchanged():
    encoder = Words()
    index = Index.build(encoder, TEXTS)
    before = index.search("the cat")
    encoder.width = WIDTH + 1
    with pytest.raises(UserError, match="width 25 after vectors of width 24"):
        index.add(["x"])
    encoder.width = WIDTH
    assert len(index) == len(TEXTS) and index.search("the cat") == before


def test_existing_folders_are_kept(tmp_path):
    with pytest.raises(UserError, match="no index there"):
        Index.load(tmp_path, Words())
    index = Index.build(Words(), TEXTS)
    index.save(tmp_path / "index")
    with pytest.raises(UserError, match="holds an index already; pass overwrite=True"):
        index.save(tmp_path / "index")
    for name, content in (("photo", ""), ("index.json", "{}"), ("index.json", '{"format": 2}')):
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / "mine" / name).write_text(content)
        with pytest.raises(UserError, match="exists and holds no index; name another folder"):
            index.save(tmp_path / "mine", overwrite=True)
        assert (tmp_path / "mine" / name).read_text() == content
    (tmp_path / "index" / "notes.txt").touch()
    with pytest.raises(UserError, match="holds notes.txt, which this program has not written"):
        index.save(tmp_path / "index", overwrite=True)


def test_load_during_a_save_is_refused(tmp_path, monkeypatch):
    """Files of two indices are not put together, even if they have the same form."""
    Index.build(Words(), TEXTS).save(tmp_path / "index")
    other = Index.build(Words(), TEXTS[::-1])

    def load(*arguments, load=Texts.load):
        other.save(tmp_path / "index", overwrite=True)
        return load(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Texts, "load", load)
        with pytest.raises(UserError, match="index: was saved meanwhile; load it again$"):
            Index.load(tmp_path / "index", Words())
    assert Index.load(tmp_path / "index", Words()).texts == TEXTS[::-1]


def test_loaded_index_grows_beside_a_save(tmp_path, way):
    Index.build(Words(), TEXTS[:20], **way).save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index", Words())
    Index.build(Words(), TEXTS[20:], **way).save(tmp_path / "index", overwrite=True)
    loaded.add(["one more"])
    expected = Index.build(Words(), [*TEXTS[:20], "one more"], **way)
    # The scale of int8 is of the texts that came first.
    np.testing.assert_allclose(loaded.vectors(), expected.vectors(), atol=0.02)


@pytest.mark.parametrize("name", ["x" * 256, "/proc/index"])
def test_names_that_cannot_be_written_are_one_line(name):
    index = Index.build(Words(), TEXTS[:3])
    with pytest.raises(UserError) as caught:
        index.save(name)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
    with pytest.raises(UserError):
        Index.load(name, Words())


def _change_json(**values):
    return lambda folder: change_json(folder / "index.json", **values)


def _change_array(name, change):
    return lambda folder: np.save(folder / name, change(np.load(folder / name)))


def _cut_file(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-30])


@pytest.mark.parametrize(
    "damage",
    [
        _change_json(format=2),
        _change_json(version=3),
        _change_json(precision="pickle"),
        _change_json(precision="int8"),
        _change_json(scale="1"),
        _change_json(settings=[]),
        _change_json(texts=3),
        _change_json(texts=-1),
        _change_json(dimension=True),
        _cut_file("vectors.usearch"),
        _cut_file("texts.npy"),
        _cut_file("index.json"),
        lambda folder: (folder / "vectors.usearch").write_bytes(b"PK"),
        _change_array("ends.npy", lambda ends: ends[::-1]),
        _change_array("ends.npy", lambda ends: ends + 1),
        _change_array("texts.npy", lambda data: data.astype(np.int32)),
        _change_array("probes.npy", lambda rows: rows[:, :1]),
        _change_array("probes.npy", lambda rows: rows * np.nan),
        lambda folder: (folder / "probes.npy").unlink(),
        lambda folder: (folder / "vectors.usearch").unlink(),
    ],
)
@pytest.mark.parametrize("mapped", [True, False])
def test_damage_is_one_line(tmp_path, damage, mapped):
    Index.build(Words(), TEXTS).save(tmp_path / "index")
    damage(tmp_path / "index")
    with pytest.raises(UserError, match="index") as caught:
        Index.load(tmp_path / "index", Words(), mapped, verify=False)
    assert "\n" not in str(caught.value)


def test_earlier_versions_are_refused_with_advice(tmp_path):
    Index.build(Words(), TEXTS).save(tmp_path / "index")
    _change_json(version=3)(tmp_path / "index")
    with pytest.raises(UserError, match=r"Index' 3, this version reads .*build and save .* again$"):
        Index.load(tmp_path / "index", Words())
    Index.build(Words(), TEXTS).save(tmp_path / "index", overwrite=True)


def test_changed_settings_are_refused(tmp_path):
    Index.build(Words(), TEXTS).save(tmp_path / "index")
    _change_json(settings={"near": 0.5})(tmp_path / "index")
    with pytest.raises(UserError, match="index.json: is not as it was saved"):
        Index.read_settings(tmp_path / "index")


def _change_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _forget_checksum(path):
    _change_json(sha256={})(path.parent)


@pytest.mark.parametrize("name", ["vectors.usearch", "texts.npy", "probes.npy"])
def test_changed_contents_are_refused(tmp_path, name):
    """The changed file has the right form; only the checksum shows the change."""
    folder = tmp_path / "index"
    Index.build(Words(), TEXTS).save(folder)
    content = bytearray((folder / name).read_bytes())
    content[-4] ^= 0x80
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name}: is not as it was saved"):
        Index.load(folder, Words())
    if name == "texts.npy":
        index = Index.load(folder, Words(), verify=False)
        with pytest.raises(UserError, match=f"text {len(TEXTS) - 1} of the index is damaged"):
            index.search(TEXTS[0], k=len(TEXTS))
        _change_json(sha256=None)(folder)
        with pytest.raises(UserError, match="sha256 must be a mapping"):
            Index.load(folder, Words())


@pytest.mark.parametrize("way", [_change_byte, _forget_checksum, lambda path: path.unlink()])
@pytest.mark.parametrize("verify", [True, False])
def test_damaged_vectors_are_refused_before_they_are_read_by_usearch(
    tmp_path, monkeypatch, way, verify
):
    Index.build(Words(), TEXTS, approximate=True).save(tmp_path / "index")
    way(tmp_path / "index/vectors.usearch")
    monkeypatch.setattr("usearch.index.Index.restore", None)
    with pytest.raises(UserError, match="vectors.usearch: (is not as it was saved|cannot be read)"):
        Index.load(tmp_path / "index", Words(), verify=verify)


def test_queries_must_be_finite_and_scores_are_cosines(way):
    index = Index.build(Words(), TEXTS, **way)
    for bad in (np.nan, np.inf):
        queries = Words().encode(TEXTS[:2])
        queries[1, 3] = bad
        with pytest.raises(UserError, match="NaN or infinity"):
            index.search_vectors(queries)
    _, scores = index.search_vectors(index.vectors(), 1)
    assert scores.max() <= 1


def test_failed_save_leaves_nothing(tmp_path, monkeypatch):
    index = Index.build(Words(), TEXTS)
    index.save(tmp_path / "index")
    other = Index.build(Words(), TEXTS[:5])

    def fail(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("official_cmlm.search.index.write_json", fail)
    with pytest.raises(UserError, match="No space left"):
        other.save(tmp_path / "index", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
    assert len(Index.load(tmp_path / "index", Words())) == len(TEXTS)


def test_vectors_that_do_not_fit_on_the_disk_are_one_line(tmp_path):
    index = Index.build(Words(), TEXTS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        with pytest.raises(UserError, match=r"index: cannot be written \(.*again$") as caught:
            index.save(tmp_path / "index")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []


def test_hybrid_search_finds_words_that_the_encoder_does_not_know(tmp_path):
    """The ranking by words follows additions, removals, filters and a saved index too."""

    class Letters(Words):
        def encode(self, texts):
            return super().encode([re.sub(r"\S*\d\S*", "", text) for text in texts])

    texts = [f"the pump stops with error e{i}" for i in range(80)]
    index = Index.build(Letters(), [*texts, "why pumps stop"])
    ask = functools.partial(index.search, "what is e50", 1, hybrid=True)
    assert index.search("what is e50", 1)[0].id != "50"
    (hit,) = ask()
    assert hit.text == texts[50] and 1 / 61 < hit.score < 2 / 61
    assert ask(filter=lambda hit: hit.id != "50")[0].id != "50"
    assert [hit.id for hit in ask(filter={"3"})] == ["3"]
    assert [len(hits) for hits in index.search(["e1 e2", "?"], 60, hybrid=True)] == [60, 60]
    index.remove(["50"])
    index.add(["again e50"], ids=["new"])
    assert ask()[0].id == "new"
    index.add(["another z99"], ids=["later"])
    assert index.search("z99", 1, hybrid=True)[0].id == "later"
    index.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index", Letters())
    assert loaded.search("e50", 1, hybrid=True)[0].id == "new"
    with pytest.raises(ValueError, match="k must be at least 1"):
        index.search("e1", 0, hybrid=True)
    vectors_only = Index.build(Letters(), ["", ""])
    with pytest.raises(UserError, match="vectors only"):
        vectors_only.search("e1", hybrid=True)
