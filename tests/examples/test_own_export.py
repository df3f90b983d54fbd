"""An exporter outside of the package, by `cmlm export`; the frame's refusals and privacy."""

import numpy as np
import pytest
import yaml

from official_cmlm import command
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.encoder_weights import read_weights
from official_cmlm.encoding.exporting import without_folders
from tests.binaries import call_program
from tests.conftest import write_encoder
from tests.docs.pages import ROOT


@pytest.fixture
def run_export(tmp_path, capsys):
    """Runs `cmlm export` for the example; returns its last line and its status."""

    def run_export(*arguments):
        own = ("export", str(tmp_path / "model"), "--to", "examples.own_export")
        status, printed = call_program(command.main, "cmlm", *own, *arguments), capsys.readouterr()
        if isinstance(status, str):
            return status, 1
        return (printed.err if status else printed.out).splitlines()[-1], status

    return run_export


@pytest.fixture
def folder(tmp_path, vocabulary):
    write_encoder(tmp_path / "model", vocabulary)
    (tmp_path / "model" / "params.yaml").write_text("a: {b: /home/me/news}\n")
    return tmp_path


def test_archive_holds_vocabulary_and_weights(folder, run_export):
    """The output is beside the encoder; the training's settings have no folders in them."""
    assert run_export("--number_type=float16") == (f"{folder}/model_own_export", 0)
    archive = np.load(folder / "model_own_export" / "encoder.npz")
    vocabulary = EncoderDirectory.open(folder / "model").vocabulary
    assert archive["vocabulary"].tolist() == list(vocabulary.tokens)
    table = archive["word_embeddings/embeddings"]
    assert len(table) == len(vocabulary) and table.dtype == np.float16
    published = (folder / "model_own_export" / "params.yaml").read_text()
    assert published.endswith("a: {b: news}\n") and "/home" not in published


def test_archive_holds_the_projection_of_a_projected_mean(tmp_path, vocabulary, run_export):
    settings = {"sentence_vector": "projected_mean", "num_projections": 3}
    write_encoder(tmp_path / "model", vocabulary, **settings)
    target = f"{tmp_path}/model_own_export"
    assert run_export() == (target, 0)
    layers = read_weights(EncoderDirectory.open(tmp_path / "model")).projection
    with np.load(f"{target}/encoder.npz") as archive:
        assert sum(name.startswith("projection/") for name in archive) == 2 * len(layers) > 0
        for number, pair in enumerate(layers):
            for kind, array in zip(("kernel", "bias"), pair, strict=True):
                np.testing.assert_array_equal(archive[f"projection/{kind}_{number}"], array)


def test_folder_with_files_of_others_is_kept(folder, run_export):
    target = folder / "model_own_export"
    target.mkdir()
    (target / "encoder.npz").touch()
    (target / "notes.txt").write_text("mine")
    line, status = run_export("--overwrite")
    assert status == 1 and "holds notes.txt, which this program has not written" in line
    assert (target / "notes.txt").read_text() == "mine"


def test_module_that_is_not_an_exporter_is_one_line(run_export):
    for module, message in (
        ("examples.nothing", "examples.nothing: cannot be imported (ModuleNotFoundError"),
        ("json.tool", "json.tool: has no define_flags; --to takes one of tfhub, onnx, litert, "),
    ):
        line, status = run_export(f"--to={module}")
        assert status == 1 and line.startswith(f"error: {message}")


PATHS = """
a: /home/me/my records/x   # said
b: ['/home/me/one', "~/two", 'file:///srv/three', C:\\Users\\me\\four]
c: {d: "/home/me/a-*,/home/me/b-*", e: gs://bucket/me, f: "1/2", g: /home/me/true}
h: &name /home/me/12
i: *name
j: |
  /home/me/five
k: relative/path
"""


def test_published_settings_hold_no_absolute_paths():
    """Paths of any spelling are shortened; all other values and texts stay the same."""
    text = without_folders(PATHS)
    assert "/me/" not in text and text.startswith("# Absolute") and "# said" in text
    assert yaml.safe_load(text) == {
        "a": "x",
        "b": ["one", "two", "three", "four"],
        "c": {"d": "a-*,b-*", "e": "gs://bucket/me", "f": "1/2", "g": "true"},
        "h": "12",
        "i": "12",
        "j": "five",
        "k": "relative/path",
    }
    for same in ("a: 1\nb: x/y  # z\n", "", "{", "a: https://x/y"):
        assert without_folders(same) == same
    assert "/home" not in without_folders('a: "/home/me/x')


def test_it_is_short():
    assert len((ROOT / "examples" / "own_export.py").read_text().splitlines()) < 70
