"""`weights.safetensors` of trainings: written at each save, and what readers do without it."""

import shutil

import numpy as np
import pytest

from official_cmlm.checkpoints import encoder_weights
from official_cmlm.checkpoints.encoder_directory import (
    TRAINING_LOCK,
    EncoderDirectory,
    encoder_digest,
)
from official_cmlm.checkpoints.encoder_weights import read_weights
from official_cmlm.checkpoints.integrity import checkpoints_of
from official_cmlm.checkpoints.training_checkpoint import layers_of, read_checkpoint
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import hold_lock
from official_cmlm.configs.encoder import VectorOverride
from official_cmlm.modeling.sentence_encoder import encoder_variables
from official_cmlm.training.run import run
from official_cmlm.training.task import SentenceEncoderTask
from tests.training.quick_runs import quick_runs
from tests.training.tiny_training import EVERY_STEP, FIRST_NAME, run_for_all, tiny_run
from tests.unchanged.values import DATA

FILE = "weights.safetensors"


@pytest.fixture(scope="module")
def first(trained) -> bytes:
    """Reads the weights of the first of two checkpoints."""
    return (trained.parent / FIRST_NAME).read_bytes()


@pytest.fixture
def model_dir(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return shutil.copytree(trained, tmp_path / "model")


def table_of(folder):
    return read_weights(EncoderDirectory.open(folder)).encoder["word_embeddings/embeddings"]


def assert_holds_checkpoint(folder):
    """Asserts that the file holds all arrays of the newest checkpoint, bit for bit."""
    directory = EncoderDirectory.open(folder)
    weights, projections = read_checkpoint(str(directory.checkpoint), directory.config)
    projections = projections | ({None: weights.projection} if weights.projection else {})
    stored = read_weights(directory, with_head=True)
    assert stored.encoder.keys() == weights.encoder.keys()
    pairs = [(stored.encoder[name], weights.encoder[name]) for name in weights.encoder]
    if weights.head is not None:
        pairs += [(stored.head[name], weights.head[name]) for name in weights.head]
    file = encoder_weights._WeightsFile(folder / FILE, folder / FILE)
    for owner, layers in projections.items():
        read = file.read_projection(owner)
        assert len(read) == len(layers)
        pairs += [pair for both in zip(read, layers) for pair in zip(*both)]
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours, theirs)
    return projections


def test_each_save_writes_the_weights_of_its_checkpoint(trained, first):
    projections = assert_holds_checkpoint(trained)
    assert [*projections] == ["cmlm"] and len(projections["cmlm"]) == 3
    assert_holds_checkpoint(trained / "best")
    assert b"ckpt-1 " in first and b"ckpt-2 " in (trained / FILE).read_bytes()


def test_reader_between_checkpoint_and_weights_gets_the_encoder_before(trained, model_dir, first):
    (model_dir / FILE).write_bytes(first)
    config = EncoderDirectory.open(model_dir).config
    before, _ = read_checkpoint(str(model_dir / "ckpt-1"), config)
    with hold_lock(model_dir / TRAINING_LOCK, "taken"):
        np.testing.assert_array_equal(
            table_of(model_dir), before.encoder["word_embeddings/embeddings"]
        )
        assert np.abs(table_of(model_dir) - table_of(trained)).max() > 0
        digests = [EncoderDirectory.open(path).weights_digest for path in (model_dir, trained)]
        assert len(set(digests)) == 2
        assert encoder_digest(model_dir) != encoder_digest(trained)


def test_weights_that_a_killed_training_left_behind_are_not_read(trained, model_dir, capsys, first):
    (model_dir / FILE).write_bytes(first)
    # The system released the lock of the killed process; its file stays.
    (model_dir / TRAINING_LOCK).write_text("process 1 on a host")
    np.testing.assert_array_equal(table_of(model_dir), table_of(trained))
    assert f"no {FILE} of ckpt-2; the weights are read" in capsys.readouterr().err
    digests = [EncoderDirectory.open(path).weights_digest for path in (model_dir, trained)]
    assert len(set(digests)) == 1 and (model_dir / FILE).read_bytes() == first


