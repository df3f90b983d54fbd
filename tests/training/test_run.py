"""Runs of the trainer itself: files, resume, seeds, refusals."""

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from experiments import registry
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.training import progress as progress_module
from official_cmlm.training import trainer as trainer_module
from official_cmlm.training.checks import check_trainer, checkpoint_notes
from official_cmlm.training.progress import TrainingProgress, read_history
from official_cmlm.training.run import describe_run, run
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import change_json, make_documents, write_records
from tests.pairs_helpers import PROMPTS, write_prompted_encoder
from tests.training.quick_runs import quick_runs
from tests.training.tiny_training import TINY, tiny_run


def weights_of(checkpoint, *prefixes):
    """Names of the weights below any of the prefixes, optimizer slots left out."""
    names = checkpoint.get_variable_to_shape_map()
    return [n for n in names if n.startswith(prefixes) and "OPTIMIZER_SLOT" not in n]


def test_the_model_directory_is_an_encoder_directory(trained, vocabulary):
    assert (trained / "params.yaml").exists() and (trained / "ckpt-2.index").exists()
    encoder = SentenceEncoder.load(trained)
    # One of each step, and the best after the first; the last step is not saved twice.
    counter = "save_counter/.ATTRIBUTES/VARIABLE_VALUE"
    assert tf.train.load_variable(str(trained / "ckpt-2"), counter) == 3
    assert encoder.vocabulary == vocabulary
    assert encoder.encode(["a cat sat"]).shape == (1, 16)
    # No text is encoded at positions beyond the training's longest sequence.
    assert encoder.max_seq_length == 32


def test_history_has_every_loop_and_every_metric(trained):
    lines = [json.loads(line) for line in (trained / "history.jsonl").read_text().splitlines()]
    assert [(line["split"], line["step"]) for line in lines] == [
        (split, step) for step in (1, 2) for split in ("train", "validation")
    ]
    for line in lines:
        assert {"cmlm/masked_token_accuracy", "quick_thought/recall_at_1"} <= set(line)
        assert all(np.isfinite(v) for v in line.values() if isinstance(v, float))


def test_init_checkpoint_starts_from_the_encoder_and_the_head(trained, records_dir, tmp_path):
    """A step with learning rate 0 leaves exactly what was loaded."""
    params = tiny_run(records_dir, steps=1, only="cmlm")
    params = params.replace(task={"init_checkpoint": str(trained)})
    zero = {"learning_rate": {"type": "constant", "constant": {"learning_rate": 0.0}}}
    params.trainer.override({"schedule": None, "optimizer_config": zero})
    with quick_runs():
        run(params, "train", str(tmp_path / "model"))
    first = tf.train.load_checkpoint(str(trained / "ckpt-2"))
    second = tf.train.load_checkpoint(str(tmp_path / "model" / "ckpt-1"))
    names = weights_of(first, "encoder/", "language_model_head/")
    assert len(names) > 20
    for name in names:
        np.testing.assert_array_equal(first.get_tensor(name), second.get_tensor(name), name)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"encoder": {"num_layers": 2}}, "another architecture: num_layers 1 .here 2."),
        ({"encoder": {"pooling": "max"}}, "pooling 'mean' .here 'max'."),
        pytest.param(
            {"objectives": {"cmlm": {"num_projections": 4}}},
            "does not fit this experiment",
            marks=pytest.mark.long,
        ),
    ],
)
def test_another_model_on_resume(trained, records_dir, task, message):
    """A training goes on with the modules and the sentence vector that it began with."""
    before = (trained / "params.yaml").read_text()
    with pytest.raises(UserError, match=message):
        run(tiny_run(records_dir, steps=6).replace(task=task), "train", str(trained))
    assert (trained / "params.yaml").read_text() == before


@pytest.mark.usefixtures("unchecked")
def test_init_checkpoint_of_another_architecture(trained, records_dir, tmp_path):
    task = {"init_checkpoint": str(trained), "encoder": {"hidden_size": 32}}
    params = tiny_run(records_dir).replace(task=task)
    with pytest.raises(UserError, match="init_checkpoint .* hidden_size 16"):
        run(params, "train", str(tmp_path / "model"))


