"""Hand-worked cases for the NumPy reference of CMLM."""

import math

import numpy as np
import pytest

from tests.oracles import cmlm_numpy as oracle


def _zero_layer(hidden, heads, feed_forward):
    """Makes a block whose sublayers output 0, leaving two layer norms of its input."""
    head_dim = hidden // heads
    shapes = {
        "output_kernel": (heads, head_dim, hidden),
        "intermediate_kernel": (hidden, feed_forward),
        "intermediate_bias": feed_forward,
        "ffn_output_kernel": (feed_forward, hidden),
        **dict.fromkeys(("output_bias", "ffn_output_bias"), hidden),
        **dict.fromkeys(("attention_norm_beta", "output_norm_beta"), hidden),
        **{f"{name}_kernel": (hidden, heads, head_dim) for name in ("query", "key", "value")},
        **{f"{name}_bias": (heads, head_dim) for name in ("query", "key", "value")},
    }
    gammas = {f"{name}_norm_gamma": np.ones(hidden) for name in ("attention", "output")}
    return gammas | {name: np.zeros(shape) for name, shape in shapes.items()}


def _zero_weights(vocabulary, hidden, heads, num_layers):
    return {
        "word_embeddings": np.zeros((vocabulary, hidden)),
        "position_embeddings": np.zeros((16, hidden)),
        "type_embeddings": np.zeros((2, hidden)),
        "embeddings_norm_gamma": np.ones(hidden),
        "embeddings_norm_beta": np.zeros(hidden),
        "layers": [_zero_layer(hidden, heads, 3) for _ in range(num_layers)],
    }


def _randomise(tree, generator):
    """Replaces every array of nested dicts, lists and tuples by one of normal samples."""
    if isinstance(tree, dict):
        return {name: _randomise(value, generator) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_randomise(value, generator) for value in tree]
    return generator.normal(size=tree.shape)


def _zero_projection(hidden):
    widths = [hidden, 2 * hidden, 2 * hidden, hidden]
    return [(np.zeros(shape), np.zeros(shape[1])) for shape in zip(widths, widths[1:])]


def _zero_head(vocabulary, hidden):
    return {
        "dense_kernel": np.zeros((hidden, hidden)),
        "dense_bias": np.zeros(hidden),
        "norm_gamma": np.ones(hidden),
        "norm_beta": np.zeros(hidden),
        "output_bias": np.zeros(vocabulary),
    }


def test_project():
    # FC(1, 2, ReLU), FC(2, 2, ReLU), FC(2, 1, None).
    network = [
        ([[1.0, -1.0]], [0.5, 0.0]),
        ([[2.0, -1.0], [0.0, 0.0]], [0.0, 9.0]),
        ([[-1.0], [1.0]], [-10.0]),
    ]
    # 3 -> (3.5, 0) -> (7, 5.5) -> -1.5 - 10
    np.testing.assert_allclose(oracle.project([3.0], [network]), [[3.0], [-11.5]])
    np.testing.assert_array_equal(oracle.project([3.0], []), [[3.0]])


def test_masked_lm_head_by_hand():
    head = _zero_head(2, 2)
    head["dense_kernel"][:] = [[0.0, 2.0], [0.0, 0.0]]
    head["output_bias"][:] = [0.0, math.log(2.0)]
    table = [[0.0, math.log(3.0)], [math.log(2.0), 0.0]]
    # Dense (0, 2), normalised to (-1, 1): logits log(3) and -log(2) + log(2), weights 3 and 1.
    log_probs = oracle.masked_lm_log_probs([1.0, 0.0], head, table)
    np.testing.assert_allclose(np.exp(log_probs), [0.75, 0.25], rtol=1e-10)


def test_masked_lm_loss_is_the_weighted_mean():
    log_probs = np.log([[0.5, 0.5], [0.25, 0.75], [0.1, 0.9]])
    loss = oracle.masked_lm_loss(list(log_probs), [0, 0, 1], [1.0, 2.0, 0.0])
    assert loss == pytest.approx((math.log(2.0) + 2.0 * math.log(4.0)) / 3.0)
    assert oracle.masked_lm_loss([], [], []) == 0.0


