"""QuickThought: shared and separate encoders, pairs and runs of sentences, against plain loops."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from experiments import registry
from official_cmlm.objectives.quick_thought import QuickThoughtConfig
from tests.inputs.pipelines import read_by_hand
from tests.modeling.helpers import build, make_pairs, output_of, randomize
from tests.objectives.helpers import embed, make_batch, make_task, random_model, refuses, value
from tests.oracles import cmlm_numpy as oracle
from tests.oracles.bert_numpy import log_sum_exp
from tests.oracles.contrastive_numpy import cosine, quick_thought_run
from tests.training.helpers import by_objective, data

# Logeswaran and Lee 2018, §3, with pairs in the place of runs.
PLAIN = {"margin": 0.0, "normalize": False, "logit_scale": 1.0, "bidirectional": False}
PROJECTED = {"sentence_vector": "projected_mean", "num_projections": 3}


def _task(folder, encoder=None, **settings):
    config = QuickThoughtConfig(**({"encoders": "separate"} | settings))
    return make_task(folder, "quick_thought", config, encoder)


def _experiment(name, **changes):
    """Returns the objective's settings of an experiment."""
    settings = registry.load(f"quick_thought/{name}").task.objectives.quick_thought.as_dict()
    return QuickThoughtConfig(**settings | {"train_data": None, "validation_data": None} | changes)


@pytest.fixture(scope="module")
def batch(records_dir):
    return make_batch(_task(records_dir))


def _context(model):
    return model.objectives["quick_thought"].context_encoder


@pytest.mark.parametrize(
    ("settings", "encoder"),
    [
        # `test_bitext_retrieval.py` has the other settings of a retrieval.
        ({}, {"pooling": "max"}),
        ({"encoders": "separate"}, {}),
        ({"encoders": "separate", **PLAIN}, PROJECTED),
    ],
)
def test_loss_and_recall_equal_the_reference(settings, encoder):
    """s1 goes through the exported encoder, s2 through it too or through the other one."""
    config = QuickThoughtConfig(**settings)
    model = build({"quick_thought": config}, **encoder)
    pairs = make_pairs(first=(5, 9, 3, 7, 2), second=(7, 4, 10, 2, 8), counts=[1] * 5)
    first, second = (embed(model, pairs[name]) for name in ("first", "second"))
    if config.encoders == "separate":
        shared, second = second, _context(model)(pairs["second"])["default"].numpy()
        assert not np.allclose(second, shared, atol=1e-2)
    output = model({"quick_thought": pairs})["quick_thought"]
    expected = oracle.additive_margin_softmax(
        first, second, config.margin, config.logit_scale, config.normalize, config.bidirectional
    )
    assert float(output.loss) == pytest.approx(expected, rel=1e-4)
    assert value(output, "retrieval_loss") == pytest.approx(expected, rel=1e-4)
    recall = oracle.recall_at_1(first, second, config.normalize)
    assert value(output, "recall_at_1") == pytest.approx(recall)


def test_no_sentence_is_a_negative_of_itself(records_dir):
    """As `english_base` trains, in batches with many pairs of each document."""
    config = _experiment("english_base")
    task = make_task(records_dir, "quick_thought", config)
    model, batch = random_model(task), make_batch(task, count=32)
    sides = [embed(model, batch[name]) for name in ("first", "second")]
    texts = [batch[name]["input_word_ids"].numpy().tolist() for name in ("first", "second")]
    total, met = 0.0, 0
    for anchors, candidates in ((0, 1), (1, 0)):
        for i in range(32):
            own = config.logit_scale * cosine(sides[anchors][i], sides[candidates][i])
            logits = [own]
            for j in range(32):
                same = texts[candidates][j] in (texts[anchors][i], texts[candidates][i])
                same = same or texts[anchors][j] == texts[anchors][i]
                met += texts[candidates][j] == texts[anchors][i]
                if not same:
                    similarity = cosine(sides[anchors][i], sides[candidates][j])
                    logits.append(config.logit_scale * similarity)
            total += log_sum_exp(logits) - own
    assert met > 10
    loss = model({"quick_thought": batch})["quick_thought"].loss
    assert float(loss) == pytest.approx(total / 32, rel=1e-4)