def test_a_damaged_shard_is_named_with_its_records(vocabulary, tmp_path):
    folder = tmp_path / "records"
    manifest = write_records(folder, make_documents(60), vocabulary)
    shard = folder / manifest.shards[1].name
    damaged = bytearray(shard.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    shard.write_bytes(damaged)
    with pytest.raises(UserError, match=f"{shard.name}: damaged after [0-9]+ of"):
        run(tiny_run(folder), "train", str(tmp_path / "model"))


_OF_SWAHILI = {"languages": ["sw"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runtime": {"distribution_strategy": "tpu"}}, "no TPU is named"),
        ({"task": {"validation_data": {"input_path": ""}}}, "cmlm has no validation records"),
        ({"task": {"train_data": _OF_SWAHILI}}, "has no sw; its languages are en$"),
        ({"task": {"validation_data": _OF_SWAHILI}}, "has no sw; its languages are en$"),
        (
            {
                "trainer": {
                    "best_checkpoint_export_subdir": "best",
                    "best_checkpoint_eval_metric": "sts_spearman",
                }
            },
            "sts_spearman.*validation measures validation_loss",
        ),
    ],
)
def test_mistakes_are_one_line_before_anything_is_written(records_dir, tmp_path, changes, message):
    """The message has nothing of the machinery that builds the trainer."""
    params = tiny_run(records_dir).replace(**changes)
    with pytest.raises(UserError, match=message):
        run(params, "train_and_eval", str(tmp_path / "model"))
    assert not (tmp_path / "model").exists()


def test_the_trained_length_is_kept(records_dir, tmp_path):
    """Also above 128, as DeCLUTR's 512; validation data do not count."""
    long = {"seq_length": 300, "bucket_boundaries": [300]}
    params = tiny_run(records_dir)
    params = params.replace(
        task={
            "encoder": {"max_position_embeddings": 512},
            "objectives": {"cmlm": {"train_data": {**TINY["train_data"], **long}}},
            "validation_data": {"seq_length": 400, "bucket_boundaries": [400]},
        }
    )
    params.task.objectives.cmlm.train_data.input_path = str(records_dir)
    task = SentenceEncoderTask(params.task)
    describe_run(params, task, "train", str(tmp_path / "model"))
    description = json.loads((tmp_path / "model" / "encoder_config.json").read_text())
    assert description["max_seq_length"] == 300
    # A directory that a training resumes is described anew.
    del description["for_sentences"]
    described = json.dumps(description | {"max_seq_length": 128})
    (tmp_path / "model" / "encoder_config.json").write_text(described)
    tf.train.Checkpoint(step=tf.Variable(0)).save(str(tmp_path / "model" / "ckpt"))
    describe_run(params, task, "train", str(tmp_path / "model"))
    description = json.loads((tmp_path / "model" / "encoder_config.json").read_text())
    assert (description["max_seq_length"], description["for_sentences"]) == (300, True)


def test_the_prompts_of_the_start_are_kept(vocabulary, records_dir, tmp_path):
    """A run that is resumed keeps those that its folder has by then."""
    start = write_prompted_encoder(tmp_path / "start", vocabulary, default="query")
    params = tiny_run(records_dir).replace(task={"init_checkpoint": str(start)})
    task, model = SentenceEncoderTask(params.task), tmp_path / "model"
    describe_run(params, task, "train", str(model))
    description = json.loads((model / "encoder_config.json").read_text())
    assert (description["prompts"], description["default_prompt_name"]) == (PROMPTS, "query")
    change_json(model / "encoder_config.json", prompts={"query": "other "})
    tf.train.Checkpoint(step=tf.Variable(0)).save(str(model / "ckpt"))
    describe_run(params, task, "train", str(model))
    description = json.loads((model / "encoder_config.json").read_text())
    assert description["prompts"] == {"query": "other "}


@pytest.mark.long
def test_a_longer_training_says_that_its_rate_changes(trained, records_dir, tmp_path, capfd):
    """The last of two steps would have been at a rate of 0; the second of six is not.

    It also says that the objective has another weight now.
    """
    folder = shutil.copytree(trained, tmp_path / "model")
    longer = tiny_run(records_dir, steps=6, only="cmlm")
    longer = longer.replace(task={"objectives": {"cmlm": {"weight": 0.5}}})
    run(longer, "train", str(folder))
    printed = capfd.readouterr().err
    assert "cmlm.weight was 1.0, is 0.5" in printed
    assert "learning rate: linear, over 1 of 6 steps up to 0.0018, down to 0 at 6\n" in printed
    assert "0.0014 from step 2 on, 0 was planned there (trainer.train_steps was 2, is 6)" in printed


@pytest.mark.usefixtures("unchecked")
def test_a_failed_start_does_not_claim_the_model_directory(records_dir, tmp_path):
    """Nothing is written for a run that cannot begin, in training or evaluation."""
    params = tiny_run(records_dir)
    with pytest.raises(UserError, match="no checkpoint to evaluate"):
        run(params, "eval", str(tmp_path / "model"))
    assert not (tmp_path / "model" / "encoder_config.json").exists()


@pytest.mark.usefixtures("unchecked")
def test_mistakes_inside_the_trainer_are_one_line(records_dir, tmp_path, monkeypatch):
    """Also what only the building of the trainer finds."""

    def build_inputs(*args, **kwargs):
        raise UserError("records: too green; paint them")

    monkeypatch.setattr(SentenceEncoderTask, "build_inputs", build_inputs)
    with pytest.raises(UserError) as caught:
        run(tiny_run(records_dir), "train", str(tmp_path / "model"))
    assert str(caught.value) == "records: too green; paint them"


def test_a_long_loop_reports_by_the_clock(records_dir, tmp_path, monkeypatch, capfd):
    """The first number after the first step, the time for all, and a first checkpoint meanwhile."""
    monkeypatch.setattr(trainer_module, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(trainer_module, "FIRST_CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(progress_module, "_ESTIMATE_SECONDS", 0.0)
    monkeypatch.setattr(progress_module, "_LONG_SECONDS", 0.0)
    seen = []
    on_piece = TrainingProgress.on_piece

    def spy(reports, values):
        seen.append((int(reports._global_step.numpy()), values))
        on_piece(reports, values)

    monkeypatch.setattr(TrainingProgress, "on_piece", spy)
    long = {"steps_per_loop": 4, "summary_interval": 4, "checkpoint_interval": 4}
    params = tiny_run(records_dir, 4, "quick_thought", **long)
    with quick_runs():
        run(params, "train", str(tmp_path / "model"))
    assert seen[0][0] == 1 and seen[-1][0] == 4 and len(seen) >= 3
    first, later = seen[0][1], seen[1][1]
    assert first["training_loss"] > 0 and first["learning_rate"] > 0
    # The first step is compiled with, and gives no rate.
    assert "tokens_per_second" not in first and later["tokens_per_second"] > 0
    # The loop was ended by the clock once; the rest of it follows up to its multiple.
    saved = sorted(path.name for path in (tmp_path / "model").glob("ckpt-*.index"))
    assert saved == ["ckpt-1.index", "ckpt-4.index"]
    lines = read_history(tmp_path / "model" / "history.jsonl")
    assert [line["step"] for line in lines] == [1, 4]
    printed = capfd.readouterr().err
    assert re.search(r"about .* for the remaining \d steps; fewer trainer.train_steps", printed)


def _demo(trainer=None, runtime=None):
    text = json.dumps({"trainer": trainer or {}, "runtime": runtime or {}})
    return registry.load("demo", params_override=text)


_EMA = {"optimizer_config": {"ema": {"average_decay": 0.99}}}


@pytest.mark.parametrize(
    ("trainer", "runtime", "message"),
    [
        (
            {"checkpoint_interval": 0},
            {},
            "checkpoint_interval must be at least 1 .otherwise no",
        ),
        ({"steps_per_loop": 0}, {}, "steps_per_loop must be at least 1"),
        ({"summary_interval": 0}, {}, "summary_interval must be at least 1"),
        ({"validation_interval": -1}, {}, "validation_interval must be at least 0, got -1"),
        (
            {"summary_interval": 25, "steps_per_loop": 10},
            {},
            "summary_interval 25 is not a multiple of trainer.steps_per_loop 10; set it to 30$",
        ),
        (_EMA, {"mixed_precision_dtype": "float16"}, "ema: .* float16, which auto .* float32,"),
    ],
)
def test_settings_that_cannot_work_are_refused(trainer, runtime, message):
    with pytest.raises(UserError, match=message) as caught:
        check_trainer(_demo(trainer, runtime))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("interval", "loop", "saved"),
    [(5, 100, "saved after the last step, "), (6, 4, "saved every 8 steps, "), (8, 4, None)],
)
def test_loops_that_overrule_the_checkpoint_interval(interval, loop, saved):
    """Checkpoints are saved at the ends of loops, and a line says if that is more rarely."""
    values = {"train_steps": 60, "checkpoint_interval": interval, "steps_per_loop": loop}
    lines = checkpoint_notes(_demo(values).trainer)
    assert len(lines) == (saved is not None)
    assert all(saved in line and f"steps_per_loop {loop} steps; lower" in line for line in lines)


@pytest.mark.parametrize("dtype", ["bfloat16", None])
def test_an_average_of_weights_without_a_loss_scale(dtype):
    check_trainer(_demo(_EMA, {"mixed_precision_dtype": dtype}))
