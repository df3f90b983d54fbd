"""Helpers of the tests of imports."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

REFERENCES = Path(__file__).parent / "references"
TEXTS = json.loads((REFERENCES / "texts.json").read_text())


def expected(name):
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
