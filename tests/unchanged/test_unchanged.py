"""Records, checkpoints and numbers are those of the code that wrote `data/`.

`data/` holds records, a training's model directory and an imported encoder directory that earlier
code wrote, and the numbers that it computed with them; see `write.py`.
"""

import contextlib
import json

import numpy as np
import pytest

from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.inputs import data_position
from official_cmlm.inputs.document_spans import Spans
from official_cmlm.inputs.mirrored import Mirrored
from official_cmlm.inputs.next_sentence import NextSentencePairs
from official_cmlm.inputs.views import AdjacentPairs, Segments, SpecialIds
from official_cmlm.objectives import objectives
from official_cmlm.records.manifest import load_manifest, load_records_vocabulary
from tests.training.quick_runs import quick_runs
from tests.unchanged import values

EXPECTED = json.loads((values.DATA / "expected.json").read_text())


def assert_same(actual: values.Numbers, title: str) -> None:
    """Asserts equal names, and numbers that differ by no more than other machines' rounding."""
    expected = EXPECTED[title]
    assert actual.keys() == expected.keys()
    for name, row in expected.items():
        # In a summary the norm says how large the tensor's other numbers may be.
        scale = max(map(abs, row), default=0.0)
        np.testing.assert_allclose(
            actual[name], row, rtol=1e-4, atol=1e-4 * scale + 1e-6, err_msg=f"{title}: {name}"
        )


def test_every_objective_and_every_number_is_compared():
    """Later objectives have no numbers of earlier code."""
    later = {"distillation", "pair_distillation", "cosine_similarity", "cosent"}
    assert set(values.OBJECTIVES) == set(objectives()) - later
    assert {f"{name}: three steps" for name in values.OBJECTIVES} < set(EXPECTED)


@pytest.mark.parametrize(
    "name",
    [
        # The training below has CMLM and bitext retrieval.
        pytest.param(n, marks=() if n == "contrastive" else pytest.mark.long)
        for n in values.OBJECTIVES
    ],
)
def test_three_steps(name, tmp_path):
    """Loss, gradients and weights: from the seed through data, masks, dropout and optimizer."""
    assert_same(values.three_steps(name, tmp_path), f"{name}: three steps")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(quick_runs, id="eager"),
        # Tracing takes ten seconds.
        pytest.param(contextlib.nullcontext, id="traced", marks=pytest.mark.long),
    ],
)
def test_a_training_of_earlier_code_continues(tmp_path, steps):
    """Weights, optimizer state and data position are read; the next step is what it was."""
    with steps():
        assert_same(values.continue_training(tmp_path), "training continued")


@pytest.mark.parametrize("kind", ["trained", "imported"])
def test_an_encoder_directory_of_earlier_code_loads(kind):
    """And gives the embeddings that it gave."""
    assert_same(values.embeddings(values.DATA / kind), f"{kind} directory")


def test_an_import_gives_the_same_encoder(tmp_path):
    """Embeddings, configuration, and the vocabulary's files byte for byte."""
    assert_same(values.import_again(tmp_path), "import")
    for name in ("vocab.json", "vocab.txt"):
        stored = (values.DATA / "imported" / name).read_bytes()
        assert (tmp_path / "imported" / name).read_bytes() == stored, name
    stored, written = (
        json.loads((folder / "imported" / "encoder_config.json").read_text())
        for folder in (values.DATA, tmp_path)
    )
    # A field that is newer than the stored file has its default.
    stored["encoder"] = EncoderConfig().as_dict() | stored["encoder"]
    assert written.pop("for_sentences") is False
    assert written == stored


def test_data_positions_are_those_of_earlier_code():
    """The fingerprints that a training of earlier code stored: it goes on where it was."""
    folder = values.DATA / "records" / "documents"
    manifest = load_manifest(folder)
    vocabulary = load_records_vocabulary(folder, manifest)
    special = SpecialIds.of(vocabulary)
    config = DataConfig(
        input_path=str(folder),
        seq_length=24,
        bucket_boundaries=[12, 24],
        global_batch_size=8,
        seed=5,
    )
    stored = {
        AdjacentPairs("sentence", 24, 0.5, special): 4344839791698249675,
        Segments("sentence", 24, special): 887262718028299195,
        Mirrored(
            "sentence", 24, "word_deletion", 5, 30, 0.32, 0.15, vocabulary
        ): 5576169927813760497,
        Spans(2, 2, 6, 16, "all", special): 1663600301288317805,
    }
    for view, mark in stored.items():
        assert data_position.fingerprint(config, manifest, view, config.buckets()) == mark
    packed = config.replace(segment="packed")
    stored = {
        AdjacentPairs("packed", 24, 0.5, special): 5858244740816349074,
        NextSentencePairs("packed", 24, 0.5, special): 6576039143427650180,
        Segments("packed", 24, special): 4856722186712079740,
    }
    for view, mark in stored.items():
        assert data_position.fingerprint(packed, manifest, view, packed.buckets()) == mark
    # Batches without buckets are others than they were.
    random = config.replace(bucket_boundaries=[])
    view = Segments("sentence", 24, special)
    marks = [data_position.fingerprint(c, manifest, view, [(24, 8)]) for c in (random, config)]
    assert len(set(marks)) == 2


@pytest.mark.long
def test_exported_modules_give_the_same_outputs(tmp_path):
    """TF-Hub pair and serving model."""
    assert_same(values.export_again(tmp_path), "export")
