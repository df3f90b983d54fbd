"""The cache of embeddings: nothing is embedded twice, nothing is lost or mixed up by a kill."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation import embedding_cache
from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.encoder import EncoderError, Role, for_role
from tests.evaluation import toy


def _vectors(texts):
    """Embeds a text by its length and code points."""
    return np.array([[len(t), sum(map(ord, t)), 1.0] for t in texts], np.float32)


def _encode_in(folder, texts):
    """Returns the texts that a run on a folder encodes; it answers rightly."""
    encoder = toy.Recording(_vectors)
    assert np.array_equal(CachedEncoder(encoder, folder)(texts), _vectors(texts))
    return encoder.texts


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from(["", "a", "b", "aa", "\ud800"]), max_size=6), max_size=6))
def test_no_text_is_encoded_twice(requests):
    """Whatever is asked in whatever order, rows are right and each text is encoded once."""
    encoder = toy.Recording(_vectors)
    cached = CachedEncoder(encoder)
    for texts in filter(None, requests):
        assert np.array_equal(cached(texts), _vectors(texts))
    assert sorted(encoder.texts) == sorted({text for texts in requests for text in texts})


def test_a_later_run_encodes_only_new_texts(tmp_path):
    """A later run with the same folder encodes only what is new."""
    for texts, new in (("a bb a", "bb a"), ("a bb a", ""), ("ccc bb", "ccc"), ("ccc a", "")):
        assert _encode_in(tmp_path, texts.split()) == new.split()


def test_a_killed_run_loses_at_most_a_chunk(tmp_path, monkeypatch):
    """Earlier vectors stay; the rest is done by the next run."""
    monkeypatch.setattr(embedding_cache, "_CHUNK", 2)
    texts = ["aaaa", "bbb", "cc", "d"]

    def failing(batch):
        if "cc" in batch:
            raise KeyboardInterrupt
        return _vectors(batch)

    with pytest.raises(KeyboardInterrupt):
        CachedEncoder(failing, tmp_path)(texts)
    # A write was killed too.
    (tmp_path / "000001.npy.1-0123abcd.tmp").write_bytes(b"12345")
    assert _encode_in(tmp_path, texts) == ["cc", "d"]


def test_a_deleted_file_costs_only_its_own_texts(tmp_path, monkeypatch):
    """Texts of the files after it stay, also when some of its texts are embedded before others."""
    monkeypatch.setattr(embedding_cache, "_CHUNK", 2)
    texts = ["ffffff", "eeeee", "dddd", "ccc", "bb", "a"]
    _encode_in(tmp_path, texts)
    (tmp_path / "000001.npy").unlink()
    assert _encode_in(tmp_path, ["bb", "ccc"]) == ["ccc"]
    assert _encode_in(tmp_path, texts) == ["dddd"]
    assert _encode_in(tmp_path, texts) == []


def test_files_may_share_texts(tmp_path):
    """The rows of later files are right."""
    _encode_in(tmp_path, ["a", "bb"])
    (tmp_path / "000001.npy").write_bytes((tmp_path / "000000.npy").read_bytes())
    assert _encode_in(tmp_path, ["ccc", "a", "dddd"]) == ["dddd", "ccc"]
    assert _encode_in(tmp_path, ["a", "bb", "ccc", "dddd"]) == []


def test_the_longest_texts_are_encoded_first(monkeypatch):
    """Texts of a length meet, chunk by chunk; progress counts texts."""
    monkeypatch.setattr(embedding_cache, "_CHUNK", 2)
    encoder, progress = toy.Recording(_vectors), []
    cached = CachedEncoder(encoder, progress=lambda n: progress.append(n) or progress.append)
    cached = CachedEncoder(
        encoder, progress=lambda total: progress.append(total) or progress.append
    )
    for _ in range(2):
        texts = ["a", "ccc", "bb", "ccc"]
        assert np.array_equal(cached(texts), _vectors(texts))
        assert encoder.calls == [["ccc", "bb"], ["a"]] and progress == [3, 2, 1]


def test_an_empty_list_has_the_right_width(tmp_path):
    """No rows of the right width, before and after anything was encoded, with a folder or not."""
    cached = CachedEncoder(_vectors, tmp_path)
    cached(["a"])
    for encoder in (CachedEncoder(_vectors), cached, CachedEncoder(_vectors, tmp_path)):
        assert encoder([]).shape == (0, 3) and encoder([]).dtype == np.float32


def test_another_width_than_the_stored_one_is_refused(tmp_path):
    """A folder of another encoder is told and left as it is."""
    _encode_in(tmp_path, ["a"])
    with pytest.raises(EncoderError, match="delete the stored embeddings"):
        CachedEncoder(lambda texts: np.ones([len(texts), 2]), tmp_path)(["b"])
    assert _encode_in(tmp_path, ["a"]) == []


def test_roles_are_kept_apart(tmp_path):
    """The same text has a vector of each role, also in the next run; no text is encoded twice."""
    for expected in (["a", "a", "bb"], []):
        encoders = {
            name: toy.Recording(lambda texts, factor=factor: factor * _vectors(texts))
            for name, factor in (("query", 2), ("document", 3))
        }
        roles = {name: Role(encode, name) for name, encode in encoders.items()}
        cached = CachedEncoder(_vectors, tmp_path, roles=roles)
        texts = ["a", "bb"]
        assert np.array_equal(for_role(cached, "query")(texts), 2 * _vectors(texts))
        assert np.array_equal(for_role(cached, "document")(["a"]), 3 * _vectors(["a"]))
        assert np.array_equal(for_role(cached, "other")(texts), _vectors(texts))
        assert sorted(text for one in encoders.values() for text in one.texts) == expected
        assert cached.roles["query"].prompt == "query"


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


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "damaged"), (None, "not an array of embeddings")]
)
def test_a_damaged_file_is_named(tmp_path, content, message):
    """The line says what to do, which costs the work of one chunk."""
    _encode_in(tmp_path, ["a"])
    path = tmp_path / "000000.npy"
    if content is None:
        np.save(path, np.zeros(3))
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"000000.npy: {message}.*delete it, and its texts"):
        CachedEncoder(_vectors, tmp_path)
    path.unlink()
    assert _encode_in(tmp_path, ["a"]) == ["a"]
