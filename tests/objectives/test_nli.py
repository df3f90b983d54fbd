"""Natural language inference between languages against the reference."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.nli import NliConfig
from official_cmlm.records.pairs import NLI_LABELS
from tests.objectives.helpers import (
    embed,
    make_batch,
    make_task,
    random_model,
    refuses,
    value,
)
from tests.oracles import contrastive_numpy as oracle
from tests.pairs_helpers import bitext, nli_rows, pair, write_pairs
from tests.training.helpers import data


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocabulary):
    """Returns 30 labelled rows in three languages."""
    path = tmp_path_factory.mktemp("nli") / "records"
    write_pairs(path, nli_rows(30), vocabulary)
    return path


def _task(folder, encoder=None, **settings):
    return make_task(folder, "nli", NliConfig(**settings), encoder)


@pytest.fixture(scope="module")
def batch(folder):
    return make_batch(_task(folder))


@pytest.mark.parametrize(
    "encoder",
    [
        {},
        {"pooling": "max"},
        {"sentence_vector": "projected_mean", "num_projections": 3},
        {"normalize": True},
    ],
)
def test_loss_and_accuracy_equal_the_reference(folder, batch, encoder):
    """Cross-entropy of one linear layer on [u, v, |u − v|, u ∗ v] of the exported vectors."""
    model = random_model(_task(folder, encoder))
    output = model({"nli": batch})["nli"]
    kernel, bias = (weight.numpy() for weight in model.objectives["nli"].classifier.weights)
    assert kernel.shape == (64, 3)
    assert np.abs(bias).min() > 1e-3
    losses, hits = [], []
    labels = batch["label"].numpy()
    for u, v, label in zip(*(embed(model, batch[name]) for name in ("first", "second")), labels):
        logits = oracle.inference_logits(oracle.nli_features(u, v), kernel, bias)
        losses.append(oracle.cross_entropy(logits, label))
        hits.append(logits.argmax() == label)
    assert float(output.loss) == pytest.approx(np.mean(losses), rel=1e-4)
    assert value(output, "nli_loss") == pytest.approx(np.mean(losses), rel=1e-4)
    assert float(output.metrics["nli_loss"][1]) == 8.0
    assert value(output, "nli_accuracy") == pytest.approx(np.mean(hits))


def test_batch_has_labels_of_all_classes(batch):
    """The labels are those of the records, one an example."""
    assert set(batch) == {"key", "first", "second", "label"}
    assert batch["label"].dtype == tf.int32
    assert set(batch["label"].numpy()) == set(range(len(NLI_LABELS)))


def test_pairs_without_labels_are_refused(vocabulary, tmp_path):
    """Bitext has no labels; the folder and the field that names it are in the message."""
    write_pairs(tmp_path / "bitext", bitext(5), vocabulary)
    build = lambda: _task(tmp_path / "bitext", hypothesis_language="same")  # noqa: E731
    refuses(build, "task.train_data.input_path", tmp_path / "bitext", "labels")


def test_different_languages_need_translations(vocabulary, tmp_path):
    """One language a row cannot give a hypothesis in another; `same` can be had."""
    write_pairs(tmp_path / "nli", nli_rows(6, ["en"]), vocabulary)
    fields = ("task.train_data.input_path", tmp_path / "nli", "hypothesis_language", "en-en")
    refuses(lambda: _task(tmp_path / "nli"), *fields, "rows of one pair")
    _task(tmp_path / "nli", hypothesis_language="same")


def test_one_language_needs_pairs_of_one_language(vocabulary, tmp_path):
    """A premise and a hypothesis in two languages are `different` as they are, and not `same`."""
    rows = [(pair("a cat", "a dog", "en-de", NLI_LABELS[i % 3]),) for i in range(8)]
    write_pairs(tmp_path / "nli", rows, vocabulary)
    fields = ("task.train_data.input_path", tmp_path / "nli", "hypothesis_language", "en-de")
    refuses(lambda: _task(tmp_path / "nli", hypothesis_language="same"), *fields, "two languages")
    task = _task(tmp_path / "nli")
    task.check_inputs(True)


def test_only_languages_that_are_read_count(vocabulary, tmp_path):
    """`languages` chooses the pairs that fit from a mixed folder."""
    tags = ["en-en", "en-de", "zh-Hans-zh-Hans"]
    rows = [(labelled(tag, NLI_LABELS[i % 3]),) for i in range(6) for tag in tags]
    write_pairs(tmp_path / "nli", rows, vocabulary)
    folder = tmp_path / "nli"
    refuses(lambda: _task(folder), "en-en", "zh-Hans-zh-Hans", "hypothesis_language")
    refuses(lambda: _task(folder, hypothesis_language="same"), "en-de", "hypothesis_language")
    for setting, read in (("different", ["en-de"]), ("same", ["en-en", "zh-Hans-zh-Hans"])):
        chosen = {
            "train_data": data(folder, languages=read),
            "validation_data": data(folder, is_training=False, languages=read),
        }
        make_task(folder, "nli", NliConfig(hypothesis_language=setting), **chosen)


def labelled(tag, label):
    """Returns a pair whose languages may have hyphens."""
    from data_prep.readers.document import Pair

    parts = tag.split("-")
    middle = len(parts) // 2
    languages = ("-".join(parts[:middle]), "-".join(parts[middle:]))
    return Pair(("a cat", "a dog"), languages, label, "hand:1")


def test_documents_are_refused(records_dir):
    """Records of documents are refused; the message names both kinds and the folder."""
    refuses(lambda: _task(records_dir), records_dir, "documents", "pairs")
