"""SentEval's ranking of captions and images: two linear projections into one space.

The toolkit (`tools/ranking.py`) trains them in PyTorch by a hinge loss: the cosine of an image and
its caption is to exceed by a margin those with 30 other captions, and with 30 other images, drawn
at random for each pair. This is the same in NumPy: the toolkit's order and drawing (NumPy's legacy
generator), Adam, and early stopping on the development set; only the initial weights come from
another generator.
"""

import copy
import dataclasses
from collections.abc import Callable

import numpy as np

from official_cmlm.evaluation.metrics.senteval_classifier import adam

# Captions of an image, images ranked at a time (a fold), and folds that the toolkit averages.
CAPTIONS = 5
FOLD = 1000
FOLDS = 5
RANKS = (1, 5, 10)
_TENACITY = 3

Part = tuple[np.ndarray, np.ndarray]
"""Images, float32 `[n, width]`, and captions, `[5 n, dim]`; those of image i are 5 i to 5 i + 4."""


@dataclasses.dataclass(frozen=True)
class RankingConfig:
    """Settings of the projections' training; the defaults are the toolkit's.

    Attributes:
      projection: dimension of the common space.
      margin: of the hinge loss, in cosine.
      batch_size: pairs of image and caption per step.
      negatives: number of other captions, and of other images, for each pair.
      max_epoch: training ends with the first epoch after this number.
    """

    projection: int = 1000
    margin: float = 0.2
    batch_size: int = 128
    negatives: int = 30
    max_epoch: int = 20


Recalls = dict[str, float]
"""`caption_recall@k` (captions found by an image) and `image_recall@k`, shares from 0 to 1."""


def rank_captions(
    train: Part,
    dev: Part,
    test: Part,
    seed: int,
    config: RankingConfig = RankingConfig(),
    tick: Callable[[int], None] = lambda done: None,
) -> tuple[Recalls, Recalls]:
    """Trains the projections and ranks the development and the test set.

    `seed` determines the initial weights, the order of pairs and the negatives drawn; `tick` is
    called with 1 after each epoch, of which there are at most `config.max_epoch + 1`.

    Returns:
      Recalls on `dev`, whose sum stops the training, and on `test`.

    Raises:
      ValueError: if all pairs fit into a batch.
    """
    images, captions = train
    # The toolkit's last batch, too, must leave pairs to draw from.
    if len(captions) <= config.batch_size:
        raise ValueError(f"{len(captions)} captions are no more than a batch")
    rng = np.random.default_rng(seed)
    sides = [_Projection(part.shape[1], config.projection, rng) for part in train]
    order = np.random.RandomState(seed)
    best, best_sum, waited = None, -1.0, 0
    for _ in range(config.max_epoch + 1):
        mixed = order.permutation(len(captions))
        for start in range(0, len(mixed), config.batch_size):
            batch = mixed[start : start + config.batch_size]
            others = [_others(order, mixed, start, len(batch), config) for _ in sides]
            rows = (
                np.concatenate([batch, others[0]]) // CAPTIONS,
                np.concatenate([batch, others[1]]),
            )
            features = images[rows[0]], captions[rows[1]]
            _, by_side = gradients(*sides, *features, len(batch), config.margin)
            for side, gradient in zip(sides, by_side):
                side.update(*gradient)
        tick(1)
        dev_recalls = recalls(*sides, dev)
        if sum(dev_recalls.values()) > best_sum:
            best_sum = sum(dev_recalls.values())
            best = dev_recalls, copy.deepcopy(sides)
        elif waited >= _TENACITY:
            break
        else:
            waited += 1
    return best[0], recalls(*best[1], test)


def _others(
    order: np.random.RandomState, mixed: np.ndarray, start: int, count: int, config: RankingConfig
) -> np.ndarray:
    """Draws negatives for a batch from all pairs outside of it: `[count * negatives]`."""
    drawn = order.randint(0, len(mixed) - count, count * config.negatives)
    return mixed[np.where(drawn < start, drawn, drawn + count)]