def test_best_checkpoint_that_is_being_saved_is_the_one_before(model_dir, first):
    for name in ("index", "data-00000-of-00001"):
        (model_dir / "best" / f"ckpt-2.{name}").write_bytes(
            (model_dir / f"ckpt-2.{name}").read_bytes()
        )
    (model_dir / "best" / "checkpoint").unlink()
    (model_dir / "best" / FILE).write_bytes(first)
    directory = EncoderDirectory.open(model_dir / "best")
    assert directory.weights_file is None
    with hold_lock(model_dir / TRAINING_LOCK, "taken"):
        assert directory.weights_file == model_dir / "best" / FILE


@pytest.fixture
def saving_meanwhile(trained, model_dir, monkeypatch, first):
    """Lets a training replace the weights after the encoder, before the projection is read."""
    (model_dir / FILE).write_bytes(first)
    read, saves = encoder_weights.read_tensors, []

    def read_and_save(paths, is_read, *others):
        result = read(paths, is_read, *others)
        if "word_embeddings/embeddings" in result[0] and not saves:
            saves.append(shutil.copy(trained / FILE, model_dir / "new"))
            (model_dir / "new").replace(model_dir / FILE)
        return result

    monkeypatch.setattr(encoder_weights, "read_tensors", read_and_save)
    with hold_lock(model_dir / TRAINING_LOCK, "taken"):
        yield saves


