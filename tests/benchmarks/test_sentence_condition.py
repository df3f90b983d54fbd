"""What a CMLM's sentence vector tells of its neighbour, as `benchmarks.sentence_condition` says."""

import json

import pytest
import tensorflow as tf

from benchmarks.sentence_condition import measure, one_sequence
from official_cmlm.errors import UserError
from official_cmlm.training.run import run
from tests.training.quick_runs import quick_runs
from tests.training.test_run import tiny_run


@pytest.fixture(scope="module")
def trained(records_dir, tmp_path_factory):
    """Model directory of two steps of CMLM, validated on the records."""
    folder = tmp_path_factory.mktemp("trained")
    params = tiny_run(records_dir, folder, 2, "cmlm")
    task = params.task.as_dict()
    # Far from 0, so that an untrained projection matters.
    task["encoder"]["initializer_range"] = 0.3
    # Concatenates as well, so that the measure is checked with both.
    task["objectives"]["cmlm"]["architecture"] = "skip"
    with quick_runs():
        run(params.replace(task=task), "train_and_eval", str(folder / "model"))
    return folder / "model"


def test_with_its_own_vector_it_is_the_validation_of_training(trained, records_dir):
    last = json.loads((trained / "history.jsonl").read_text().splitlines()[-1])
    assert last["split"] == "validation"

    # As many pairs as the validation of `tiny_run` has.
    found = measure(str(trained), [str(records_dir)], [], 50)

    own, another = found["own"], found["another"]
    assert own.loss / own.tokens == pytest.approx(last["cmlm/masked_token_loss"], rel=1e-5)
    assert own.correct / own.tokens == pytest.approx(last["cmlm/masked_token_accuracy"], abs=1e-4)
    # The same tokens under the same masks, seen beside another vector.
    assert another.tokens == own.tokens
    assert another.loss != pytest.approx(own.loss, rel=1e-4)


def test_folders_that_do_not_fit_are_named(trained, records_dir, tmp_path):
    with pytest.raises(UserError, match="model: was not trained with mlm"):
        measure(str(trained), [str(records_dir)], [str(trained)], 10)
    with pytest.raises(UserError, match="no model directory"):
        measure(str(tmp_path), [str(records_dir)], [], 10)
    with pytest.raises(UserError, match="model: was not trained with nsp"):
        measure(str(trained), [str(records_dir)], [], 10, [str(trained)])


def test_one_sequence_is_what_bert_reads_for_a_pair():
    first = {
        "input_word_ids": [[2, 11, 12, 3], [2, 13, 3, 0]],
        "input_mask": [[1, 1, 1, 1], [1, 1, 1, 0]],
        "input_type_ids": [[0] * 4] * 2,
    }
    masked = {
        "input_word_ids": [[2, 4, 3, 0, 0], [2, 22, 4, 4, 3]],
        "input_mask": [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]],
        "input_type_ids": [[0] * 5] * 2,
        "masked_lm_positions": [[1, 0], [2, 3]],
        "masked_lm_weights": [[1.0, 0.0], [1.0, 1.0]],
    }

    found = one_sequence(_constants(first), _constants(masked))

    assert found["input_word_ids"].numpy().tolist() == [
        [2, 11, 12, 3, 4, 3, 0],
        [2, 13, 3, 22, 4, 4, 3],
    ]
    assert found["input_mask"].numpy().tolist() == [[1] * 6 + [0], [1] * 7]
    assert found["input_type_ids"].numpy().tolist() == [[0, 0, 0, 0, 1, 1, 0], [0, 0, 0] + [1] * 4]
    # Where the masks (4) stand now; unused slots read the first token.
    assert found["output_positions"].numpy().tolist() == [[4, 0], [4, 5]]


def test_models_of_pairs_are_measured_beside_it(trained, records_dir, tmp_path):
    params = tiny_run(records_dir, tmp_path, 2, "cmlm")
    task = {**params.task.as_dict(), "objectives": {"cmlm": None, "nsp": {}}}
    task["encoder"]["max_position_embeddings"] = 64
    with quick_runs():
        run(params.replace(task=task), "train", str(tmp_path / "nsp"))

    found = measure(str(trained), [str(records_dir)], [], 50, [str(tmp_path / "nsp")])

    own, another = (found[f"{tmp_path / 'nsp'}, {way} sentence"] for way in ("own", "another"))
    assert own.tokens == another.tokens == found["own"].tokens
    assert own.loss != another.loss


def test_pairs_too_long_for_a_model_are_refused(trained, records_dir, tmp_path):
    params = tiny_run(records_dir, tmp_path, 1, "cmlm")
    task = {**params.task.as_dict(), "objectives": {"cmlm": None, "nsp": {}}}
    with quick_runs():
        run(params.replace(task=task), "train", str(tmp_path / "nsp"))

    with pytest.raises(UserError, match="nsp: has 40 positions, the pairs .* up to 63 tokens"):
        measure(str(trained), [str(records_dir)], [], 50, [str(tmp_path / "nsp")])


def _constants(features: dict) -> dict:
    return {
        key: tf.constant(value, tf.float32 if key.endswith("weights") else tf.int32)
        for key, value in features.items()
    }
