"""An encoder directory's length and its list of checkpoints, also where the list is damaged."""

import pytest

from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, checkpoints_among
from tests.unchanged.values import DATA


def test_a_length_of_0_is_not_the_default():
    """Only None stands for the folder's own length, so that callers can refuse 0."""
    directory = EncoderDirectory.open(DATA / "imported")
    assert directory.length(None) == directory.max_seq_length > 0
    assert directory.length(0) == 0


@pytest.mark.parametrize("older", ["5", "[", '"ckpt-1'])
def test_a_damaged_list_is_not_read(older):
    """Checkpoints are found by their names if any entry of `checkpoint` is not a string."""
    state = f'model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: {older}\n'
    names = ["ckpt-1.index", "ckpt-2.index", "other"]
    assert checkpoints_among("folder", names, state) == ["folder/ckpt-2", "folder/ckpt-1"]
