"""Bitext retrieval against the reference."""

import pytest
import tensorflow as tf

from official_cmlm.objectives.bitext_retrieval import BitextRetrievalConfig
from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.training.task import SentenceEncoderTask
from tests.objectives.helpers import (
    embed,
    first_batch,
    make_task,
    random_model,
    refuses,
    value,
    words_of,
    words_with_gradient,
)
from tests.oracles import cmlm_numpy
from tests.oracles import contrastive_numpy as oracle
from tests.pairs_helpers import bitext, nli_rows, pair, triples, write_pairs
from tests.training.helpers import by_objective, data, task_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocabulary):
    """Returns 60 pairs of two languages."""
    path = tmp_path_factory.mktemp("bitext") / "records"
    write_pairs(path, bitext(60), vocabulary)
    return path


def _task(folder, encoder=None, train_data=None, **settings):
    own = {} if train_data is None else {"train_data": train_data}
    return make_task(folder, "bitext_retrieval", BitextRetrievalConfig(**settings), encoder, **own)


@pytest.fixture(scope="module")
def batch(folder):
    return first_batch(_task(folder))


def test_defaults_are_the_papers():
    """Margin 0.3 in both directions, on normalised vectors."""
    config = BitextRetrievalConfig()
    assert (config.margin, config.bidirectional, config.normalize) == (0.3, True, True)


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


def test_equal_sides_are_found(folder, batch):
    """Where every text is its own translation, each finds it."""
    model = random_model(_task(folder))
    same = {**batch, "second": batch["first"]}
    output = model({"bitext_retrieval": same})["bitext_retrieval"]
    assert value(output, "recall_at_1") == 1.0


def test_both_sides_are_trained(folder, batch):
    """Source and target are encoded by the one encoder, and the gradient passes through both."""
    model = random_model(_task(folder))
    assert model.head is None
    assert len(model.trainable_variables) == 37
    with tf.GradientTape() as tape:
        loss = model({"bitext_retrieval": batch})["bitext_retrieval"].loss
    moved = words_with_gradient(model, tape, loss)
    first, second = (words_of(batch[name]) for name in ("first", "second"))
    assert moved[first].all()
    assert moved[second].all()
    # Words of one side alone show that it is that side's own gradient.
    assert set(first) - set(second)
    assert set(second) - set(first)


@pytest.mark.long
def test_beside_cmlm(folder, records_dir):
    """§4.2: L_CMLM + α · L_br, each over records of its own kind."""
    own = {"train_data": data(folder), "validation_data": data(folder, is_training=False)}
    objectives = {
        "cmlm": CmlmConfig(num_projections=2),
        "bitext_retrieval": BitextRetrievalConfig(weight=0.2, **own),
    }
    task = SentenceEncoderTask(task_config(records_dir, objectives))
    features = next(iter(task.build_inputs(task.task_config.train_data)))
    assert set(by_objective(features)) == set(objectives)
    outputs = random_model(task)(features)
    losses = {name: float(output.loss) for name, output in outputs.items()}
    expected = losses["cmlm"] + 0.2 * losses["bitext_retrieval"]
    assert float(task.build_losses(features, outputs)) == pytest.approx(expected, rel=1e-6)


@pytest.fixture(scope="module")
def hard(tmp_path_factory, vocabulary):
    """Returns 60 pairs, two of three with a hard negative."""
    path = tmp_path_factory.mktemp("hard") / "records"
    write_pairs(path, triples(60), vocabulary)
    return path


@pytest.mark.parametrize("bidirectional", [False, True])
def test_hard_negatives_are_candidates_of_all(hard, bidirectional):
    """First → second has hard negatives, the other direction none; some rows lack one."""
    task = _task(hard, logit_scale=5.0, hard_negative_weight=1.0, bidirectional=bidirectional)
    batch, model = first_batch(task), random_model(task)
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


def test_hard_negatives_can_be_left_out(hard, folder):
    """The third text is then not read; pairs without one have no such features anyway."""
    task = _task(hard, hard_negatives=False)
    assert "negative" not in first_batch(task) and "negative" not in first_batch(_task(folder))
    for path, settings in ((folder, {}), (hard, {"hard_negatives": False})):
        refuses(
            lambda p=path, s=settings: _task(p, hard_negative_weight=1.0, **s),
            f"task.train_data.input_path={path}",
            "bitext_retrieval.hard_negative_weight",
        )


def test_documents_are_refused(records_dir):
    """Records of documents are refused; the message names both kinds and the folder."""
    refuses(lambda: _task(records_dir), records_dir, "documents", "pairs")


@pytest.mark.parametrize("languages", [["en", "de"], ["en"]])
def test_inferences_are_refused(vocabulary, tmp_path, languages):
    """Premise and hypothesis do not translate each other."""
    write_pairs(tmp_path / "nli", nli_rows(6, languages), vocabulary)
    fields = ("task.train_data.input_path", tmp_path / "nli", "NLI pairs", "entailment")
    refuses(lambda: _task(tmp_path / "nli"), *fields)
    rows = [(pair("a cat", "a dog", "en-de", "neutral"),)] * 6
    write_pairs(tmp_path / "two", rows, vocabulary)
    refuses(lambda: _task(tmp_path / "two"), tmp_path / "two", "NLI pairs", "neutral")


def test_pairs_of_one_language_are_refused(vocabulary, tmp_path):
    """Nothing to translate; unless other pairs, or only others, are read."""
    write_pairs(tmp_path / "one", bitext(6, "en-en"), vocabulary)
    refuses(lambda: _task(tmp_path / "one"), tmp_path / "one", "one language", "en-en")
    write_pairs(tmp_path / "mixed", bitext(6, "en-en") + bitext(6, "en-de"), vocabulary)
    _task(tmp_path / "mixed")
    _task(tmp_path / "one", one_language=True)
    read = {"train_data": data(tmp_path / "mixed", languages=["en-en"])}
    refuses(lambda: _task(tmp_path / "mixed", **read), tmp_path / "mixed", "one language")


def test_a_batch_of_one_is_refused(folder):
    """One pair has no other candidates."""
    task = _task(folder, train_data=data(folder, global_batch_size=1))
    refuses(lambda: task.check_batch_sizes(1), "task.train_data.global_batch_size", 1)
