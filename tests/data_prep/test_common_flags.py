"""The flags that all binaries that read text share: what they make, and what they refuse."""

import os

import pytest
from absl import flags
from absl.testing import flagsaver

from data_prep import common_flags
from data_prep.readers import ReadOptions
from official_cmlm.common.errors import UserError


@pytest.fixture
def parse():
    """Parses flags; they are gone when the test is over."""
    with flagsaver.flagsaver():
        common_flags.define_reading()
        yield lambda *arguments: flags.FLAGS(["prog", *arguments])


def _paths():
    return [file.path for file in common_flags.text_files()]


def test_folder_of_data_sets_is_absolute(parse):
    """A worker may start in another directory; all else is as the flags say."""
    parse("--tfds_data_dir=d", "--max_line_mb=0.5")
    assert common_flags.reading_options() == ReadOptions(
        tfds_data_dir=os.path.abspath("d"), max_line_bytes=1 << 19
    )


def test_inputs(parse, tmp_path):
    """Files, then data sets; of a directory of source code only the source code."""
    for name in ("a.py", "b.so", "c.txt"):
        (tmp_path / name).write_text("x")
    parse(f"--input={tmp_path}", "--tfds=wikipedia/20230601.en,lm1b")
    paths = [f"{tmp_path}/{name}" for name in ("a.py", "b.so", "c.txt")]
    assert _paths() == [*paths, "tfds:wikipedia/20230601.en", "tfds:lm1b"]
    flags.FLAGS.tfds = []
    parse("--reader=docstrings")
    assert _paths() == paths[:1]


def test_data_sets_alone(parse, tmp_path):
    """They need no --input; files are not data sets."""
    parse("--tfds=lm1b", "--reader=tfds")
    assert _paths() == ["tfds:lm1b"]
    parse(f"--input={tmp_path}")
    with pytest.raises(UserError, match="--reader=tfds reads no files; name data sets with --tfds"):
        _paths()


@pytest.mark.parametrize("flag", ["tfds_data_dir=d", "tfds_split=train", "text_feature=body"])
def test_flags_of_data_sets_are_refused_without_one(parse, tmp_path, flag):
    parse(f"--input={tmp_path}", f"--{flag}")
    with pytest.raises(UserError, match="only data sets, which --tfds names, have it"):
        _paths()
