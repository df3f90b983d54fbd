"""Bitext retrieval against the reference."""

import pytest

from official_cmlm.objectives.bitext_retrieval import BitextRetrievalConfig
from tests.objectives.helpers import embed, make_batch, make_task, random_model, refuses, value
from tests.oracles import cmlm_numpy
from tests.oracles import contrastive_numpy as oracle
from tests.pairs_helpers import bitext, write_pairs


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocabulary):
    """Returns 60 pairs of two languages."""
    path = tmp_path_factory.mktemp("bitext") / "records"
    write_pairs(path, bitext(60), vocabulary)
    return path


def _task(folder, encoder=None, **settings):
    return make_task(folder, "bitext_retrieval", BitextRetrievalConfig(**settings), encoder)


@pytest.fixture(scope="module")
def batch(folder):
    return make_batch(_task(folder))


@pytest.mark.parametrize(
    ("settings", "encoder"),
    [
        ({}, {}),
        ({"margin": 0.0, "logit_scale": 1.0}, {}),
        ({"logit_scale": 1.0, "normalize": False}, {}),
        ({"bidirectional": False, "logit_scale": 10.0}, {}),
        ({"logit_scale": 10.0}, {"pooling": "max"}),
        ({}, {"sentence_vector": "projected_mean", "num_projections": 3}),
    ],
)
def test_loss_and_recall_equal_the_reference(folder, batch, settings, encoder):
    """The loss of the exported vectors, and how often the translation is the nearest."""
    task = _task(folder, encoder, **settings)
    model, config = random_model(task), task.chosen["bitext_retrieval"]
    first, second = (embed(model, batch[name]) for name in ("first", "second"))
    output = model({"bitext_retrieval": batch})["bitext_retrieval"]
    expected = oracle.additive_margin_softmax(
        first, second, config.margin, config.logit_scale, config.normalize, config.bidirectional
    )
    assert float(output.loss) == pytest.approx(expected, rel=1e-4)
    assert value(output, "retrieval_loss") == pytest.approx(expected, rel=1e-4)
    assert float(output.metrics["retrieval_loss"][1]) == 8.0
    recall = cmlm_numpy.recall_at_1(first, second, config.normalize)
    assert value(output, "recall_at_1") == pytest.approx(recall)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_hard_negatives_are_candidates_of_all(folders, bidirectional):
    """First → second has hard negatives, the other direction none; some rows lack one."""
    settings = {"hard_negative_weight": 1.0, "bidirectional": bidirectional}
    task = _task(folders / "bitext", logit_scale=5.0, **settings)
    batch, model = make_batch(task), random_model(task)
    there = batch["has_negative"].numpy()
    assert 0 < there.sum() < len(there)
    first, second, third = (embed(model, batch[name]) for name in ("first", "second", "negative"))
    negatives = [vector if one else None for vector, one in zip(third, there)]
    losses = oracle.with_hard_negatives(first, second, negatives, 5.0, 0.3, 1.0)
    expected = sum(losses) / len(losses)
    if bidirectional:
        expected += oracle.additive_margin_softmax(second, first, 0.3, 5.0, True, False)
    output = model({"bitext_retrieval": batch})["bitext_retrieval"]
    assert float(output.loss) == pytest.approx(expected, rel=1e-4)


def test_hard_negatives_can_be_left_out(folders, folder):
    """The third text is then not read; pairs without one have no such features anyway."""
    hard = folders / "bitext"
    task = _task(hard, hard_negatives=False)
    assert "negative" not in make_batch(task) and "negative" not in make_batch(_task(folder))
    for path, settings in ((folder, {}), (hard, {"hard_negatives": False})):
        refuses(
            lambda p=path, s=settings: _task(p, hard_negative_weight=1.0, **s),
            f"task.train_data.input_path={path}",
            "bitext_retrieval.hard_negative_weight",
        )
