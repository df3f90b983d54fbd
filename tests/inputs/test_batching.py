"""Batches of whole blocks: those of tf.data, those of a schedule, and what a schedule promises."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs.batching import in_order
from official_cmlm.inputs.streams import (
    choose_batches,
    choose_shares,
    newest_of_each_bucket,
    schedule,
)

LENGTHS, SIZES = (4, 8, 16), (6, 3, 2)


def _blocks(seed: int, count: int = 12) -> list[np.ndarray]:
    """Lengths of examples, block by block; some blocks have none."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 17, rng.integers(0, 30)) for _ in range(count)]


def _examples(lengths: np.ndarray, first: int) -> dict:
    """Makes examples; example i has the tokens i, i, …"""
    keys = np.arange(first, first + len(lengths))
    tokens = tf.RaggedTensor.from_row_lengths(np.repeat(keys, lengths).astype(np.int32), lengths)
    return {"tokens": tokens, "key": tf.constant(keys, tf.int64)}


def _bucket(examples: dict) -> tf.Tensor:
    lengths = tf.cast(examples["tokens"].row_lengths(), tf.int64)
    return tf.searchsorted(tf.constant(LENGTHS, tf.int64), lengths, out_type=tf.int64)


@pytest.mark.parametrize(("seed", "flush"), [(0, False), (1, True)])
def test_in_order_is_what_tf_data_gives(seed, flush):
    """The same batches in the same order as `bucket_by_sequence_length`, incomplete ones too."""
    blocks, first, pieces = _blocks(seed), 0, []
    for lengths in blocks:
        pieces.append((False, _examples(lengths, first)))
        first += len(lengths)
    pieces.append((flush, _examples(np.zeros(0, np.int64), first)))
    spec = (
        tf.TensorSpec([], tf.bool),
        {
            "tokens": tf.RaggedTensorSpec([None, None], tf.int32),
            "key": tf.TensorSpec([None], tf.int64),
        },
    )
    dataset = tf.data.Dataset.from_generator(lambda: iter(pieces), output_signature=spec)
    actual = [
        (int(batch["bucket"]), batch["key"].numpy().tolist(), batch["tokens"].to_list())
        for batch in in_order(dataset, _bucket, SIZES)
    ]
    lengths = np.concatenate(blocks)
    singles = tf.data.Dataset.from_tensor_slices((np.arange(len(lengths)), lengths))
    expected = singles.bucket_by_sequence_length(
        lambda _, length: tf.cast(length, tf.int32),
        [length + 1 for length in LENGTHS],
        [*SIZES, 1],
        drop_remainder=not flush,
    )
    batches = [(keys.numpy(), rows.numpy()) for keys, rows in expected]
    assert [keys for _, keys, _ in actual] == [keys.tolist() for keys, _ in batches]
    assert len(actual) > 20
    for (bucket, keys, tokens), (_, rows) in zip(actual, batches):
        assert bucket == np.searchsorted(LENGTHS, rows.max())
        assert tokens == [[key] * int(row) for key, row in zip(keys, rows)]


def test_schedule():
    """Each bucket as often as its examples need, evenly, and never left out."""
    shares = [0.7, 0.29999, 0.00001]
    steps = schedule(shares, SIZES)
    counts = np.bincount(steps, minlength=3)
    expected = np.array([0.7 / 6, 0.3 / 3])
    np.testing.assert_allclose(counts[:2] / 4096, expected / expected.sum(), atol=2e-3)
    assert counts[2] == 1
    for part in steps.reshape(8, -1):
        np.testing.assert_allclose(np.bincount(part, minlength=2)[:2], counts[:2] / 8, atol=2)


def test_scheduled_shares_leave_room_for_long_examples():
    """More slots of long buckets than examples in a sample, hardly more where it is large."""
    small, large = choose_shares([80, 15, 5]), choose_shares([80_000, 15_000, 5_000])
    assert sum(small) == pytest.approx(1) == sum(large)
    assert small[2] > large[2] > 0.05
    assert small[1] + small[2] > large[1] + large[2] > 0.2
    np.testing.assert_allclose(large, [0.8, 0.15, 0.05], atol=0.01)


def _plan_by_hand(bucket: list[int], steps: list[int], first: int) -> list[list[int]]:
    """Finds as many of the steps as possible, trying one after the other with a search for each."""

    def fill(count: int) -> list[list[int]] | None:
        left = sorted(range(len(bucket)), key=lambda i: (-bucket[i], i))
        wanted = [steps[(first + i) % len(steps)] for i in range(count)]
        rows_of: dict[int, list[int]] = {}
        for step in sorted(range(count), key=lambda i: -wanted[i]):
            fitting = [i for i in left if bucket[i] <= wanted[step]][: SIZES[wanted[step]]]
            if len(fitting) < SIZES[wanted[step]]:
                return None
            left = [i for i in left if i not in fitting]
            rows_of[step] = fitting
        return [rows_of[step] for step in range(count)]

    count = 0
    while fill(count + 1) is not None:
        count += 1
    return fill(count)


@pytest.mark.parametrize("seed", range(6))
def test_scheduled_batches_against_a_search(seed):
    """As many steps as can be, each full, of examples that fit, the longest and oldest first."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet([1, 1, 1])
    steps = schedule(rng.dirichlet([1, 1, 1]), SIZES)
    bucket = rng.choice(3, 70, p=shares)
    batches = choose_batches(
        tf.constant(bucket, tf.int64), SIZES, steps, tf.constant(4090, tf.int64)
    )
    order, sizes = batches.order.numpy(), batches.sizes.numpy()
    parts = np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []
    by_hand = _plan_by_hand(bucket.tolist(), steps.tolist(), 4090)
    assert [sorted(rows) for rows in parts] == [sorted(rows) for rows in by_hand]
    assert batches.buckets.numpy().tolist() == [steps[(4090 + i) % 4096] for i in range(len(sizes))]
    assert sorted([*order, *batches.waiting.numpy()]) == list(range(70))


def test_newest_by_hand():
    """The last two examples of each bucket."""
    bucket = tf.constant([0, 1, 0, 0, 2, 1, 1], tf.int64)
    assert newest_of_each_bucket(bucket, 3, 2).numpy().tolist() == [2, 3, 4, 5, 6]
    assert newest_of_each_bucket(bucket, 3, tf.int32.max).numpy().tolist() == [*range(7)]
    assert newest_of_each_bucket(bucket[:0], 3, 2).numpy().tolist() == []
