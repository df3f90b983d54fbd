"""Graded similarity: the score of each record reaches its pair, and records without are refused."""

import numpy as np
import pytest

from official_cmlm.objectives.graded_similarity import CosentConfig, GradedSimilarityConfig
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import output_of
from tests.objectives.helpers import Spy, embed, make_batch, make_task, random_model, refuses


def _loss_and_cosines(folders, name, config):
    task = make_task(folders / "graded", name, config)
    model, batch = random_model(task), make_batch(task)
    first, second = (embed(model, batch[side]) for side in ("first", "second"))
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    loss = float(output_of(model.objectives[name], batch, Spy(model.encoder)).loss)
    return loss, (first * second).sum(axis=1) / lengths, batch["score"].numpy()


def test_cosines_are_brought_to_the_scores(folders):
    config = GradedSimilarityConfig()
    loss, cosines, scores = _loss_and_cosines(folders, "cosine_similarity", config)
    assert set(scores) <= {0, 0.25, 0.5, 0.75, 1} and len(set(scores)) > 1
    assert loss == pytest.approx(np.mean((cosines - scores) ** 2), rel=1e-4)


def test_pairs_of_a_batch_are_ordered_by_their_scores(folders):
    config = CosentConfig(logit_scale=3.0)
    loss, cosines, scores = _loss_and_cosines(folders, "cosent", config)
    terms = [
        np.exp(3.0 * (low - high))
        for high, of_high in zip(cosines, scores)
        for low, of_low in zip(cosines, scores)
        if of_high > of_low
    ]
    assert loss == pytest.approx(np.log1p(np.sum(terms)), rel=1e-4)


def test_pairs_without_scores_are_refused(folders):
    refuses(
        lambda: make_task(folders / "bitext", "cosent", CosentConfig()), "the pairs have no scores"
    )


def test_an_angle_needs_an_even_number_of_components():
    config = CosentConfig(similarity="angle")
    odd, even = (tiny_encoder_config(dense_size=size) for size in (7, 8))
    refuses(lambda: config.check(odd, "cosent"), "7 components")
    config.check(even, "cosent")
