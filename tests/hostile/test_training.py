"""A training in a hostile world: bad settings, planted paths, damaged folders, two at once."""

import functools
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from export.formats import tfhub
from export.formats.tfhub_options import TfhubOptions
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.integrity import checkpoints_of
from official_cmlm.checkpoints.weights import load_encoder, save_weights
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import hold_lock
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.training.run import run
from tests.training.quick_runs import quick_runs
from tests.training.tiny_training import params, run_for_all


def _expect(call, *parts):
    """Asserts a message that holds all of `parts`."""
    with pytest.raises(UserError) as caught:
        call()
    for part in parts:
        assert str(part) in str(caught.value)


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Runs eager steps: the effect of a folder does not depend on how steps are computed."""
    with quick_runs():
        yield


@pytest.fixture
def model_dir(trained, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(trained, tmp_path / "model")


@pytest.fixture
def steps(trained, records_dir):
    """Returns the run of `trained` with so many steps."""
    return functools.partial(run_for_all, records_dir, trained.parent)


def _contents(folder):
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.long
def test_an_update_that_makes_weights_non_finite(records_dir, tmp_path):
    """Neither saved nor announced as good, also where it is the last step."""
    decay = {"optimizer": {"type": "adamw", "adamw": {"weight_decay_rate": 1e30}}}
    config = params(str(records_dir), steps=2, optimizer=decay)
    config.trainer.schedule.override({"peak": 1e38, "warmup_steps": 1})
    _expect(
        lambda: run(config, "train", str(tmp_path / "model")),
        "an update made weights non-finite (",
        "there is no checkpoint yet; lower the learning rate",
    )
    assert not checkpoints_of(tmp_path / "model")


@pytest.mark.long
def test_a_stop_after_such_an_update(records_dir, tmp_path, monkeypatch):
    """The weights that a stop would save are checked as well."""
    from official_cmlm.training.trainer import StopRequested, Trainer

    def stop(trainer, output):
        if trainer.global_step.numpy():
            trainer.model.encoder.bert.weights[0][0, 0].assign(np.nan)
            raise StopRequested

    monkeypatch.setattr(Trainer, "check_stop", stop)
    config = params(str(records_dir), steps=9, checkpoint_interval=9)
    _expect(
        lambda: run(config, "train", str(tmp_path / "model")),
        "an update made weights non-finite",
        "there is no checkpoint yet; lower the learning rate",
    )


def test_non_finite_weights_are_not_loaded(model_dir, tmp_path):
    """Not by `load`, the export or a training that starts from them; the weight is named."""
    encoder = load_encoder(EncoderDirectory.open(model_dir))
    encoder.bert.weights[0][0, 0].assign(np.nan)
    save_weights(model_dir, encoder, checkpoint=str(model_dir / "ckpt-2"))
    named = "word_embeddings/embeddings"
    for call in (
        lambda: SentenceEncoder.load(model_dir),
        lambda: tfhub.export(TfhubOptions(str(model_dir), str(tmp_path / "hub"))),
    ):
        _expect(call, model_dir / "weights.safetensors", "holds non-finite weights", named)
    assert not (tmp_path / "hub").exists()


@pytest.mark.long
def test_a_training_passes_over_non_finite_weights(steps, model_dir, capfd):
    """It resumes from the checkpoint before."""
    bad = tf.train.Checkpoint(encoder=tf.Variable([np.inf], name="x"))
    bad.write(str(model_dir / "ckpt-2"))
    run(steps(4), "train", str(model_dir))
    errors = capfd.readouterr().err
    assert "ckpt-2: damaged (encoder holds non-finite values); resuming from ckpt-1" in errors
    assert np.isfinite(SentenceEncoder.load(model_dir).encode(["the cat sat"])).all()


@pytest.mark.parametrize("where", ["../victim/ckpt-0", "{}/victim/ckpt-0"])
def test_old_checkpoints_outside_are_not_removed(steps, model_dir, tmp_path, where):
    """TensorFlow's manager would remove them when it rotates checkpoints."""
    victim = shutil.copytree(model_dir, tmp_path / "victim")
    for path in sorted(victim.glob("ckpt-1.*")):
        path.rename(victim / path.name.replace("ckpt-1", "ckpt-0"))
    before = _contents(victim)
    with (model_dir / "checkpoint").open("a") as file:
        file.write(f'all_model_checkpoint_paths: "{where.format(tmp_path)}"\n')
        file.write("all_model_checkpoint_timestamps: 1.0\n")
    for call in (
        lambda: run(steps(20), "train", str(model_dir)),
        lambda: SentenceEncoder.load(model_dir),
    ):
        _expect(call, model_dir / "checkpoint", "victim/ckpt-0", "delete that file")
    assert _contents(victim) == before


def test_shards_outside_are_not_read(records_dir, tmp_path):
    folder = shutil.copytree(records_dir, tmp_path / "records")
    values = json.loads((folder / "dataset.json").read_text())
    shard = values["shards"][0]
    shutil.move(folder / shard["name"], tmp_path / "x.tfrecord")
    for name in ("../x.tfrecord", str(tmp_path / "x.tfrecord")):
        values["shards"][0] = shard | {"name": name}
        (folder / "dataset.json").write_text(json.dumps(values))
        call = lambda: run(params(str(folder)), "train", str(tmp_path / "model"))  # noqa: E731
        _expect(call, "dataset.json", name, "only files of that folder are read")


