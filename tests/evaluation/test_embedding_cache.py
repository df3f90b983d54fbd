"""The cache of embeddings: nothing is embedded twice, nothing is lost or mixed up by a kill."""

import contextlib
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation import embedding_cache
from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.encoder import EncoderError, Role, for_role


class _Encoder:
    """Embeds a text by its length and code points; remembers what it was given."""

    def __init__(self):
        self.seen = []

    def __call__(self, texts):
        self.seen.extend(texts)
        return np.array([[len(t), sum(map(ord, t)), 1.0] for t in texts], np.float64)


def _vectors(texts):
    return _Encoder()(texts).astype(np.float32)


def _encoded(folder, texts):
    """Returns what a run on a folder encodes; it answers rightly."""
    encoder = _Encoder()
    with contextlib.closing(CachedEncoder(encoder, folder)) as cached:
        assert np.array_equal(cached(texts), _vectors(texts))
    return encoder.seen


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from(["", "a", "b", "aa", "\ud800"]), max_size=6), max_size=6))
def test_never_twice(requests):
    """Whatever is asked in whatever order, rows are right and each text is encoded once."""
    encoder = _Encoder()
    cached = CachedEncoder(encoder)
    for texts in requests:
        if texts:
            answer = cached(texts)
            assert answer.dtype == np.float32 and np.array_equal(answer, _vectors(texts))
    asked = [text for texts in requests for text in texts]
    assert sorted(encoder.seen) == sorted(set(asked))


def test_never_twice_across_runs(tmp_path):
    """A later run with the same folder encodes only what is new."""
    for texts, new in (("a bb a", "bb a"), ("a bb a", ""), ("ccc bb", "ccc"), ("ccc a", "")):
        assert _encoded(tmp_path, texts.split()) == new.split()


@pytest.mark.parametrize("name", ["vectors.f32", "names.bin", "width"])
def test_survives_a_kill_at_any_byte(tmp_path, name):
    """Cut anywhere or lost, a file costs work but no right answer, then and in the run after."""
    texts, whole = ["a", "bb", "ccc"], tmp_path / "whole"
    _encoded(whole, texts)
    content = (whole / name).read_bytes()
    # An empty width is told; see below.
    for left in (None, *range(name == "width", len(content) + 1)):
        folder = tmp_path / f"{left}"
        shutil.copytree(whole, folder)
        if left is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content[:left])
        kept = 3 * (left or 0) // len(content)
        assert len(_encoded(folder, texts)) == 3 - kept, left
        assert _encoded(folder, texts) == [], left


def test_killed_while_encoding(tmp_path, monkeypatch):
    """Earlier vectors stay; the rest is done by the next run."""
    monkeypatch.setattr(embedding_cache, "_CHUNK", 2)
    texts = ["aaaa", "bbb", "cc", "d"]

    def failing(batch):
        if "cc" in batch:
            raise KeyboardInterrupt
        return _vectors(batch)

    with contextlib.suppress(KeyboardInterrupt):
        CachedEncoder(failing, tmp_path)(texts)
    assert _encoded(tmp_path, texts) == ["cc", "d"]


def test_a_write_that_failed_halfway(tmp_path):
    """Bytes that a full disk left after the known rows are written over."""
    with contextlib.closing(CachedEncoder(_Encoder(), tmp_path)) as cached:
        cached(["a", "bb"])
        with (tmp_path / "vectors.f32").open("ab") as file:
            file.write(b"12345")
        cached(["ccc"])
    assert _encoded(tmp_path, ["ccc", "a", "bb"]) == []


def test_longest_first_in_chunks(monkeypatch):
    """Texts of a length meet, chunk by chunk; progress counts texts."""
    monkeypatch.setattr(embedding_cache, "_CHUNK", 2)
    encoder, totals, done = _Encoder(), [], []

    def progress(total):
        totals.append(total)
        return done.append

    cached = CachedEncoder(encoder, progress=progress)
    texts = ["a", "ccc", "bb", "ccc"]
    assert np.array_equal(cached(texts), _vectors(texts))
    assert encoder.seen == ["ccc", "bb", "a"] and totals == [3] and done == [2, 1]
    cached(texts)
    assert totals == [3]


def test_empty_list(tmp_path):
    """No rows of the right width, before and after anything was encoded, with a folder or not."""
    assert CachedEncoder(_Encoder())([]).shape == (0, 3)
    cached = CachedEncoder(_Encoder(), tmp_path)
    cached(["a"])
    empty = cached([])
    assert empty.shape == (0, 3) and empty.dtype == np.float32
    cached.close()
    assert CachedEncoder(_Encoder(), tmp_path)([]).shape == (0, 3)


def test_another_width_than_stored(tmp_path):
    """A folder of another encoder is told and left as it is."""
    _encoded(tmp_path, ["a"])
    with pytest.raises(EncoderError, match="delete the stored embeddings"):
        CachedEncoder(lambda texts: np.ones([len(texts), 2]), tmp_path)(["b"])
    assert _encoded(tmp_path, ["a"]) == []


def test_roles_are_kept_apart(tmp_path):
    """The same text has a vector of each role, also in the next run; no text is encoded twice."""
    calls = []

    def role(name, factor):
        def encode(texts):
            calls.extend((name, text) for text in texts)
            return factor * _Encoder()(texts)

        return Role(encode, name)

    for expected in (["query", "document", "query"], []):
        roles = {"query": role("query", 2), "document": role("document", 3)}
        cached = CachedEncoder(_Encoder(), tmp_path, roles=roles)
        texts = ["a", "bb"]
        assert np.array_equal(for_role(cached, "query")(texts), 2 * _vectors(texts))
        assert np.array_equal(for_role(cached, "document")(["a"]), 3 * _vectors(["a"]))
        assert np.array_equal(for_role(cached, "other")(texts), _vectors(texts))
        assert sorted(name for name, _ in calls) == sorted(expected)
        assert cached.roles["query"].prompt == "query"
        calls.clear()
        cached.close()


def test_an_encoder_may_use_its_buffer_again(tmp_path):
    """Earlier answers stay, in memory and in the folder, also where an answer is changed."""
    buffer = np.zeros([4, 1])

    def encode(texts):
        buffer[: len(texts), 0] = [len(text) for text in texts]
        return buffer[: len(texts)]

    for folder in (None, tmp_path):
        cached = CachedEncoder(encode, folder)
        cached(["a", "bb"])[:] = 9
        cached(["cccc", "ddddd"])
        assert cached(["a", "bb", "cccc"])[:, 0].tolist() == [1, 2, 4]
        cached.close()


def test_one_run_at_a_time(tmp_path):
    """A second one would write between the first one's lines."""
    first = CachedEncoder(_Encoder(), tmp_path)
    with pytest.raises(UserError, match="another run uses these embeddings"):
        CachedEncoder(_Encoder(), tmp_path)
    first.close()
    CachedEncoder(_Encoder(), tmp_path).close()


@pytest.mark.parametrize("width", ["", "0", "many", "9" * 5000])
def test_a_broken_width(tmp_path, width):
    """It is named, with what to do."""
    CachedEncoder(_Encoder(), tmp_path)(["a"])
    (tmp_path / "width").write_text(width)
    with pytest.raises(UserError, match="width: not a vector width; delete the folder"):
        CachedEncoder(_Encoder(), tmp_path)
