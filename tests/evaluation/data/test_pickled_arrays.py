"""Pickles: those of publishers are read, those that name anything but arrays are refused."""

import io
import pickle

import numpy as np
import pytest

from official_cmlm.evaluation.data.pickled_arrays import Refused, read_pickle
from tests.evaluation import coco_files


def _read(content):
    return read_pickle(io.BytesIO(content))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_pythons_own_pickles(protocol):
    """Plain data, and arrays of either byte order and memory order."""
    value = {
        "a": [1, -2, 2**40, True, None, 0.5, "caf\u00e9", "x" * 70000, ()],
        7: ("t", (1, 2, 3, 4)),
        "f": np.arange(6, dtype="f4").reshape(2, 3),
        "i": np.asfortranarray([[1, 2], [3, 4]], dtype=">i8"),
    }
    result = _read(pickle.dumps(value, protocol))
    assert result["a"] == value["a"] and result[7] == value[7]
    for name in ("f", "i"):
        np.testing.assert_array_equal(result[name], value[name])
        assert result[name].dtype == value[name].dtype.newbyteorder("=")


def test_pickles_of_python_2():
    """Strings are bytes there; quotes, line ends and all 256 values survive in arrays."""
    values = np.arange(512, dtype=np.uint8).reshape(2, 256)
    result = _read(coco_files.make_pickle({"x": values, "s": ["it's", 'a "b"\\\n']}))
    np.testing.assert_array_equal(result["x"], values)
    assert result["s"] == ["it's", 'a "b"\\\n']


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"cposix\nsystem\n(S'touch hacked'\ntR.", "posix.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "os.system"),
        (b"(S'id'\nios\nsystem\n.", "os.system"),
        (b"(cos\nsystem\nS'id'\no.", "os.system"),
        (b"cnumpy.core.multiarray\nscalar\n.", "numpy.core.multiarray.scalar"),
        (b"c__builtin__\neval\n(S'1'\ntR.", "(__builtin__|builtins).eval"),
        (b"cnumpy\nndarray.tofile\n.", "numpy.ndarray.tofile"),
        (pickle.dumps(np.zeros(3), 5), "numpy.*_frombuffer"),
    ],
)
def test_any_other_name_is_refused(content, name, tmp_path, monkeypatch):
    """One line names it; nothing is imported, called or written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match=f"the name '{name}', which is not admitted") as refused:
        _read(content)
    assert "\n" not in str(refused.value) and list(tmp_path.iterdir()) == []


ARRAY = coco_files.make_pickle(np.zeros([2, 3], np.float32))


@pytest.mark.parametrize(
    "content",
    [
        b"PK\x03\x04",
        b"S'os'\n)R.",
        b"T\xff\xff\xff\x7fab",
        b"\x82\x01.",
        ARRAY.replace(b"f4", b"f8"),
        ARRAY.replace(b"J\x02\0\0\0J", b"J\xff\xff\xff\x7fJ", 1),
    ],
)
def test_damaged_pickles(content):
    """One line says so."""
    with pytest.raises(Refused, match="damaged or truncated") as refused:
        _read(content)
    assert "\n" not in str(refused.value)


def test_truncated_anywhere():
    """A file that ends too early is refused at every length."""
    whole = coco_files.make_pickle(coco_files.part(2))
    assert set(_read(whole)) == {"features", "captions", "image_to_caption_ids"}
    for size in range(len(whole)):
        with pytest.raises(Refused):
            _read(whole[:size])