def test_two_trainings_in_one_folder(steps, model_dir):
    """The second one is told who has it, and changes nothing."""
    config = steps(4)
    before = _contents(model_dir)
    with hold_lock(model_dir / "training.lock", "x"):
        _expect(
            lambda: run(config, "train", str(model_dir)),
            f"{model_dir}: another training is running in this folder",
            f"(process {os.getpid()} on ",
        )
        assert {k: v for k, v in _contents(model_dir).items() if k != "training.lock"} == before


def test_a_finished_training_is_left_as_it_is(steps, model_dir, capfd):
    """It says so, and only describes itself anew; the lock of a process that crashed is free."""
    before = _contents(model_dir)
    (model_dir / "training.lock").write_text("process 1 on a host that crashed")
    run(steps(2), "train", str(model_dir))
    assert f"{model_dir}: all 2 steps are trained already" in capfd.readouterr().err
    after = _contents(model_dir)
    assert "training.lock" not in after
    kept = [name for name in before if name != "train_summary.json"]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def test_a_vocabulary_of_another_size(model_dir, tmp_path):
    """Ids would mean other words, or lie beyond the table."""
    words = (model_dir / "vocab.txt").read_text().splitlines()
    for lines in (words[:6], [*words, "more"]):
        (model_dir / "vocab.txt").write_text("\n".join(lines) + "\n")
        parts = (f"the vocabulary has {len(lines)} entries, the embedding table {len(words)} rows",)
        _expect(lambda: SentenceEncoder.load(model_dir), model_dir, *parts)
        export = lambda: tfhub.export(TfhubOptions(str(model_dir), str(tmp_path / "hub")))  # noqa: E731
        _expect(export, model_dir, *parts)


DESCRIPTIONS = {
    "not JSON": "{",
    "a list": "[]",
    "nothing": "{}",
    "nested": "[" * 100_000,
    "no encoder": '{"max_seq_length": 16}',
    "an encoder that is a list": '{"encoder": [], "max_seq_length": 16}',
    "an unknown key": '{"encoder": {"layers": 3}, "max_seq_length": 16}',
    "a word for a number": '{"encoder": {"num_layers": "3"}, "max_seq_length": 16}',
    "a billion layers": '{"encoder": {"num_layers": 1000000000}, "max_seq_length": 16}',
    "a huge table": '{"encoder": {"vocab_size": 16777216, "hidden_size": 65532}}',
    "a number of 400 digits": '{"encoder": {"num_layers": 1%s}, "max_seq_length": 16}'
    % ("0" * 400),
    "not a number": '{"encoder": {"dropout_rate": NaN}, "max_seq_length": 16}',
    "no length": '{"encoder": {}}',
    "a length of nothing": '{"encoder": {}, "max_seq_length": 0}',
    "half a length": '{"encoder": {}, "max_seq_length": 16.5}',
}


@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_damaged_descriptions(model_dir, kind):
    """One line that names the file, before anything is allocated."""
    (model_dir / "encoder_config.json").write_text(DESCRIPTIONS[kind])
    _expect(lambda: SentenceEncoder.load(model_dir), model_dir)


def test_pipes_where_files_should_be(model_dir, records_dir, tmp_path):
    """Refused at once; opening one would wait for a writer forever."""
    for name in ("encoder_config.json", "vocab.txt", "vocab.json"):
        (model_dir / name).rename(model_dir / "kept")
        os.mkfifo(model_dir / name)
        _expect(lambda: SentenceEncoder.load(model_dir), name, "not a regular file")
        (model_dir / name).unlink()
        (model_dir / "kept").rename(model_dir / name)
    records = shutil.copytree(records_dir, tmp_path / "records")
    (records / "dataset.json").unlink()
    os.mkfifo(records / "dataset.json")
    call = lambda: run(params(str(records)), "train", str(tmp_path / "new"))  # noqa: E731
    _expect(call, "dataset.json", "not a regular file")


def test_a_folder_that_cannot_be_written(records_dir, tmp_path):
    """Told before anything is built."""
    (tmp_path / "file").write_text("")
    config = params(str(records_dir))
    for folder in (tmp_path / "file" / "model", tmp_path / "file", "/proc/model"):
        call = functools.partial(run, config, "train", str(folder))
        _expect(call, folder, "cannot be written")


def test_the_best_checkpoint_of_a_damaged_folder(steps, model_dir):
    """Its files are checked before the training, not after its first evaluation."""
    best, config = model_dir / "best", steps(4)
    (best / "info.json").write_text("{")
    _expect(lambda: run(config, "train", str(model_dir)), best / "info.json", "not valid JSON")
    # An earlier release, or a run without STS-B, chose by another metric.
    (best / "info.json").write_text('{"validation_loss": 1.0, "best_ckpt_global_step": 4.0}')
    before = _contents(best)
    _expect(lambda: run(config, "train", str(model_dir)), best / "info.json", "no sts_spearman,")
    assert _contents(best) == before
    (best / "info.json").unlink()
    (best / "checkpoint").write_text('model_checkpoint_path: "../ckpt-2"\n')
    _expect(lambda: run(config, "train", str(model_dir)), best / "checkpoint", "not in this folder")
