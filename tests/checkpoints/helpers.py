"""What the tests of imports share."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

REFERENCES = Path(__file__).parent / "references"
TEXTS = json.loads((REFERENCES / "texts.json").read_text())


def expected(name):
    """What the reference library computed for `TEXTS`: arrays by name."""
    return dict(np.load(REFERENCES / name / "expected.npz"))


def inputs(arrays):
    """The reference's token ids as the encoder takes them."""
    ids = tf.constant(arrays["input_word_ids"], tf.int32)
    mask = tf.constant(arrays["input_mask"], tf.int32)
    return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)}


def assert_outputs(model, arrays, tolerance=1e-5):
    """Token outputs equal the reference's at every real token."""
    real = arrays["input_mask"] > 0
    got = model(inputs(arrays))["sequence_output"].numpy()
    np.testing.assert_allclose(got[real], arrays["sequence_output"][real], atol=tolerance, rtol=0)
