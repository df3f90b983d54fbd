"""Settings that a task refuses before anything is built, in one line that names the field."""

import dataclasses

import pytest
import yaml

from experiments import registry
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.yaml_loading import override
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.objectives.mlm import MlmConfig
from official_cmlm.tokenization import load_vocabulary
from official_cmlm.training.config import (
    ObjectivesConfig,
    SentenceEncoderTaskConfig,
    get_objectives,
    objective_notes,
)
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import make_documents, tiny_encoder_config, write_records
from tests.objectives.helpers import refuses
from tests.training.helpers import data, task_config


def _task(folder, objectives, encoder=None, **overrides):
    return SentenceEncoderTask(task_config(folder, objectives, encoder, **overrides))


def test_unknown_objective_may_be_one_to_import():
    values = {"objectives": {"my_own": {}}}
    words = "f: unknown key objectives.my_own", "import_module takes the module of one of your own"
    refuses(lambda: override(SentenceEncoderTaskConfig(), values, "f"), *words)


@pytest.mark.parametrize(
    ("experiment", "stored", "changes"),
    [
        # An earlier release, which masked the first view alone, had no such field.
        ("diff_cse/tiny", {"detection": None}, "diff_cse.detection was 'masked', is 'reference'"),
        ("declutr/tiny", {"weight": 2.0}, "declutr.weight was 2.0, is 1.0"),
        ("declutr/tiny", {}, None),
    ],
)
def test_a_resumed_training_names_changed_objectives(experiment, stored, changes):
    """Compared with what an earlier run wrote into `params.yaml`."""
    now, before = registry.load(experiment).task.objectives, ObjectivesConfig()
    (name,) = get_objectives(now)
    values = yaml.safe_load(yaml.safe_dump(now.as_dict()))
    values[name].update(stored)
    kept = {key: value for key, value in values[name].items() if value is not None}
    override(before, {name: kept}, "params.yaml")
    lines = objective_notes(before, now)
    assert lines == ([f"task.objectives: {changes}"] if changes else [])


def test_a_resumed_training_names_added_and_removed_objectives():
    before, now = (ObjectivesConfig(**x) for x in (MLM, {"cmlm": CmlmConfig()}))
    assert objective_notes(before, now) == ["task.objectives: mlm was removed; cmlm was added"]


MLM = {"mlm": MlmConfig()}
POSITIONS = ("task.encoder.max_position_embeddings", 49, 48)


@pytest.mark.parametrize(
    ("objectives", "encoder", "settings", "parts"),
    [
        # The objectives that there are are listed.
        ({}, {}, {}, ("task.objectives", "cmlm", "mlm", "quick_thought")),
        # `projected_mean` exports the projection that CMLM trains.
        (
            {"cmlm": CmlmConfig(num_projections=3)},
            {"sentence_vector": "projected_mean", "num_projections": 4},
            {},
            ("task.objectives.cmlm.num_projections", "encoder.num_projections", 3, 4),
        ),
        # 24 tokens and 25 projections need 49 positions.
        ({"cmlm": CmlmConfig(num_projections=25)}, {}, {}, ("task.objectives.cmlm", *POSITIONS)),
        (MLM, {}, {"train_data": {"seq_length": 49}}, ("task.objectives.mlm", *POSITIONS)),
        (MLM, {}, {"validation_data": {"seq_length": 49}}, ("task.objectives.mlm", *POSITIONS)),
        (MLM, {"vocab_size": 77}, {}, ("task.encoder.vocab_size", 77)),
        (MLM, {}, {"train_data": {"segment": "word"}}, ("task.train_data.segment",)),
        (MLM, {}, {"train_data": {"input_path": "no/where"}}, ("no/where",)),
    ],
)
def test_invalid_settings_are_refused(records_dir, objectives, encoder, settings, parts):
    """Each is named with what it contradicts; the records of a split have these settings."""
    splits = {
        split: data(records_dir, split == "train_data").replace(**values)
        for split, values in settings.items()
    }
    refuses(lambda: _task(records_dir, objectives, encoder, **splits), *parts)


def test_settings_that_just_fit(records_dir, vocabulary):
    """24 tokens and 24 projections in 48 positions; the vocabulary's size, given or not."""
    task = _task(records_dir, {"cmlm": CmlmConfig(num_projections=24)})
    assert task.build_model().encoder.config.vocab_size == len(vocabulary)
    _task(records_dir, MLM, {"vocab_size": len(vocabulary)})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pooling", "sum"),
        ("sentence_vector", "both"),
        ("hidden_activation", "swish"),
        ("num_attention_heads", 3),
        ("hidden_size", 0),
        ("embedding_width", 16),
        ("num_layers", -1),
        ("dropout_rate", 1.0),
        ("attention_dropout_rate", -0.1),
        ("sentence_vector", "projected_mean"),
        ("num_projections", 3),
        ("num_projections", -3),
        ("remat", "all"),
    ],
)
def test_encoder_settings(records_dir, field, value):
    """Settings of the encoder that have no meaning or contradict each other."""
    overrides = {field: value}
    name = f"encoder.{field}"
    refuses(lambda: _task(records_dir, MLM, overrides), name)
    refuses(lambda: SentenceEncoderModel(tiny_encoder_config(**overrides)), name)


def test_unused_validation_data_is_not_checked(records_dir):
    """Its defaults do not matter without records; nor need its batch divide by the replicas."""
    unused = DataConfig(is_training=False, seq_length=24, global_batch_size=2048)
    train = data(records_dir, global_batch_size=6)
    task = _task(records_dir, MLM, train_data=train, validation_data=unused)
    task.check_batch_sizes(3)


@pytest.fixture(scope="module")
def other(vocabulary, tmp_path_factory):
    """Records of another vocabulary: folder and vocabulary."""
    words = dataclasses.replace(vocabulary, tokens=(*vocabulary.tokens, "more"))
    folder = tmp_path_factory.mktemp("other") / "records"
    write_records(folder, make_documents(3), words)
    return folder, words


def test_records_of_another_vocabulary(records_dir, vocabulary, other):
    """Records, training's or validation's, made with another vocabulary name both hashes."""
    folder, words = other
    hashes = (vocabulary.hash, words.hash)
    own = {"cmlm": CmlmConfig(num_projections=3), "mlm": MlmConfig(train_data=data(folder))}
    # Without `vocab_file`, the first folder that is read decides.
    refuses(lambda: _task(records_dir, own), *hashes)
    validation = data(folder, is_training=False)
    build = lambda: _task(records_dir, MLM, validation_data=validation)  # noqa: E731
    refuses(build, folder, *hashes)


def test_vocabulary_file_of_other_records(records_dir, vocabulary, other):
    """`vocab_file` is what the records must have been made with."""
    path, words = other[0] / "vocab.txt", other[1]
    assert load_vocabulary(path).hash == words.hash
    build = lambda: _task(records_dir, MLM, vocab_file=str(path))  # noqa: E731
    refuses(build, records_dir, vocabulary.hash, words.hash)


def test_own_records_are_named_where_they_are_set(records_dir):
    """A mistake in an objective's own data is not blamed on the task's."""
    own = {"mlm": MlmConfig(train_data=data(records_dir, segment="word"))}
    refuses(lambda: _task(records_dir, own), "task.objectives.mlm.train_data.segment")
    own = {"mlm": MlmConfig(train_data=data(records_dir, global_batch_size=6))}
    field = "task.objectives.mlm.train_data.global_batch_size"
    refuses(lambda: _task(records_dir, own).check_batch_sizes(4), field, 6, 4)
