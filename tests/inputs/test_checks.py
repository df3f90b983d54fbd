"""Checks before a training: records without examples, too few of them, and those left out."""

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.inputs.checks import check_examples, unusable_records
from official_cmlm.inputs.document_spans import Spans
from official_cmlm.inputs.pipeline import check_batches
from official_cmlm.inputs.reader import parse_block
from tests.conftest import make_documents, write_records
from tests.inputs.blocks import SPECIAL
from tests.inputs.pipelines import Pipeline, blocks_of, pairs_by_hand


@pytest.fixture(scope="module")
def small(tmp_path_factory, vocabulary) -> Pipeline:
    """Writes documents, some in several records."""
    folder = tmp_path_factory.mktemp("checks") / "records"
    write_records(folder, make_documents(20), vocabulary, max_sentences=6)
    return Pipeline(folder, vocabulary)


@pytest.mark.long
def test_documents_that_are_too_short(small):
    """No example at all is an error that says how long they must be."""
    config, manifest, _ = small.open()
    view = Spans(2, 1, 4, 512, "all", SPECIAL)
    with pytest.raises(UserError, match="Spans example .* at least 2048 tokens") as caught:
        check_examples(config, manifest, view)
    assert str(small.folder) in str(caught.value) and "\n" not in str(caught.value)


def test_short_records_are_counted(small):
    """They are those that give no example; a sentence that a cut repeats does not count."""
    config, manifest, _ = small.open(is_training=False)
    view = Spans(1, 1, 4, 20, "all", SPECIAL)
    blocks = [
        parse_block("documents", *block, with_text=False)
        for _, *block in blocks_of(config, manifest).epoch(0)
    ]
    read = sum(block.keys.shape[0] for block in blocks)
    used = sum(view(block)["key"].shape[0] for block in blocks)
    assert 0 < used < read
    counts = f"{read - used} of {read} records of data have fewer than {view.min_record_tokens} "
    assert unusable_records(config, manifest, view, "data") == [f"{counts}tokens and are skipped"]


@pytest.mark.parametrize("buckets", [pytest.param([], marks=pytest.mark.long), [12, 24]])
def test_a_batch_that_an_epoch_cannot_fill_is_refused(small, buckets):
    """The records would be read for ever, and all their examples held in memory."""
    size = len(pairs_by_hand(small.folder, SPECIAL, 24))
    config, *records = small.open(global_batch_size=size, bucket_boundaries=buckets)
    check_examples(config, *records)
    message = f"one batch of {size + 1}, an epoch has {size}; lower train_data"
    with pytest.raises(UserError, match=message):
        check_examples(config.replace(global_batch_size=size + 1), *records)


@pytest.mark.parametrize(
    ("replicas", "settings"),
    [
        (8, {"max_examples": 6}),
        pytest.param(1, {"global_batch_size": 512, "drop_remainder": True}, marks=pytest.mark.long),
    ],
)
def test_validation_of_too_few_examples(small, replicas, settings):
    """No batch on any replica, or no whole one where these are wanted: an error, not silence."""
    records = small.open(is_training=False, bucket_boundaries=[], **settings)
    with pytest.raises(UserError, match=f"too few examples .* on {replicas} replica"):
        check_batches(*records, replicas)
