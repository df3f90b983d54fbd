"""Views of documents inside a pipeline: the same examples as by hand, and what is refused."""

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.checks import check_examples, unusable_records
from official_cmlm.inputs.document_spans import Spans
from official_cmlm.inputs.mirrored import Mirrored
from official_cmlm.inputs.pipeline import build_dataset
from official_cmlm.inputs.plan import Plan
from official_cmlm.inputs.reader import parse_block
from official_cmlm.inputs.views import AdjacentPairs, SpecialIds
from official_cmlm.records.manifest import load_manifest
from tests.conftest import make_documents, write_records
from tests.inputs.pipelines import blocks_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocabulary):
    """Documents with their text, some in several records."""
    path = tmp_path_factory.mktemp("with_text")
    write_records(path, make_documents(20), vocabulary, keep_text=True, max_sentences=6)
    return path


@pytest.fixture(scope="module")
def blocks(folder):
    """Reads the serialised records and keys of a validation pass."""
    config = DataConfig(input_path=str(folder), is_training=False, shuffle_sentences=30)
    read = blocks_of(config, load_manifest(folder)).epoch(0)
    blocks = [(serialized, keys) for _, serialized, keys in read]
    assert len(blocks) > 2
    return blocks


def _views(vocabulary):
    mirrored = ("word_repetition", "span_mask")
    return {
        "spans": Spans(1, 1, 4, 10, "all", SpecialIds.of(vocabulary)),
        "distant": AdjacentPairs("sentence", 24, 0.5, SpecialIds.of(vocabulary), 3),
        **{
            name: Mirrored("sentence", 24, name, 5, 30, 0.32, 0.15, vocabulary) for name in mirrored
        },
    }


def _by_key(names, batch):
    """Maps keys to the ids of each sequence."""
    rows = [row for row in zip(*(batch[name] for name in names), strict=True)]
    return dict(zip(batch["key"].tolist(), rows, strict=True))


@pytest.mark.parametrize(
    "name",
    [
        "span_mask",
        *(pytest.param(n, marks=pytest.mark.long) for n in ("spans", "distant", "word_repetition")),
    ],
)
def test_examples_are_those_of_the_view(folder, blocks, vocabulary, name):
    """A validation pass holds exactly the examples that the view makes of each record."""
    view = _views(vocabulary)[name]
    config = DataConfig(
        input_path=str(folder), seq_length=24, global_batch_size=16, is_training=False
    )
    expected = {}
    # Block after block as they come, without what a graph does to the view.
    for serialized, keys in blocks:
        examples = view(parse_block("documents", serialized, keys, view.reads_text))
        lists = {sequence: examples[sequence].to_list() for sequence in view.sequences}
        expected |= _by_key(view.sequences, lists | {"key": examples["key"].numpy()})
    by_key = {}
    batches = build_dataset(Plan.of(config, load_manifest(folder), view))
    for batch in batches.as_numpy_iterator():
        lists = {
            sequence: [
                ids[mask > 0].tolist()
                for ids, mask in zip(
                    batch[sequence]["input_word_ids"], batch[sequence]["input_mask"], strict=True
                )
            ]
            for sequence in view.sequences
        }
        by_key |= _by_key(view.sequences, lists | {"key": batch["key"]})
    assert len(by_key) > 15 and by_key == expected


@pytest.mark.long
def test_documents_that_are_too_short(folder, vocabulary):
    """No example at all is an error that says how long they must be."""
    config = DataConfig(input_path=str(folder), seq_length=24, global_batch_size=4)
    view = Spans(2, 1, 4, 512, "all", SpecialIds.of(vocabulary))
    with pytest.raises(UserError, match="Spans example .* at least 2048 tokens") as caught:
        check_examples(config, load_manifest(folder), view)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_short_records_are_counted(folder, blocks, vocabulary):
    """They are those that give no example; a sentence that a cut repeats does not count."""
    view = Spans(1, 1, 4, 20, "all", SpecialIds.of(vocabulary))
    config = DataConfig(input_path=str(folder), seq_length=24)
    parsed = [parse_block("documents", *block, with_text=False) for block in blocks]
    read = sum(block.keys.shape[0] for block in parsed)
    used = sum(view(block)["key"].shape[0] for block in parsed)
    assert 0 < used < read
    counts = f"{read - used} of {read} records of data have fewer than {view.min_record_tokens} "
    assert unusable_records(config, load_manifest(folder), view, "data") == [
        f"{counts}tokens and are skipped"
    ]