@pytest.fixture(scope="module")
def runs(records_dir):
    """Returns a task as published, but of 32 sentences a step, and its first epoch of batches."""
    config = _experiment("published")
    many = data(records_dir, global_batch_size=32)
    task = make_task(records_dir, "quick_thought", config, train_data=many)
    epoch = []
    for element in task.build_inputs(many):
        (batch,) = by_objective(element).values()
        epoch.append(batch)
        if len(batch["key"]) < 32:
            return task, epoch
    raise AssertionError("batches end with the epoch")


def _places(folder, batch):
    """Returns (record, place) of each sentence of a batch, from the records read by hand."""
    known = {
        tuple(sentence[:22]): (number, place)
        for number, (sentences, _) in enumerate(read_by_hand(folder))
        for place, sentence in enumerate(sentences)
    }
    rows, masks = (batch["segment"][name].numpy() for name in ("input_word_ids", "input_mask"))
    return [known[tuple(row[mask > 0][1:-1])] for row, mask in zip(rows, masks)]


def test_a_batch_is_a_run_of_sentences(records_dir, runs):
    """An epoch has each sentence of records of several once; each follows the one before it."""
    _, epoch = runs
    lengths = [len(sentences) for sentences, _ in read_by_hand(records_dir)]
    places = [place for batch in epoch for place in _places(records_dir, batch)]
    expected = [(n, p) for n, length in enumerate(lengths) if length > 1 for p in range(length)]
    assert sorted(places) == expected and places != expected
    for (record, place), following in itertools.pairwise(places):
        if place + 1 < lengths[record]:
            assert following == (record, place + 1)
        else:
            assert following[1] == 0


def test_loss_of_a_run_equals_the_reference(records_dir, runs):
    """Every sentence of the batch is a candidate, both neighbours are one target."""
    task, epoch = runs
    model, batch = random_model(task), epoch[0]
    first = embed(model, batch["segment"])
    second = _context(model)(batch["segment"])["default"].numpy()
    terms = quick_thought_run(first, second, _places(records_dir, batch))
    terms = [term for term in terms if term is not None]
    output = model({"quick_thought": batch})["quick_thought"]
    assert float(output.loss) == pytest.approx(np.mean(terms), rel=1e-4)
    assert float(output.metrics["recall_at_1"][1]) == len(terms)


@pytest.mark.parametrize("split", ["train_data", "validation_data"])
def test_runs_refuse_buckets(records_dir, split):
    """Neighbours of unlike length would be in different batches, and have no loss."""
    buckets = data(records_dir, split == "train_data", bucket_boundaries=[12, 24])
    task = functools.partial(
        make_task, records_dir, "quick_thought", _experiment("published"), **{split: buckets}
    )
    refuses(task, f"task.{split}.bucket_boundaries", "batches: runs", "bucket_boundaries: []")


def test_both_start_from_equal_weights(records_dir, batch):
    """After building, and after other weights have been put into the exported encoder."""
    task = _task(records_dir)
    model = task.build_model()
    # The encoder that a checkpoint names for others is f alone.
    assert model.checkpoint_items["encoder"] is model.encoder

    def pairs():
        return zip(_context(model).get_weights(), model.encoder.get_weights(), strict=True)

    assert not {id(w) for w in _context(model).weights} & {id(w) for w in model.encoder.weights}
    assert all(np.array_equal(one, other) for one, other in pairs())
    randomize(model.encoder, seed=4)
    assert not all(np.array_equal(one, other) for one, other in pairs())
    task.initialize(model)
    assert all(np.array_equal(one, other) for one, other in pairs())
    shared = random_model(_task(records_dir, encoders="shared"))
    # One encoder and nothing else.
    assert _context(shared) is None and len(shared.trainable_variables) == 37
    shared.encoder.set_weights(model.encoder.get_weights())
    losses = [float(m({"quick_thought": batch})["quick_thought"].loss) for m in (model, shared)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_second_encoder_has_dropout_in_training_alone(records_dir, batch):
    task = _task(records_dir, {"dropout_rate": 0.3, "attention_dropout_rate": 0.3})
    objective = random_model(task).objectives["quick_thought"]
    first = {"default": tf.constant(embed(random_model(task), batch["first"]))}

    def losses(training):
        encode = lambda inputs, name: first  # noqa: E731
        encode.training = training
        encode.stream = lambda name: None
        return [float(output_of(objective, batch, encode).loss) for _ in range(2)]

    trained, evaluated = losses(True), losses(False)
    assert trained[0] != trained[1]
    assert evaluated[0] == evaluated[1]
