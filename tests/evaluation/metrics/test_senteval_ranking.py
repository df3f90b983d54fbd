"""Caption ranking: the loss in plain loops, its gradient, the toolkit's drawing and ranks."""

import numpy as np
import pytest

from official_cmlm.evaluation.metrics import senteval_ranking
from official_cmlm.evaluation.metrics.senteval_ranking import (
    RankingConfig,
    caption_ranks,
    gradients,
    image_ranks,
    rank_captions,
)

SMALL = RankingConfig(projection=8, batch_size=10, negatives=4, max_epoch=30)


def _data(count, seed, width=6, dim=5):
    """Draws images, and captions as a fixed linear map of their image with some noise."""
    images = np.random.default_rng(seed).normal(size=[count, width]).astype(np.float32)
    maps = np.random.default_rng(99).normal(size=[width, dim])
    noise = np.random.default_rng(seed + 1).normal(size=[5 * count, dim])
    return images, (np.repeat(images @ maps, 5, axis=0) + 0.1 * noise).astype(np.float32)


def _projections(width=6, dim=5):
    rng = np.random.default_rng(1)
    sides = [senteval_ranking._Projection(size, 7, rng) for size in (width, dim)]
    for side in sides:
        side.weights, side.bias = side.weights.astype(float), side.bias.astype(float)
    return sides


def _loss(images, captions, image_rows, caption_rows, pairs, margin):
    """Returns the sum of hinges, pair by pair and negative by negative."""

    def cosine(image, caption):
        a = image @ images.weights + images.bias
        b = caption @ captions.weights + captions.bias
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    negatives, total = (len(image_rows) - pairs) // pairs, 0.0
    for i in range(pairs):
        own = cosine(image_rows[i], caption_rows[i])
        for k in range(pairs + i * negatives, pairs + (i + 1) * negatives):
            total += max(0.0, margin - own + cosine(image_rows[i], caption_rows[k]))
            total += max(0.0, margin - own + cosine(image_rows[k], caption_rows[i]))
    return total


def test_loss_and_gradients():
    """Equal to loops over pairs, and to finite differences of these."""
    sides, rng = _projections(), np.random.default_rng(0)
    rows = rng.normal(size=[4 + 12, 6]), rng.normal(size=[4 + 12, 5])
    loss, by_side = gradients(*sides, *rows, 4, 0.25)
    assert loss == pytest.approx(_loss(*sides, *rows, 4, 0.25), rel=1e-9)
    for side, (by_weights, by_bias) in zip(sides, by_side):
        for parameter, gradient in ((side.weights, by_weights), (side.bias, by_bias)):
            for index in np.ndindex(parameter.shape):
                kept, values = parameter[index], []
                for step in (1e-6, -1e-6):
                    parameter[index] = kept + step
                    values.append(_loss(*sides, *rows, 4, 0.25))
                parameter[index] = kept
                slope = (values[0] - values[1]) / 2e-6
                assert gradient[index] == pytest.approx(slope, abs=1e-6)


def test_drawing_is_the_toolkits():
    """Negatives are numpy.random.choice of the list of pairs outside of the batch."""
    mixed = np.random.RandomState(3).permutation(50)
    theirs, ours = np.random.RandomState(7), np.random.RandomState(7)
    for start, count in ((0, 10), (20, 10), (45, 5)):
        others = list(mixed[:start]) + list(mixed[start + 10 :])
        expected = theirs.choice(others, 4 * count)
        drawing = senteval_ranking._others(ours, mixed, start, count, SMALL)
        assert drawing.tolist() == expected.tolist()


def _toolkit_ranks(similarities):
    """Ranks by a reversed ascending order, one query after the other."""
    by_image = []
    for i, row in enumerate(similarities):
        order = np.argsort(row, kind="stable")[::-1]
        by_image.append(min(np.where(order == c)[0][0] for c in range(5 * i, 5 * i + 5)))
    by_caption = [
        np.where(np.argsort(row, kind="stable")[::-1] == c // 5)[0][0]
        for c, row in enumerate(similarities.T)
    ]
    return by_image, by_caption


@pytest.mark.parametrize("ties", [False, True])
def test_ranks(ties):
    """As the toolkit counts them, also where many similarities are equal."""
    similarities = np.random.default_rng(0).normal(size=[6, 30])
    if ties:
        similarities = np.round(similarities)
    by_image, by_caption = _toolkit_ranks(similarities)
    assert caption_ranks(similarities).tolist() == by_image
    assert image_ranks(similarities).tolist() == by_caption


def test_equal_vectors_find_nothing():
    """An encoder that says the same of all, or no number, is no better than chance."""
    for value in (0.5, np.nan):
        similarities = np.full([40, 200], value)
        assert np.mean(caption_ranks(similarities) < 5) <= 5 / 40
        assert np.mean(image_ranks(similarities) < 5) <= 5 / 40


def test_recalls_are_means_over_folds():
    """1,000 images at a time: other folds do not compete, a sixth one is left out."""
    rng = np.random.default_rng(0)
    sides = [senteval_ranking._Projection(2, 2, rng) for _ in "ab"]
    for side in sides:
        side.weights, side.bias = np.eye(2, dtype=np.float32), np.zeros(2, np.float32)
    angles = np.linspace(0, 3, 1000)
    fold = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    images = np.tile(fold, (6, 1))
    captions = np.repeat(images, 5, axis=0)
    captions[5 * 4000 :] *= -1
    recalls = senteval_ranking.recalls(*sides, (images, captions))
    assert list(recalls) == [f"{of}_recall@{k}" for of in ("caption", "image") for k in (1, 5, 10)]
    assert all(value == pytest.approx(0.8, abs=0.02) for value in recalls.values())


def test_learns_and_repeats():
    """A linear map is found on unseen images; a seed fixes every bit; epochs are ticked."""
    parts, ticks = [_data(count, seed) for count, seed in ((120, 1), (30, 2), (30, 3))], []
    dev, test = rank_captions(*parts, 5, SMALL, ticks.append)
    assert test["image_recall@1"] > 0.8 and dev["caption_recall@1"] > 0.8
    assert 5 <= len(ticks) <= 31
    assert rank_captions(*parts, 5, SMALL) == (dev, test)
    assert rank_captions(*parts, 6, SMALL) != (dev, test)


def test_keeps_the_best_and_stops(monkeypatch):
    """The best epoch's weights rank the test set; three worse epochs are forgiven, no fourth."""
    parts = [_data(12, seed) for seed in (1, 2, 3)]
    sums, asked = iter([0.1, 0.3, 0.2, 0.3, 0.1, 0.2, 0.9]), []

    def fake(images, captions, part):
        asked.append((images.weights.copy(), part is parts[2]))
        return {"r": 0.7 if part is parts[2] else next(sums)}

    monkeypatch.setattr(senteval_ranking, "recalls", fake)
    assert rank_captions(*parts, 1, SMALL) == ({"r": 0.3}, {"r": 0.7})
    assert [test for _, test in asked] == [False] * 6 + [True]
    assert np.array_equal(asked[-1][0], asked[1][0])


def test_bad_parts():
    """Fewer pairs than a batch are refused."""
    good = _data(12, 1)
    with pytest.raises(ValueError, match="10 captions are no more than a batch"):
        rank_captions(_data(2, 1), good, good, 1, SMALL)
