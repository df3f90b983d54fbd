"""What a user's records, checkpoints and numbers depend on is as it was when `data/` was written.

`data/` holds records, a training's model directory and an imported encoder directory that earlier
code wrote, and the numbers that it computed with them; see `write.py`.
"""

import json

import numpy as np
import pytest

from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.objectives import objectives
from tests.unchanged import values

EXPECTED = json.loads((values.DATA / "expected.json").read_text())


def assert_same(found: values.Numbers, title: str) -> None:
    """The same names, and numbers that differ by no more than other machines' rounding."""
    expected = EXPECTED[title]
    assert found.keys() == expected.keys()
    for name, row in expected.items():
        # In a summary the norm says how large the tensor's other numbers may be.
        scale = max(map(abs, row), default=0.0)
        np.testing.assert_allclose(
            found[name], row, rtol=1e-4, atol=1e-4 * scale + 1e-6, err_msg=f"{title}: {name}"
        )


def test_every_objective_and_every_number_is_compared():
    """A new objective gets settings here as soon as it is there."""
    assert set(values.OBJECTIVES) == set(objectives())
    assert {f"{name}: three steps" for name in values.OBJECTIVES} < set(EXPECTED)


@pytest.mark.parametrize("name", values.OBJECTIVES)
def test_three_steps(name, tmp_path):
    """Loss, gradients and weights: from the seed through data, masks, dropout and optimizer."""
    assert_same(values.three_steps(name, tmp_path), f"{name}: three steps")


def test_a_training_of_earlier_code_continues(tmp_path):
    """Weights, optimizer state and data position are read; the next step is what it was."""
    assert_same(values.continued(tmp_path), "training continued")


@pytest.mark.parametrize("kind", ["trained", "imported"])
def test_an_encoder_directory_of_earlier_code_loads(kind):
    """And gives the embeddings that it gave."""
    assert_same(values.embeddings(values.DATA / kind), f"{kind} directory")


def test_an_import_gives_the_same_encoder(tmp_path):
    """Embeddings, configuration, and the vocabulary's files byte for byte."""
    assert_same(values.imported(tmp_path), "import")
    for name in ("vocab.json", "vocab.txt"):
        stored = (values.DATA / "imported" / name).read_bytes()
        assert (tmp_path / "imported" / name).read_bytes() == stored, name
    stored, written = (
        json.loads((folder / "imported" / "encoder_config.json").read_text())
        for folder in (values.DATA, tmp_path)
    )
    # A field that is newer than the stored file has its default.
    stored["encoder"] = EncoderConfig().as_dict() | stored["encoder"]
    assert written == stored


def test_exported_modules_give_the_same_outputs(tmp_path):
    """TF-Hub pair and serving model."""
    assert_same(values.exported(tmp_path), "export")