class _Projection:
    """A linear layer and the state of its optimizer."""

    def __init__(self, width: int, size: int, rng: np.random.Generator) -> None:
        bound = 1.0 / np.sqrt(width)
        self.weights = rng.uniform(-bound, bound, [width, size]).astype(np.float32)
        self.bias = rng.uniform(-bound, bound, size).astype(np.float32)
        self._moments = [np.zeros_like(part) for part in (self.weights, self.bias) for _ in "12"]
        self._steps = 0

    def project(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns unit projections, `[n, projection]`, and their lengths before, `[n, 1]`."""
        projected = rows @ self.weights
        projected += self.bias
        lengths = np.sqrt(np.einsum("ij,ij->i", projected, projected))[:, np.newaxis]
        # The toolkit divides by the length even if it is 0, which is so for one point at most.
        np.maximum(lengths, np.float32(1e-12), out=lengths)
        projected /= lengths
        return projected, lengths

    def update(self, gradient: np.ndarray, bias_gradient: np.ndarray) -> None:
        """Takes a step of Adam; the gradients are overwritten."""
        self._steps += 1
        adam(self.weights, gradient, *self._moments[:2], self._steps)
        adam(self.bias, bias_gradient, *self._moments[2:], self._steps)


def gradients(
    images: _Projection,
    captions: _Projection,
    image_rows: np.ndarray,
    caption_rows: np.ndarray,
    pairs: int,
    margin: float,
) -> tuple[float, list[tuple[np.ndarray, np.ndarray]]]:
    """Returns the hinge loss of a batch, and its gradients.

    The rows are features of the `pairs` images or captions, then of the negatives of the first
    pair, of the second and so on.

    Returns:
      The loss, summed over pairs and negatives, and for each projection the gradients of weights
      and bias.
    """
    sides = []
    for projection, rows in ((images, image_rows), (captions, caption_rows)):
        projected, lengths = projection.project(rows)
        sides.append((rows, projected, lengths))
    anchors = [projected[:pairs] for _, projected, _ in sides]
    cosines = np.einsum("ij,ij->i", *anchors)[:, np.newaxis]
    loss, hits, by_side = 0.0, 0, []
    pulls = [np.zeros_like(anchor) for anchor in anchors]
    violating = []
    for side, (_, projected, _) in enumerate(sides):
        # Negative images are compared with the pair's caption, negative captions with its image.
        negatives = projected[pairs:].reshape(pairs, -1, projected.shape[1])
        other = anchors[1 - side]
        costs = (negatives @ other[..., np.newaxis])[..., 0] - cosines + np.float32(margin)
        active = costs > 0
        loss += float(costs[active].sum(dtype=np.float64))
        hits = hits + active.sum(axis=1, keepdims=True).astype(np.float32)
        pulls[1 - side] += (active[:, np.newaxis].astype(np.float32) @ negatives)[:, 0]
        violating.append(np.nonzero(active))
    for side, (rows, projected, lengths) in enumerate(sides):
        other = anchors[1 - side]
        pulls[side] -= hits * other
        # Only negatives that cost something have a gradient.
        pair, number = violating[side]
        apart = pairs + pair * ((len(rows) - pairs) // pairs) + number
        chosen = np.concatenate([np.arange(pairs), apart])
        slopes = np.concatenate([pulls[side], other[pair]])
        directions = projected[chosen]
        slopes -= np.einsum("ij,ij->i", slopes, directions)[:, np.newaxis] * directions
        slopes /= lengths[chosen]
        by_side.append((rows[chosen].T @ slopes, slopes.sum(axis=0)))
    return loss, by_side


def recalls(images: _Projection, captions: _Projection, part: Part) -> Recalls:
    """Computes recalls of a part: the mean over at most five folds of 1,000 images."""
    image_rows, caption_rows = part
    by_name: dict[str, list[float]] = {}
    for start in range(0, min(len(image_rows), FOLDS * FOLD), FOLD):
        chosen = image_rows[start : start + FOLD]
        mine = caption_rows[CAPTIONS * start : CAPTIONS * (start + len(chosen))]
        similarities = images.project(chosen)[0] @ captions.project(mine)[0].T
        for name, ranks in (
            ("caption", caption_ranks(similarities)),
            ("image", image_ranks(similarities)),
        ):
            for k in RANKS:
                by_name.setdefault(f"{name}_recall@{k}", []).append(float(np.mean(ranks < k)))
    return {name: float(np.mean(values)) for name, values in by_name.items()}


def caption_ranks(similarities: np.ndarray) -> np.ndarray:
    """Returns for each image the best rank of its captions among all, from 0: int `[n]`.

    Args:
      similarities: `[n, 5 n]`, higher is nearer. Of equal values the last comes first, as the
        toolkit reverses an ascending order; NaN comes before all other values.
    """
    own = CAPTIONS * np.arange(len(similarities))
    return np.min([_ranks(similarities, own + i) for i in range(CAPTIONS)], axis=0)


def image_ranks(similarities: np.ndarray) -> np.ndarray:
    """Returns for each caption its image's rank, from 0: int `[5 n]`; see `caption_ranks`."""
    return _ranks(similarities.T, np.arange(similarities.shape[1]) // CAPTIONS)


def _ranks(similarities: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Returns for each row the rank of its column `own`, from 0 for the highest."""
    own_values = np.take_along_axis(similarities, own[:, np.newaxis], axis=1)
    before = ~(similarities <= own_values)
    before |= (similarities == own_values) & (np.arange(similarities.shape[1]) > own[:, np.newaxis])
    # If the own value is NaN, all values count as before it, itself included.
    return np.minimum(before.sum(axis=1), similarities.shape[1] - 1)
