"""`dataset.json`: it agrees with the shards, and what is wrong with a folder is named."""

import dataclasses
import json
import shutil
from collections import Counter

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.records.manifest import check_vocabulary, load_manifest, load_records_vocabulary
from official_cmlm.tokenization import WordPieceVocabulary
from tests.inputs.pipelines import read_by_hand
from tests.pairs_helpers import nli_rows, write_pairs


@pytest.fixture
def folder(records_dir, tmp_path):
    """A copy of the tiny records that a test may damage."""
    return shutil.copytree(records_dir, tmp_path / "records")


def _edit(folder, **changes):
    path = folder / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _expect(folder, message, kind="documents"):
    with pytest.raises(UserError, match=message) as caught:
        load_manifest(folder, kind)
    assert str(folder) in str(caught.value)


def test_totals_against_a_recount(records_dir):
    """Every total is what reading the shards gives; repeated sentences count once."""
    manifest = load_manifest(records_dir, "documents")
    records = read_by_hand(records_dir)
    counted = [s for sentences, repeats in records for s in sentences[1 if repeats else 0 :]]
    assert manifest.records == len(records)
    assert manifest.sentences == len(counted) == sum(manifest.languages.values())
    assert manifest.tokens == sum(map(len, counted))
    assert manifest.documents == sum(not repeats for _, repeats in records) == 120
    lengths, lower = Counter(map(len, counted)), 0
    for bound, count in manifest.length_histogram.items():
        assert count == sum(n for length, n in lengths.items() if lower < length <= float(bound))
        lower = float(bound)
    assert lower == float("inf")


def test_round_trip(records_dir, tmp_path):
    """A saved manifest is loaded unchanged, and nothing else is left in the folder."""
    manifest = load_manifest(records_dir, "documents")
    empty = dataclasses.replace(manifest, shards=[], counters={"a b": 3}, languages={"": 2})
    empty.save(tmp_path)
    assert load_manifest(tmp_path, "documents") == empty
    assert [path.name for path in tmp_path.iterdir()] == ["dataset.json"]


def test_no_manifest(tmp_path):
    """The message says what writes one."""
    for kind in ("documents", "pairs"):
        _expect(tmp_path, f"no dataset.json; cmlm create-{kind}", kind)


def test_truncated_shard(folder):
    """Both sizes are named."""
    path = folder / "documents-00001.tfrecord"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    _expect(folder, f"00001.tfrecord: {len(data) - 1} bytes, dataset.json says {len(data)} ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "format version 2, this release reads 1"),
        ({"records": 0}, "holds no records"),
        *(
            ({"row_size": size}, "dataset.json: row_size must be ")
            for size in (0, -1, "3", 1.5, None, True)
        ),
        # The values of mappings are checked too.
        *(
            ({"languages": counts}, "dataset.json: languages.* must ")
            for counts in ({"en": -1}, {"en": "3"}, {"en": 1 << 63}, 3)
        ),
    ],
)
def test_wrong_values(folder, changes, message):
    """Each is named."""
    _edit(folder, **changes)
    _expect(folder, message)


def test_a_shard_that_ends_inside_a_row(vocabulary, tmp_path):
    """The shard is named, with its records and the size of a row."""
    folder = tmp_path / "pairs"
    manifest = write_pairs(folder, nli_rows(9), vocabulary, 700)
    assert manifest.row_size == 3 and load_manifest(folder, "pairs") == manifest
    shard = manifest.shards[1]
    wrong = 2 if shard.records % 2 else 4 if shard.records % 4 else 5
    _edit(folder, row_size=wrong)
    _expect(folder, rf"\.tfrecord: \d+ records do not divide into rows of {wrong} pairs", "pairs")


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b'{"kind": "docu', b"[]", b"null", b"3", b"{}", b"\xff\xfe{}", b"\0" * 100),
        *(b'{"shards": []}', b'{"shards": 1}', b'{"shards": [{"x": 1}]}'),
    ],
)
def test_damaged_json(folder, content):
    """Any other content of the file is answered by one line that names it."""
    (folder / "dataset.json").write_bytes(content)
    _expect(folder, r"dataset.json: (not |must hold an object|format version None).*again$")


def test_another_vocabulary(folder, vocabulary):
    """Both hashes and both sizes are named."""
    manifest = load_manifest(folder, "documents")
    assert load_records_vocabulary(folder, manifest).hash == vocabulary.hash
    other = WordPieceVocabulary((*vocabulary.tokens, "more"), True, 1000)
    with pytest.raises(UserError) as caught:
        check_vocabulary(folder, manifest, other)
    message = str(caught.value)
    assert str(folder) in message and vocabulary.hash in message and other.hash in message
    assert f"({len(vocabulary)} entries)" in message and f"({len(other)} entries)" in message
    other.save(folder)
    with pytest.raises(UserError, match=other.hash):
        load_records_vocabulary(folder, manifest)
