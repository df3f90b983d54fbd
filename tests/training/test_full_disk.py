"""Which place is blamed when a disk takes no more."""

import errno

import pytest
import tensorflow as tf

from official_cmlm.errors import UserError
from official_cmlm.training.full_disk import report_full_model_dir

_FULL = "No space left on device"


def _message(model_dir, error):
    with pytest.raises(UserError) as caught, report_full_model_dir(str(model_dir)):
        raise error
    message = str(caught.value)
    assert "\n" not in message and f"cannot be written ({_FULL}" in message
    assert "there is no checkpoint yet" in message
    return message


@pytest.mark.parametrize("by_tensorflow", [False, True])
def test_the_place_that_is_full_is_named(tmp_path, by_tensorflow):
    """The model directory for what is in it; a file elsewhere by itself."""
    model, other = tmp_path / "model", tmp_path / "model2"
    model.mkdir()
    other.mkdir()

    def error(path):
        if by_tensorflow:
            text = f"{{{{function_node x}}}} {path}; {_FULL} [Op:SaveV2]"
            return tf.errors.ResourceExhaustedError(None, None, text)
        return OSError(errno.ENOSPC, _FULL, str(path))

    message = _message(model, error(model / "ckpt-4_temp" / "part-0"))
    assert message.startswith(f"{model}: ") and "trainer.max_to_keep" in message
    assert " MiB free)" in message
    message = _message(model, error(other / "part-0"))
    assert message.startswith(f"{other}/part-0: ") and "free disk space there" in message
    assert " MiB free)" in message and "max_to_keep" not in message


def test_nothing_is_blamed_without_a_name(tmp_path):
    message = _message(tmp_path, OSError(errno.ENOSPC, _FULL))
    assert str(tmp_path) not in message and message.startswith("a file in an unknown folder: ")


def test_other_errors_pass(tmp_path):
    with pytest.raises(OSError, match="denied"), report_full_model_dir(str(tmp_path)):
        raise OSError(errno.EACCES, "denied")
