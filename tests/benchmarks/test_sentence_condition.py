"""What a CMLM's sentence vector tells of its neighbour, as `benchmarks.sentence_condition` says."""

import json

import pytest

from benchmarks.sentence_condition import measure
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
    assert another.loss != pytest.approx(own.loss, rel=1e-3)


def test_folders_that_do_not_fit_are_named(trained, records_dir, tmp_path):
    with pytest.raises(UserError, match="model: was not trained with mlm"):
        measure(str(trained), [str(records_dir)], [str(trained)], 10)
    with pytest.raises(UserError, match="no model directory"):
        measure(str(tmp_path), [str(records_dir)], [], 10)
