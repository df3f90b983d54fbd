"""SentEval's classifier: PyTorch's numbers, a plain loop, the toolkit's order and stopping."""

import numpy as np
import pytest

from official_cmlm.evaluation.metrics import senteval_classifier
from official_cmlm.evaluation.metrics.senteval_classifier import (
    ClassifierConfig,
    Fold,
    fit,
    fit_folds,
)

# Weights after three steps on these gradients with weight decay 0.01, printed by torch 2.13.
GRADIENTS = [[0.5, -2.0, 0.0], [0.1, 3.0, 1e-4], [-0.7, 0.2, 1e-4]]
TORCH = {
    "adam": [0.99831951, -0.99946594, 0.24699830],
    "rmsprop": [0.95910949, -0.98843342, 0.06204605],
}


class RecordingRows:
    """Features that remember which of them were asked for."""

    def __init__(self, rows):
        self.rows, self.asked = rows, []

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.asked.append(np.asarray(index).tolist())
        return self.rows[index]


def _blobs(seed, count=400, classes=2, dim=3, spread=1.5):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    centres = np.random.default_rng(99).normal(size=[classes, dim]) * spread
    return (centres[labels] + rng.normal(size=[count, dim])).astype(np.float32), labels


@pytest.mark.parametrize("name", TORCH)
def test_optimizers_are_pytorchs(name):
    """Three steps end where PyTorch's end."""
    weights = np.array([1.0, -1.0, 0.25])
    first, second = np.zeros(3), np.zeros(3)
    for step, gradient in enumerate(GRADIENTS, start=1):
        update = getattr(senteval_classifier, name)
        update(weights, np.array(gradient) + 0.01 * weights, first, second, step)
    np.testing.assert_allclose(weights, TORCH[name], atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_against_a_loop_over_examples(optimizer):
    """Two evaluations' training equals loops over examples and classes, weight by weight."""
    rows, labels = _blobs(1, count=23, classes=3)
    config = ClassifierConfig(optimizer, batch_size=8, epoch_size=1, max_epoch=1)
    decay, seed = 0.02, 5
    (classifier,) = fit((rows, labels), (rows, labels), 3, config, [decay], seed)
    bound = 1 / np.sqrt(3)
    weights = np.random.default_rng(seed).uniform(-bound, bound, [4, 3])
    first, second = np.zeros([4, 3]), np.zeros([4, 3])
    order, step, best = np.random.RandomState(seed), 0, (-1.0, None)
    for _ in range(2):
        mixed = order.permutation(23)
        for start in range(0, 23, 8):
            batch, gradient = mixed[start : start + 8], decay * weights
            for i in batch:
                features = np.append(rows[i], 1.0)
                scores = np.exp(features @ weights)
                for c in range(3):
                    error = scores[c] / scores.sum() - (labels[i] == c)
                    gradient[:, c] += features * error / len(batch)
            step += 1
            getattr(senteval_classifier, optimizer)(weights, gradient, first, second, step)
        right = np.mean(np.argmax(rows @ weights[:3] + weights[3], axis=1) == labels)
        if right > best[0]:
            best = (right, weights.copy())
    assert classifier.dev_score == pytest.approx(best[0])
    np.testing.assert_allclose(classifier.weights, best[1], atol=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_folds_in_step_are_as_alone(optimizer):
    """Folds of other lengths, with other batches a pass, that end at other times, and decays."""
    rows, labels = _blobs(2, count=150)
    config = ClassifierConfig(optimizer, batch_size=16, tenacity=1, epoch_size=2)
    mixed = np.random.default_rng(0).permutation(150)
    sizes = (97, 96, 80, 120, 113, 47, 48)
    decays = ([1e-5, 1e-2, 0.5], [0.5, 1e-3, 0.0])
    folds = [
        Fold(mixed[:size], None if size == 96 else mixed[size : size + 29], decays[i % 2])
        for i, size in enumerate(sizes)
    ]
    ticks = []
    together = fit_folds(rows, labels, folds, 2, config, 7, ticks.append)
    assert sum(ticks) == len(together) == len(folds)
    for fold, classifiers in zip(folds, together):
        train = rows[fold.train], labels[fold.train]
        dev = None if fold.dev is None else (rows[fold.dev], labels[fold.dev])
        for decay, one in zip(fold.weight_decays, classifiers):
            (alone,) = fit(train, dev, 2, config, [decay], 7)
            assert one.dev_score == alone.dev_score
            np.testing.assert_allclose(one.weights, alone.weights, atol=1e-5)


def test_folds_do_not_depend_on_the_machine(monkeypatch):
    """One core or many: the same bits."""
    rows, labels = _blobs(2, count=150)
    folds = [
        Fold(np.delete(np.arange(150), part), part, [1e-5, 1e-2])
        for part in np.array_split(np.arange(150), 11)
    ]
    config = ClassifierConfig("rmsprop", batch_size=16, tenacity=1, epoch_size=1)
    runs = []
    for cores in (1, 5):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        runs.append(fit_folds(rows, labels, folds, 2, config, 3))
    for one, other in zip(*runs):
        assert all(np.array_equal(a.weights, b.weights) for a, b in zip(one, other))


def test_large_features_are_not_copied(monkeypatch):
    """Batches with ones appended one by one give the same weights."""
    train, dev = _blobs(2), _blobs(3)
    copied = fit(train, dev, 2, ClassifierConfig(), [1e-4], 1)[0]
    monkeypatch.setattr(senteval_classifier, "_COPIED_BYTES", 100)
    assert np.array_equal(
        fit(train, dev, 2, ClassifierConfig(), [1e-4], 1)[0].weights, copied.weights
    )


def test_order_of_examples_is_the_toolkits():
    """5 % of a seeded permutation are held out; then every pass is a new one of the same stream."""
    rows, labels = _blobs(4, count=100)
    recording = RecordingRows(rows)
    fit((recording, labels), None, 2, ClassifierConfig(batch_size=50, epoch_size=1), [0.0], 1111)
    stream = np.random.RandomState(1111)
    permutation = stream.permutation(100)
    assert recording.asked[0] == permutation[:5].tolist()
    # One more look at a single row finds the width.
    batches = recording.asked[2:6]
    for a, b in (batches[:2], batches[2:]):
        assert a + b == permutation[5:][stream.permutation(95)].tolist()


def test_stops_after_the_forgiven_evaluations():
    """A constant accuracy: one best, `tenacity` forgiven, one more, and it ends."""
    rows, labels = _blobs(5, count=40)
    dev = RecordingRows(np.zeros([4, 3], np.float32))
    config = ClassifierConfig(tenacity=3, epoch_size=2, batch_size=40)
    # All or none of the development set is right, so later evaluations may only equal the first.
    (classifier,) = fit((rows, labels), (dev, np.full(4, 2)), 3, config, [0.0], 1)
    assert classifier.dev_score == 0.0
    assert len(dev.asked) == 1 + 3 + 1


def test_stops_after_the_last_epoch():
    """No evaluation after the one that reaches beyond max_epoch."""
    rows, labels = _blobs(6, count=40)
    dev = RecordingRows(rows)
    config = ClassifierConfig(tenacity=10**6, epoch_size=4, max_epoch=11, batch_size=40)
    fit((rows, labels), (dev, labels), 2, config, [0.0], 1)
    assert len(dev.asked) == 3


def test_bad_values():
    """Each is named."""
    rows, labels = _blobs(1, count=10)
    with pytest.raises(ValueError, match="labels must be 0 to 1, got up to 2"):
        fit((rows, labels + 1), (rows, labels), 2, ClassifierConfig(), [0.0], 1)
    with pytest.raises(ValueError, match="at least 20 rows"):
        fit((rows, labels), None, 2, ClassifierConfig(), [0.0], 1)
