"""Helpers of the tests of imports."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

from official_cmlm.checkpoints.formats.huggingface_tokenizer import read_vocabulary

REFERENCES = Path(__file__).parent / "references"
TEXTS = json.loads((REFERENCES / "texts.json").read_text())


def read_changed(folder, name, change):
    """Reads the `tokenizer.json` of a reference from `folder`, its values changed by a function."""
    values = json.loads((REFERENCES / name / "tokenizer.json").read_text())
    change(values)
    (folder / "tokenizer.json").write_text(json.dumps(values))
    return read_vocabulary(folder, None)


def read_expected(name):
    """Reads the results of the reference library for `TEXTS`: arrays by name."""
    return dict(np.load(REFERENCES / name / "expected.npz"))


def inputs(arrays):
    """Returns the reference's token ids as inputs of the encoder."""
    ids = tf.constant(arrays["input_word_ids"], tf.int32)
    mask = tf.constant(arrays["input_mask"], tf.int32)
    return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)}


def assert_outputs(model, arrays, tolerance=1e-5):
    """Asserts that token outputs equal the reference's at every real token."""
    real = arrays["input_mask"] > 0
    got = model(inputs(arrays))["sequence_output"].numpy()
    np.testing.assert_allclose(got[real], arrays["sequence_output"][real], atol=tolerance, rtol=0)


def assert_logits(model, head, arrays):
    """Asserts that a language-model head's logits equal the reference's at every real token."""
    rows, length = arrays["input_word_ids"].shape
    positions = tf.tile(tf.range(length)[tf.newaxis], [rows, 1])
    logits = head(model(inputs(arrays))["sequence_output"], masked_positions=positions).numpy()
    real = arrays["input_mask"] > 0
    np.testing.assert_allclose(logits[real], arrays["logits"][real], atol=1e-5, rtol=0)
