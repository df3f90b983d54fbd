"""SentEval's COCO files: the publisher's form, other forms told in one line."""

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.coco import read_coco
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import MissingData
from tests.evaluation import coco_files


def _write(root, **changes):
    """Writes files of four images each, `train` with the changes."""
    (root / "COCO").mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid", "test"):
        value = coco_files.part(4) | (changes if name == "train" else {})
        (root / "COCO" / f"{name}.pkl").write_bytes(coco_files.make_pickle(value))


@pytest.mark.parametrize("as_dict", [False, True])
def test_publishers_form(tmp_path, as_dict):
    """The first five captions of each image, with a full stop; lists or dicts by number."""
    value = coco_files.part(4)
    captions = value["captions"]
    captions[0]["cleaned_caption"] = "two  caf\xe9s "
    ids = value["image_to_caption_ids"]
    ids[3] = [5, 0, 1, 2, 3, 4]
    if as_dict:
        value |= {"features": list(value["features"]), "captions": dict(enumerate(captions))}
        value["image_to_caption_ids"] = dict(enumerate(ids))
    _write(tmp_path, **value)
    data = DataFolder(tmp_path)
    train = read_coco(data, tmp_path)["train"]
    assert train.images.dtype == np.float32
    np.testing.assert_array_equal(train.images, np.asarray(value["features"]))
    assert len(train.captions) == 20
    assert train.captions[0] == "two cafés ."
    assert train.captions[15].split()[-3:] == ["0", "5", "."]
    assert train.captions[16] == "two cafés ."
    assert set(data.files) == {f"COCO/{name}.pkl" for name in ("train", "valid", "test")}
    assert data.warnings == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": 3}, "features is a int, not rows of numbers"),
        ({"features": ["a"]}, "features is not a list of arrays of one shape"),
        ({"features": [np.zeros(3), np.zeros(4)]}, "features is not a list of arrays of one shape"),
        ({"features": np.zeros(3)}, r"features has the shape \(3,\)"),
        ({"features": np.zeros([0, 3])}, r"features has the shape \(0, 3\)"),
        ({"features": np.full([4, 3], np.nan)}, "values that are not finite"),
        ({"features": np.zeros([4, 3])}, "images of different widths"),
        ({"features": np.zeros([5, 6])}, "image_to_caption_ids has no entry 4"),
        ({"image_to_caption_ids": [[1, 2, 3]] * 4}, "image 0 has no 5 captions"),
        ({"image_to_caption_ids": [[1, 2, 3, 4, 99]] * 4}, "captions has no entry 99"),
        ({"image_to_caption_ids": [["a"] * 5] * 4}, "captions has no entry a"),
        ({"image_to_caption_ids": [[[1]] * 5] * 4}, "captions has no entry <list>"),
        ({"captions": ["a cat"] * 24}, "a caption without a string cleaned_caption"),
        ({"captions": [{"cleaned_caption": 3}] * 24}, "a caption without a string"),
    ],
)
def test_other_structures(tmp_path, changes, message):
    """The message says the structure found, the expected one, and the source."""
    _write(tmp_path, **changes)
    with pytest.raises(UserError, match=message) as error:
        read_coco(DataFolder(tmp_path), tmp_path)
    assert "\n" not in str(error.value)
    assert "coco_r101_feat" in str(error.value)


def test_other_contents(tmp_path):
    """No dict, other keys, code, and files that are not there."""
    _write(tmp_path)
    path = tmp_path / "COCO/train.pkl"
    for content, message in (
        (coco_files.make_pickle(["a"]), "found a list"),
        (coco_files.make_pickle({"images": 1}), "found keys images, but not features, captions"),
        (b"cposix\nsystem\n(S'id'\ntR.", "the name 'posix.system', which is not admitted"),
        (b"version https://git-lfs.github.com/spec/v1\n", "damaged or truncated"),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"train.pkl: {message}"):
            read_coco(DataFolder(tmp_path), tmp_path)
    path.unlink()
    with pytest.raises(MissingData, match="train.pkl"):
        read_coco(DataFolder(tmp_path), tmp_path)


def test_one_row_many_times(tmp_path):
    """A small file that names a large row again and again does not fill the memory."""
    row = coco_files.binary(np.zeros(1000, np.float32))
    features = b"](" + row + b"q\x01" + b"h\x01" * 5000 + b"e"
    value = coco_files.binary({"captions": [], "image_to_caption_ids": []})
    (tmp_path / "COCO").mkdir()
    content = b"\x80\x02" + value[:-1] + b"U\x08features" + features + b"u."
    (tmp_path / "COCO/train.pkl").write_bytes(content)
    with pytest.raises(UserError, match="features has 5001 rows, more than its file holds"):
        read_coco(DataFolder(tmp_path), tmp_path)
