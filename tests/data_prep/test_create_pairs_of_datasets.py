"""Pairs of data sets of TensorFlow Datasets: translations, labels, scores, and mistakes."""

import numpy as np
import pytest

from data_prep import create_pairs
from official_cmlm.common.errors import UserError
from official_cmlm.records.manifest import load_manifest
from tests.data_prep.binaries import run_binary
from tests.prepared_datasets import write_dataset

tfds = pytest.importorskip("tensorflow_datasets")

_TRANSLATIONS = [{"en": f"the {w} sat", "de": f"das {w} ran"} for w in ("cat", "dog", "bird")]
_LABELS = ("entailment", "neutral", "contradiction")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Writes translations; and inferences, of which the last one has no label."""
    root, kinds = tmp_path_factory.mktemp("tfds"), tfds.features
    translation = kinds.Translation(languages=("en", "de"))
    write_dataset(root, "para_crawl/ende/1.2.0", translation, {"train": _TRANSLATIONS})
    inference = kinds.FeaturesDict(
        {
            "premise": kinds.Text(),
            "hypothesis": kinds.Text(),
            "label": kinds.ClassLabel(names=_LABELS),
            "grade": kinds.Scalar(np.float32),
            "words": kinds.Sequence(kinds.Text()),
        }
    )
    rows = [
        {"premise": "the cat", "hypothesis": f"the {n}", "label": n, "grade": g, "words": ["a"]}
        for n, g in ((1, 0.0), (0, 3.8), (2, 5.0), (-1, 2.5))
    ]
    write_dataset(root, "little_nli/plain/1.0.0", inference, {"train": rows, "test": rows[1:]})
    return root


@pytest.fixture
def run(tmp_path, vocabulary, data_dir):
    """Runs the binary in this process; returns the checksums of the shards of its records."""
    vocabulary.save(tmp_path)

    def run(**values):
        paths = {"vocab_file": tmp_path / "vocab.txt", "output_dir": tmp_path / "out"}
        datasets = {"tfds_data_dir": data_dir} if "tfds" in values else {}
        run_binary(create_pairs, **paths, **datasets, **values, keep_text=True, overwrite=True)
        return [shard.sha256 for shard in load_manifest(tmp_path / "out", "pairs").shards]

    return run


def test_translations_are_those_of_files_of_lines(run, tmp_path):
    """The features of the two languages, in the order of --languages."""
    for language in ("en", "de"):
        lines = "".join(f"{row[language]}\n" for row in _TRANSLATIONS)
        (tmp_path / f"train.{language}").write_text(lines)
    files = f"{tmp_path}/train.de,{tmp_path}/train.en"
    expected = run(input=files, languages="de,en")
    assert run(tfds="para_crawl/ende", languages="de-en") == expected
    assert run(tfds="para_crawl/ende", languages="de", columns="de,en") != expected


def test_labels_and_scores_are_those_of_a_table(run, tmp_path):
    """Labels have their names, -1 stands for none; a split may be chosen."""
    rows = ["the cat,the 0,entailment,3.8", "the cat,the 2,contradiction,5", "the cat,the -1,-,2.5"]
    table = "\n".join(["premise,hypothesis,label,grade", *rows])
    (tmp_path / "table.csv").write_text(table)
    columns = {"columns": "premise,hypothesis", "label_column": "label", "languages": "en"}
    columns |= {"score_column": "grade", "score_max": 5}
    expected = run(input=tmp_path / "table.csv", format="table", **columns)
    assert run(tfds="little_nli/plain", tfds_split="test", **columns) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "name files of pairs with --input, or data sets with --tfds"),
        ({"tfds": "x", "format": "moses"}, "--tfds, which has no --format"),
        ({"input": "y", "tfds_split": "test"}, "--tfds_split: only data sets"),
        ({"tfds": "para_crawl/ende", "languages": "en"}, "with --tfds and no --columns name two"),
        ({"tfds": "a,b"}, "1 languages for 2 data sets of --tfds"),
        ({"tfds": "para_crawl/ende", "columns": "en"}, "--columns=en: .* needs two"),
        ({"tfds": "para_crawl/enfr"}, "para_crawl/enfr: not prepared in .*--tfds_data_dir"),
        ({"tfds": "para_crawl/ende", "languages": "en-fr"}, "no feature 'fr' .* de, en"),
        ({"tfds": "little_nli/plain", "columns": "premise,words"}, "no feature 'words' of one"),
        ({"tfds": "little_nli/plain", "columns": "premise,grade"}, '"grade" is not of the right'),
    ],
)
def test_mistakes(run, values, message):
    """Each is one line, and nothing is fetched."""
    with pytest.raises(UserError, match=message) as caught:
        run(**{"languages": "en-de"} | values)
    assert "\n" not in str(caught.value)