def test_weights_of_two_checkpoints_are_not_mixed(trained, model_dir, saving_meanwhile):
    override = VectorOverride(sentence_vector="projected_mean")
    weights = read_weights(EncoderDirectory.open(model_dir), override, with_head=True)
    assert saving_meanwhile
    whole = read_weights(EncoderDirectory.open(trained), override, with_head=True)
    assert whole.head
    for part in ("encoder", "head"):
        for name, array in getattr(whole, part).items():
            np.testing.assert_array_equal(getattr(weights, part)[name], array, err_msg=name)
    for pairs in zip(weights.projection, whole.projection, strict=True):
        for ours, theirs in zip(*pairs, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_weights_that_change_at_each_read_are_one_line(model_dir, monkeypatch):
    read = encoder_weights.read_tensors

    def save_and_read(*arguments):
        shutil.copy(model_dir / FILE, model_dir / "new")
        (model_dir / "new").replace(model_dir / FILE)
        return read(*arguments)

    monkeypatch.setattr(encoder_weights, "read_tensors", save_and_read)
    with pytest.raises(UserError, match="replaced the weights during each of 5 attempts"):
        read_weights(EncoderDirectory.open(model_dir))


def test_start_from_a_folder_takes_everything_from_one_checkpoint(model_dir, records_dir, first):
    """Between a checkpoint and its weights, encoder, head and projection are of the checkpoint."""
    (model_dir / FILE).write_bytes(first)
    params = tiny_run(records_dir, 2, "cmlm")
    task = SentenceEncoderTask(params.task.replace(init_checkpoint=str(model_dir)))
    model = task.build_model()
    with hold_lock(model_dir / TRAINING_LOCK, "taken"):
        task.initialize(model)
    directory = EncoderDirectory.open(model_dir)
    weights, projections = read_checkpoint(str(model_dir / "ckpt-2"), directory.config)
    for name, variable in encoder_variables(model.encoder).items():
        np.testing.assert_array_equal(variable.numpy(), weights.encoder[name], err_msg=name)
    for pairs in zip(layers_of(model.projections["cmlm"]), projections["cmlm"], strict=True):
        for ours, theirs in zip(*pairs, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_training_anew_beside_leftover_weights_is_told_to_delete_them(model_dir, records_dir):
    for path in [model_dir / "checkpoint", *model_dir.glob("ckpt-*")]:
        path.unlink()
    message = f"holds {FILE} of a training without its checkpoint ckpt-2; .* delete {FILE} too"
    with quick_runs(), pytest.raises(UserError, match=message):
        run(tiny_run(records_dir, 1, "cmlm", **EVERY_STEP), "train", str(model_dir))
    (model_dir / FILE).unlink()
    with quick_runs():
        run(tiny_run(records_dir, 1, "cmlm", **EVERY_STEP), "train", str(model_dir))
    assert b"ckpt-1 " in (model_dir / FILE).read_bytes()


def test_directory_that_is_open_while_a_training_saves_has_the_new_weights(
    trained, model_dir, first
):
    newer = {path.name: path.read_bytes() for path in model_dir.iterdir() if path.is_file()}
    for name in newer:
        if name.startswith(("checkpoint", "ckpt-2")):
            (model_dir / name).unlink()
    (model_dir / FILE).write_bytes(first)
    directory = EncoderDirectory.open(model_dir)
    assert directory.checkpoint.name == "ckpt-1" and directory.weights_file == model_dir / FILE
    for name, content in newer.items():
        (model_dir / name).write_bytes(content)
    assert directory.weights_file == model_dir / FILE
    table = read_weights(directory).encoder["word_embeddings/embeddings"]
    np.testing.assert_array_equal(table, table_of(trained))


def test_training_that_was_killed_before_the_weights_writes_them(
    trained, model_dir, records_dir, first
):
    expected = (model_dir / FILE).read_bytes()
    (model_dir / FILE).write_bytes(first)
    with quick_runs():
        run(run_for_all(records_dir, trained.parent), "train", str(model_dir))
    assert (model_dir / FILE).read_bytes() == expected


def test_older_weights_are_removed_so_that_the_checkpoint_is_read(model_dir, first):
    expected = table_of(model_dir)
    EncoderDirectory.open(model_dir).remove_older_weights()
    assert (model_dir / FILE).exists()
    (model_dir / FILE).write_bytes(first)
    EncoderDirectory.open(model_dir).remove_older_weights()
    assert not (model_dir / FILE).exists()
    np.testing.assert_array_equal(table_of(model_dir), expected)


def test_folder_of_an_earlier_version_is_read_with_tensorflow_once(model_dir, capsys, monkeypatch):
    expected, digest = table_of(model_dir), EncoderDirectory.open(model_dir).weights_digest
    (model_dir / FILE).unlink()
    assert EncoderDirectory.open(model_dir).weights_digest == digest
    with monkeypatch.context() as patch:
        patch.setattr(encoder_weights, "is_installed", lambda *names: False)
        with pytest.raises(UserError, match=r"no weights.safetensors of its .* pip install"):
            table_of(model_dir)
    capsys.readouterr()
    np.testing.assert_array_equal(table_of(model_dir), expected)
    assert f"{model_dir}: no {FILE} of ckpt-2; the weights are read" in capsys.readouterr().err
    np.testing.assert_array_equal(table_of(model_dir), expected)
    assert not capsys.readouterr().err and not (model_dir / FILE).exists()


def test_weights_of_a_later_checkpoint_are_not_read(model_dir):
    """Somebody went back to the first checkpoint by removing the second one."""
    for path in [model_dir / "checkpoint", *model_dir.glob("ckpt-2.*")]:
        path.unlink()
    assert [path.rpartition("/")[2] for path in checkpoints_of(model_dir)] == ["ckpt-1"]
    config = EncoderDirectory.open(model_dir).config
    first, _ = read_checkpoint(str(model_dir / "ckpt-1"), config)
    np.testing.assert_array_equal(table_of(model_dir), first.encoder["word_embeddings/embeddings"])


def test_another_checkpoint_of_the_same_name_is_read(model_dir):
    for name in ("index", "data-00000-of-00001"):
        (model_dir / f"ckpt-1.{name}").replace(model_dir / f"ckpt-2.{name}")
    config = EncoderDirectory.open(model_dir).config
    other, _ = read_checkpoint(str(model_dir / "ckpt-2"), config)
    np.testing.assert_array_equal(table_of(model_dir), other.encoder["word_embeddings/embeddings"])


@pytest.mark.parametrize("damage", ["data", "index", "missing"])
def test_damaged_checkpoint_is_one_line(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = shutil.copytree(DATA / "imported", tmp_path / "model")
    path = folder / ("ckpt-1.data-00000-of-00001" if damage != "index" else "ckpt-1.index")
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 255
    path.write_bytes(content)
    if damage == "missing":
        path.unlink()
    with pytest.raises(UserError, match="ckpt-1: damaged") as caught:
        table_of(folder)
    assert "\n" not in str(caught.value)