def test_cmlm_loss_of_an_uninformed_model_is_the_log_of_the_vocabulary():
    example = {
        "first_word_ids": [1, 2],
        "first_mask": [1, 0],
        "second_word_ids": [3, 4, 0],
        "second_mask": [1, 1, 0],
        "masked_lm_positions": [1, 0],
        "masked_lm_ids": [2, 0],
        "masked_lm_weights": [1.0, 0.0],
    }
    loss = oracle.cmlm_loss(
        [example, example],
        _zero_weights(5, 4, 2, 1),
        [_zero_projection(4)],
        _zero_head(5, 4),
        2,
        2,
        dense_positions=[3, 4],
    )
    assert loss == pytest.approx(math.log(5.0))


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_cmlm_loss_conditions_on_the_first_sentence(pooling):
    generator = np.random.default_rng(2)
    weights = _randomise(_zero_weights(7, 4, 2, 2), generator)
    projections = _randomise([_zero_projection(4)] * 2, generator)
    head = _randomise(_zero_head(7, 4), generator)

    def example(first, mask):
        return {
            "first_word_ids": first,
            "first_mask": mask,
            "second_word_ids": [1, 2, 3],
            "second_mask": [1, 1, 1],
            "masked_lm_positions": [1, 2],
            "masked_lm_ids": [6, 5],
            "masked_lm_weights": [1.0, 1.0],
        }

    def loss(batch, positions=(3, 4, 5)):
        return oracle.cmlm_loss(
            batch, weights, projections, head, 2, 3, dense_positions=positions, pooling=pooling
        )

    one = example([1, 4], [1, 1])
    other = example([6, 2], [1, 1])
    assert loss([one]) == loss([example([1, 4, 5], [1, 1, 0])])
    assert loss([one]) != pytest.approx(loss([other]))
    assert loss([one]) != pytest.approx(loss([one], (5, 4, 3)))
    # Equal numbers of predictions, hence the plain mean of the two.
    assert loss([one, other]) == pytest.approx((loss([one]) + loss([other])) / 2.0)
    assert loss([one, other], [[3, 4, 5]] * 2) == loss([one, other])


def test_additive_margin_softmax_by_hand():
    # phi = [[log 4, 0], [log 2, log 6]]; the margin log 2 turns e^phi into [[2, 1], [2, 3]].
    first = [[1.0, 0.0], [0.0, 1.0]]
    second = [[math.log(4.0), math.log(2.0)], [0.0, math.log(6.0)]]
    source = -(math.log(2.0 / 3.0) + math.log(3.0 / 5.0)) / 2.0
    target = -(math.log(2.0 / 4.0) + math.log(3.0 / 4.0)) / 2.0
    margin = math.log(2.0)
    one_way = oracle.additive_margin_softmax(first, second, margin, 1.0, False, False)
    both_ways = oracle.additive_margin_softmax(first, second, margin, 1.0, False, True)
    assert one_way == pytest.approx(source)
    assert both_ways == pytest.approx(source + target)


def test_additive_margin_softmax_margin_comes_before_the_scale():
    # Unit vectors along the axes: logits scale * (1 - margin) and 0.
    first = [[2.0, 0.0], [0.0, 5.0]]
    second = [[7.0, 0.0], [0.0, 0.1]]
    loss = oracle.additive_margin_softmax(first, second, 0.25, 4.0, True, False)
    assert loss == pytest.approx(math.log(1.0 + math.exp(-3.0)))
    both_ways = oracle.additive_margin_softmax(first, second, 0.25, 4.0, True, True)
    assert both_ways == pytest.approx(2.0 * math.log(1.0 + math.exp(-3.0)))
    single = oracle.additive_margin_softmax([[1.0]], [[1.0]], 0.3, 10.0, False, True)
    assert single == pytest.approx(0.0)


def test_recall_at_1():
    first = [[1.0, 0.0], [0.0, 1.0]]
    assert oracle.recall_at_1(first, [[1.0, 0.0], [0.0, 1.0]]) == 1.0
    assert oracle.recall_at_1(first, [[0.0, 1.0], [1.0, 0.0]]) == 0.0
    # Row 0 wins both by its length, and only one once the lengths are equal.
    second = [[9.0, 9.0], [0.0, 1.0]]
    assert oracle.recall_at_1(first, second) == 0.5
    assert oracle.recall_at_1(first, second, normalize=True) == 1.0
    # A tie goes to the lowest index.
    assert oracle.recall_at_1(first, [[1.0, 1.0], [1.0, 1.0]]) == 0.5


@pytest.mark.parametrize(
    ("num_candidates", "length", "rate", "maximum", "expected"),
    [
        (0, 2, 0.15, 20, 0),
        (1, 3, 0.15, 20, 1),
        (3, 5, 0.5, 20, 2),
        (5, 7, 0.5, 20, 4),
        (7, 9, 0.5, 20, 4),
        (254, 256, 0.3125, 80, 80),
        (254, 256, 0.3125, 100, 80),
        (254, 256, 100 / 256, 100, 100),
        (254, 256, 1.0, 300, 254),
        (98, 100, 0.5, 7, 7),
    ],
)
def test_bert_mask_counts(num_candidates, length, rate, maximum, expected):
    assert oracle.bert_mask_counts(num_candidates, length, rate, maximum) == expected


@pytest.mark.parametrize(
    ("lengths", "segments"),
    [
        ([], []),
        ([2, 3, 1, 4, 5], [[0, 1], [2, 3], [4]]),
        ([1, 9, 1, 1], [[0], [1], [2, 3]]),
        ([9, 9], [[0], [1]]),
        # Consecutive sentences only: the last one would fit into the first segment.
        ([3, 4, 2], [[0], [1], [2]]),
    ],
)
def test_greedy_pack(lengths, segments):
    assert oracle.greedy_pack(lengths, 5) == segments


@pytest.mark.parametrize(("items", "pairs"), [(0, []), (1, []), (4, [(0, 1), (1, 2), (2, 3)])])
def test_adjacent_pairs(items, pairs):
    assert oracle.adjacent_pairs(items) == pairs
