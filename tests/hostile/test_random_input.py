"""Random strings through every form of an encoder, and random values in its description."""

import copy
import json
import shutil
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.tokenization.vocabulary import utf8

# Largest difference of a component between `encode` and the serving model that is rounding.
_TOLERANCE = 1e-4
_PIECES = ["the", "cat", "Straße", "ΣΊΣΥΦΟΣ", "кошка", "猫", "नमस्ते", "ไทย", "مُحَمَّد", "한국어"]
_PIECES += ["[MASK]", "##s", "\u0301", "\u200d", "\r\n", "İ", "Ǆ"]
_TEXTS = st.text(max_size=60) | st.lists(st.sampled_from(_PIECES), max_size=12).map(" ".join)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "a", "../x", "a\0b", "\ud800", "9" * 5000, 10**400]),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.text(), values, max_size=2),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def forms(exported):
    """Returns the encoder, its serving model and its preprocess module."""
    model, out = exported
    serving = tf.saved_model.load(str(out / "serving" / "1"))
    return SentenceEncoder.load(model), serving, tf.saved_model.load(str(out / "preprocess"))


def _serve(forms, raw):
    return forms[1].serve(tf.constant(raw, tf.string))["default"].numpy()


def _without_new_punctuation(text):
    """Returns a text without characters that only one library may take for punctuation.

    `tokenizers` does not know the punctuation of Unicode 9 and later, TensorFlow does
    (docs/runtimes.md). Python does not know the category of the newest characters.
    """
    kinds = ("Cn", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps")
    return "".join(" " if c > "~" and unicodedata.category(c) in kinds else c for c in text)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(_TEXTS, min_size=1, max_size=8))
@example(texts=["", "\ud800", "a cat", "\0" * 100_000, "cat " * 50_000])
def test_every_text_has_the_same_finite_vector_in_every_form(forms, texts):
    """Surrogates cannot be written as UTF-8; `encode` reads them as `?`."""
    assert np.isfinite(forms[0].encode(texts)).all()
    assert np.isfinite(_serve(forms, utf8(texts))).all()
    common = [_without_new_punctuation(text) for text in texts]
    encoded, served = forms[0].encode(common), _serve(forms, utf8(common))
    np.testing.assert_allclose(encoded, served, atol=_TOLERANCE, rtol=0)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(raw=st.lists(st.binary(max_size=60), min_size=1, max_size=8))
@example(raw=[b"\xed\xa0\x80", b"", b"\xff" * 100_000])
def test_every_byte_string_gives_valid_ids_and_a_finite_vector(forms, raw):
    """Only a client of a module can send bytes that are not UTF-8."""
    encoder, _, preprocess = forms
    assert np.isfinite(_serve(forms, raw)).all()
    inputs = {name: value.numpy() for name, value in preprocess(tf.constant(raw)).items()}
    ids, mask, types = (inputs[f"input_{name}"] for name in ("word_ids", "mask", "type_ids"))
    special, lengths = encoder.vocabulary.special_ids, mask.sum(axis=1)
    assert len(ids) == len(raw) and lengths.min() >= 2
    assert ids.min() >= 0 and ids.max() < len(encoder.vocabulary) and not types.any()
    np.testing.assert_array_equal(mask, lengths[:, None] > range(mask.shape[1]))
    assert (ids[mask == 0] == special["pad"]).all() and (ids[:, 0] == special["cls"]).all()


def _places(values):
    """Yields (container, key) of every value at any depth."""
    for key in list(values) if isinstance(values, dict) else range(len(values)):
        yield values, key
        if isinstance(values[key], dict | list):
            yield from _places(values[key])


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_changed_description_is_read_or_refused_in_one_line(exported, tmp_path, data):
    """One value of `encoder_config.json` or of the vocabulary's settings is another or missing."""
    folder = tmp_path / "model"
    if not folder.exists():
        shutil.copytree(exported[0], folder)
    path = folder / data.draw(st.sampled_from(["encoder_config.json", "vocab.json"]))
    good = path.read_text(encoding="utf-8")
    values = copy.deepcopy(json.loads(good))
    container, key = data.draw(st.sampled_from(list(_places(values))))
    if data.draw(st.booleans()):
        container[key] = data.draw(_VALUES)
    else:
        del container[key]
    path.write_bytes(json.dumps(values).encode("utf-8", "surrogatepass"))
    try:
        directory = EncoderDirectory.open(folder)
        assert len(directory.vocabulary) > 0
        directory.config.check_memory()
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 2000
    finally:
        path.write_text(good, encoding="utf-8")
