"""Every experiment of the papers builds, and takes steps, at a reduced size."""

import functools

import numpy as np
import pytest
import yaml

from experiments import registry
from official_cmlm.objectives.in_batch import InBatchConfig
from official_cmlm.training.config import get_objectives
from tests.training.all_objectives import TEACHER_SIZE, records_of
from tests.training.helpers import optimizer_config

SIZES = {
    "num_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 0,
}
SEQ_LENGTH = 24


BY_STS = {
    "best_checkpoint_export_subdir": "best",
    "best_checkpoint_eval_metric": "sts_spearman",
    "best_checkpoint_metric_comp": "higher",
}


@functools.cache
def load(name):
    """Returns an experiment as its file says, locked."""
    return registry.load(name)


def _reduce(name, folders):
    """Returns the experiment with a tiny encoder and tiny batches of the records that it reads."""
    config = load(name)
    positions = SEQ_LENGTH + 22 + config.task.encoder.position_offset
    task = {"init_checkpoint": "", "objectives": {}}
    task["encoder"] = {**SIZES, "max_position_embeddings": positions}
    if config.task.encoder.padded_length:
        task["encoder"]["padded_length"] = SEQ_LENGTH
    data = {"seq_length": SEQ_LENGTH, "global_batch_size": 4, "bucket_boundaries": []}
    data |= {"max_bucket_batch_size": 4, "segment": "sentence"}
    for objective in get_objectives(config.task.objectives):
        values = {}
        if objective == "declutr":
            values |= {"min_span_length": 4, "max_span_length": SEQ_LENGTH}
            values |= {"min_document_tokens": 0}
        if objective in ("cmlm_cse", "diff_cse"):
            values |= {"lexical_layers": 1}
        if objective == "diff_cse":
            # The published one has another vocabulary.
            values |= {"generator": ""}
        if objective in ("distillation", "pair_distillation"):
            values |= {"teacher_size": TEACHER_SIZE}
        path = records_of(folders, objective)
        # Spans of characters are masked in the text itself.
        path = folders / "with_text" if path.name == "documents" else path
        for split in ("train_data", "validation_data"):
            values[split] = {**data, "input_path": str(path)}
        task["objectives"][objective] = values
    return registry.load(name, params_override=yaml.safe_dump({"task": task}))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if "/ablation/" in name else ())
        for name in registry.experiment_files()
    ],
)
def test_an_experiment_can_be_built(name, folders):
    """The file is valid and locked, and all is built that the first step needs.

    The best checkpoint is not the worst, by the file's metric and by STS as its comments say. Where
    examples of a batch are compared, batches are random.
    """
    from official_cmlm.training.checks import check_best_metric, check_trainer
    from official_cmlm.training.task import SentenceEncoderTask

    config = load(name)
    config.task.check()
    for objective in get_objectives(config.task.objectives).values():
        for is_training in (True, False):
            data = config.task.data_of(objective, is_training)
            compares = isinstance(objective, InBatchConfig)
            assert not (compares and data.bucket_boundaries), objective
    check_trainer(config)
    check_best_metric(config)
    assert config.trainer.optimizer_config.optimizer.type in ("lamb", "adamw")
    with pytest.raises(ValueError, match="locked"):
        config.task = config.task
    config = _reduce(name, folders)
    task = SentenceEncoderTask(config.task)
    task.check_batch_sizes(1)
    assert task.create_optimizer(config.trainer.optimization()) is not None
    task = config.task.replace(sts_file="sts-dev.csv")
    check_best_metric(config.replace(task=task, trainer=config.trainer.replace(**BY_STS)))


@pytest.mark.long
@pytest.mark.parametrize("name", registry.experiment_files())
def test_an_experiment_takes_steps(name, folders):
    """Its objectives train together, and their weights move."""
    from official_cmlm.training.task import SentenceEncoderTask

    config = _reduce(name, folders)
    task = SentenceEncoderTask(config.task)
    model = task.build_model()
    task.initialize(model)
    optimizer = task.create_optimizer(optimizer_config("sgd", 0.1))
    metrics = task.build_metrics()
    before = [v.numpy() for v in model.trainable_variables]
    batches = iter(task.build_inputs(config.task.train_data))
    losses = [
        float(task.train_step(next(batches), model, optimizer, metrics)["loss"]) for _ in range(2)
    ]
    assert np.isfinite(losses).all() and min(losses) > 0
    moved = [not np.array_equal(a, b.numpy()) for a, b in zip(before, model.trainable_variables)]
    assert np.mean(moved) > 0.5


def test_mirror_bert_does_not_clip_gradients():
    """The reference code does not; SimCSE's, whose file these take over, does."""
    names = [name for name in registry.experiment_files() if name.startswith("mirror_bert/")]
    norms = {
        name: load(name).trainer.optimizer_config.optimizer.get().gradient_clip_norm
        for name in [*names, "simcse/bert_base"]
    }
    assert norms.pop("simcse/bert_base") == 1.0
    assert set(norms.values()) == {0.0}


def _flatten(values, prefix=""):
    for key, value in values.items():
        nested = isinstance(value, dict)
        yield from _flatten(value, f"{prefix}{key}.") if nested else [(prefix + key, value)]


def test_an_ablation_differs_from_its_base_in_the_fields_of_its_file_alone():
    names = {path: name for name, path in registry.experiment_files().items()}
    arms = [name for name in names.values() if "/ablation/" in name]
    assert len(arms) > 60
    for name in arms:
        *_, (_, base), (values, _) = registry.read_files(name)
        arm, before = (dict(_flatten(load(arm).as_dict())) for arm in (name, names[base]))
        changed = {key for key, value in arm.items() if value != before.get(key)}
        assert changed and changed <= dict(_flatten(values)).keys(), name
