"""Every experiment starts from an imported checkpoint: sizes, weights, head and tokenizer."""

import json

import numpy as np
import pytest

from experiments import registry
from export import sentence_transformers_folder
from official_cmlm.checkpoints.encoder_directory import load_encoder
from official_cmlm.checkpoints.importing import import_checkpoint, read_source
from official_cmlm.checkpoints.source import ImportOptions
from official_cmlm.errors import UserError
from official_cmlm.modeling.variables import encoder_variables, head_variables
from official_cmlm.sentence_encoder import SentenceEncoder
from official_cmlm.training.run import run
from official_cmlm.training.task import SentenceEncoderTask
from tests.checkpoints.helpers import REFERENCES
from tests.conftest import make_documents, write_records

SOURCES = ["bert", "roberta", "distilbert"]
DATA = {"seq_length": 24, "segment": "sentence", "global_batch_size": 4, "bucket_boundaries": [24]}


@pytest.fixture(scope="module", params=SOURCES)
def imported(request, tmp_path_factory):
    """(name, encoder directory, records made with its vocabulary)."""
    folder = tmp_path_factory.mktemp(request.param)
    import_checkpoint(str(REFERENCES / request.param), str(folder / "in"), ImportOptions(), False)
    write_records(folder / "records", make_documents(30), load_encoder(folder / "in")[1])
    return request.param, folder / "in", folder / "records"


def _params(experiment, init_checkpoint, records, **task):
    """The published experiment, shortened."""
    values = {
        "task": {
            "train_data": DATA | {"input_path": str(records)},
            "validation_data": DATA | {"input_path": str(records)},
            **task,
        },
        "trainer": {
            "train_steps": 2,
            "steps_per_loop": 1,
            "checkpoint_interval": 2,
            "summary_interval": 2,
            "schedule": {"warmup_steps": 1},
        },
        "runtime": {"distribution_strategy": "one_device"},
    }
    return registry.load(experiment, None, json.dumps(values), str(init_checkpoint))


@pytest.mark.parametrize(
    "experiment", ["cmlm/english_base", "mlm/english_base", "quick_thought/english_base"]
)
def test_weights_and_head_are_the_sources(imported, experiment):
    """Sizes come from the checkpoint, what a sentence vector is from the experiment."""
    name, folder, records = imported
    task = SentenceEncoderTask(_params(experiment, folder, records).task)
    model = task.build_model()
    task.initialize(model)
    source = read_source(str(REFERENCES / name), ImportOptions())
    for ours, tensors in (
        (encoder_variables(model.encoder), source.encoder),
        (head_variables(model.head) if model.head else {}, source.head if model.head else {}),
    ):
        assert ours.keys() == tensors.keys()
        for key, tensor in tensors.items():
            np.testing.assert_array_equal(ours[key].numpy(), tensor, err_msg=key)
    assert (model.head is None) == experiment.startswith("quick_thought")
    assert model.encoder.config.layer_norm_epsilon == source.config.layer_norm_epsilon


@pytest.mark.parametrize(
    "imported",
    # The other two differ in more than sizes from what is trained from nothing.
    [pytest.param(name, marks=pytest.mark.long if name == "bert" else ()) for name in SOURCES],
    indirect=True,
)
def test_training_goes_on_and_out_again(imported, tmp_path):
    """Two steps of CMLM change the weights; the result encodes and is exported."""
    name, folder, records = imported
    run(_params("cmlm/english_base", folder, records), "train", str(tmp_path / "model"))
    before, after = SentenceEncoder.load(folder), SentenceEncoder.load(tmp_path / "model")
    assert after.vocabulary.hash == before.vocabulary.hash
    texts = ["The cat sat.", "a dog"]
    assert np.abs(before.encode(texts) - after.encode(texts)).max() > 1e-5
    types = encoder_variables(after.model)["type_embeddings/embeddings"].numpy()
    assert types.any() == (name != "distilbert")
    sentence_transformers_folder.export(
        str(tmp_path / "model"), str(tmp_path / "out"), True, None, False
    )
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == name


def test_pooling_stays_the_experiments(tmp_path):
    import_checkpoint(str(REFERENCES / "bert"), str(tmp_path / "in"), ImportOptions("max"), False)
    encoder = registry.load("cmlm/english_base", init_checkpoint=str(tmp_path / "in")).task.encoder
    assert encoder.pooling == "mean" and encoder.hidden_size == 16
    overrides = "task.encoder.pooling=cls,task.encoder.dropout_rate=0.3"
    encoder = registry.load(
        "cmlm/english_base", params_override=overrides, init_checkpoint=str(tmp_path / "in")
    ).task.encoder
    assert (encoder.pooling, encoder.dropout_rate) == ("cls", 0.3)


def test_records_of_another_vocabulary_are_refused(imported, records_dir):
    """Both hashes are named, and how to make the records."""
    _, folder, _ = imported
    task = SentenceEncoderTask(
        _params("mlm/english_base", folder, records_dir, encoder={"vocab_size": 0}).task
    )
    with pytest.raises(UserError, match="vocab") as caught:
        task.initialize(task.build_model())
    assert "\n" not in str(caught.value)


def test_without_the_flag_other_sizes_are_explained(imported):
    _, folder, records = imported
    params = _params("mlm/english_base", folder, records, encoder={"num_layers": 1})
    task = SentenceEncoderTask(params.task)
    with pytest.raises(UserError, match=r"num_layers 2 .here 1.*--init_checkpoint"):
        task.initialize(task.build_model())
