"""The reader of checkpoints without TensorFlow, against TensorFlow."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.checkpoints.tensor_bundle import TensorBundle
from official_cmlm.common.errors import UserError


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Writes a checkpoint of variables of all kinds; many keys, so that the index has blocks."""
    rng = np.random.default_rng(0)
    many = [tf.Variable(rng.normal(size=[3, number % 5 + 1])) for number in range(300)]
    kinds = {
        "half": tf.Variable(rng.normal(size=[4]), dtype=tf.float16),
        "brain": tf.Variable(rng.normal(size=[2, 5]), dtype=tf.bfloat16),
        "single": tf.Variable(rng.normal(size=[7, 3]), dtype=tf.float32),
        "count": tf.Variable(12, dtype=tf.int64),
        "empty": tf.Variable(tf.zeros([0, 4])),
    }
    return tf.train.Checkpoint(many=many, **kinds).save(str(tmp_path / "ckpt"))


def test_all_values_are_those_of_tensorflow(prefix):
    bundle, reader = TensorBundle.open(prefix), tf.train.load_checkpoint(prefix)
    shapes = reader.get_variable_to_shape_map()
    assert set(bundle.entries) == set(shapes)
    for key in shapes:
        if key != "_CHECKPOINTABLE_OBJECT_GRAPH":
            expected = np.asarray(tf.cast(reader.get_tensor(key), tf.float64))
            np.testing.assert_array_equal(bundle.read(key).astype(np.float64), expected)


def test_variables_are_found_by_their_objects(prefix):
    bundle = TensorBundle.open(prefix)
    assert {"many", "half", "count", "save_counter"} <= set(bundle.children([]))
    assert bundle.key(["many", "17"]) == "many/17/.ATTRIBUTES/VARIABLE_VALUE"
    assert bundle.key(["none"]) is None and bundle.children(["none"]) == []


def test_every_flipped_byte_of_the_data_is_seen(prefix):
    data = Path(f"{prefix}.data-00000-of-00001")
    entry = TensorBundle.open(prefix).entries["single/.ATTRIBUTES/VARIABLE_VALUE"]
    content = bytearray(data.read_bytes())
    content[entry.offset + 5] ^= 1
    data.write_bytes(content)
    with pytest.raises(UserError, match="single does not have its checksum"):
        TensorBundle.open(prefix).read("single/.ATTRIBUTES/VARIABLE_VALUE")


def test_a_damaged_index_is_one_line(prefix):
    """No flipped byte and no length gives another exception, or other values."""
    index = Path(f"{prefix}.index")
    content = index.read_bytes()
    whole = TensorBundle.open(prefix).entries
    rng = np.random.default_rng(1)
    for at in rng.integers(0, len(content), 200):
        flipped = bytearray(content)
        flipped[at] ^= 1 << int(rng.integers(0, 8))
        for damaged in (bytes(flipped), content[:at]):
            index.write_bytes(damaged)
            try:
                assert TensorBundle.open(prefix).entries == whole
            except UserError as error:
                assert "damaged" in str(error) and "\n" not in str(error)


def test_a_damaged_object_graph_is_one_line(prefix):
    """No checksum holds its bytes: a name may be no UTF-8, or the key of nothing."""
    data = Path(f"{prefix}.data-00000-of-00001")
    entry = TensorBundle.open(prefix).entries["_CHECKPOINTABLE_OBJECT_GRAPH"]
    content, rng = data.read_bytes(), np.random.default_rng(2)
    name = content.index(b"single", entry.offset)
    places = [name, *rng.integers(entry.offset, entry.offset + entry.size, 100).tolist()]
    for at in places:
        flipped = bytearray(content)
        flipped[at] = 0xFF
        data.write_bytes(flipped)
        try:
            bundle = TensorBundle.open(prefix)
            for child in bundle.children([]):
                if key := bundle.key([child]):
                    bundle.read(key)
        except UserError as error:
            assert "damaged" in str(error) and "\n" not in str(error)
        else:
            assert at != name
