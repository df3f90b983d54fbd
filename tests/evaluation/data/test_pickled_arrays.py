"""Pickles: those of publishers are read, those that call or import anything are refused."""

import io
import subprocess
import sys

import numpy as np
import pytest

from official_cmlm.evaluation.data.pickled_arrays import Refused, array, read_pickle
from tests.evaluation import coco_files

# Python's own pickles of plain data and arrays; a process of its own, since nothing here unpickles.
_WRITE = """
import pickle, sys
import numpy as np
value = {"a": [1, -2, 2**40, True, None, 0.5, "caf\\u00e9", "x" * 70000, ()],
         7: ("t", (1, 2, 3, 4)),
         "same": [[1], [1]], "f": np.arange(6, dtype="f4").reshape(2, 3),
         "i": np.asfortranarray([[1, 2], [3, 4]], dtype=">i8"), "b": np.array([True, False])}
value["same"][1] = value["same"][0]
sys.stdout.buffer.write(pickle.dumps(value, int(sys.argv[1])))
"""


def _read(content):
    return read_pickle(io.BytesIO(content))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_pythons_own_pickles(protocol):
    """All kinds of values, shared ones once, arrays of either byte order and memory order."""
    done = subprocess.run(
        [sys.executable, "-c", _WRITE, str(protocol)], capture_output=True, check=True, timeout=60
    )
    found = _read(done.stdout)
    assert found["a"] == [1, -2, 2**40, True, None, 0.5, "café", "x" * 70000, ()]
    assert found[7] == ("t", (1, 2, 3, 4))
    assert found["same"] == [[1], [1]] and found["same"][0] is found["same"][1]
    assert array(found["f"]).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert array(found["i"]).tolist() == [[1, 2], [3, 4]]
    assert array(found["b"]).tolist() == [True, False]
    assert array(found["a"]) is None


@pytest.mark.parametrize("protocol", [0, 2])
def test_pickles_of_python_2(protocol):
    """Strings are bytes there; quotes, line ends and all 256 values survive in arrays."""
    values = np.arange(512, dtype=np.uint8).reshape(2, 256)
    found = _read(coco_files.pickled({"x": values, "s": ["it's", 'a "b"\\\n']}, protocol))
    assert np.array_equal(array(found["x"]), values)
    assert found["s"] == ["it's", 'a "b"\\\n']
    long = np.arange(40000, dtype=np.float32)
    assert np.array_equal(array(_read(coco_files.pickled(long, protocol))), long)


ARRAY = coco_files.pickled(np.zeros([2, 3], np.float32))
ZEROS = bytes(24)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"cposix\nsystem\n(S'touch hacked'\ntR.",
            "the name 'posix.system', which is not admitted",
        ),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "the name 'os.system'"),
        (b"(S'id'\nios\nsystem\n.", "instruction b'i'"),
        (b"(cos\nsystem\nS'id'\no.", "the name 'os.system'"),
        (b"cnumpy.core.multiarray\nscalar\n.", "the name 'numpy.core.multiarray.scalar'"),
        (b"c__builtin__\neval\n(S'1'\ntR.", "the name '__builtin__.eval'"),
        (b"cnumpy\nndarray\n(I1000000000\ntR.", "a call of ndarray"),
        (b"cnumpy\nndarray\n)\x81.", "instruction b.*x81"),
        (b"S'os'\n)R.", "a call which is not admitted"),
        (b"cnumpy\ndtype\n(S'O'\ntR.", "an array of type 'O', numbers only"),
        (b"cnumpy\ndtype\n(S'O8'\ntR.", "an array of type 'O8', numbers only"),
        (b"cnumpy\ndtype\n(S'V9'\ntR.", "an array of type 'V9'"),
        (b"cnumpy\ndtype\n(S'f8,O'\ntR.", "an array of type 'f8,O'"),
        (
            b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I99\ntS'b'\ntR.",
            "damaged array",
        ),
        (b"c_codecs\nencode\n(S'eA=='\nS'base64'\ntR.", "a call of encode"),
        (b"](K\x01}b.", "a state for no array"),
        (b"}(]K\x01u.", "a key of type list"),
        (b"})K\x01s.", "a key of type tuple"),
        (b"Pid\n.", "instruction b'P'"),
        (b"\x82\x01.", "instruction b.*x82"),
        (b"j\xff\xff\xff\xff.", "damaged or truncated"),
        (b"K\x01r\xff\xff\xff\xff" + b"K\x02.", "damaged or truncated"),
        (b"T\xff\xff\xff\x7fab", "a length of 2147483647 at byte 5 of 7"),
        (b"\x8e" + b"\xff" * 8, "a length of 18446744073709551615"),
        (b"T\xff\xff\xff\xff", "a length of -1"),
        (b"I" + b"9" * 30 + b"\n.", "more than 20 digits"),
        (b"S'a\n.", "a string without quotes"),
        (b"a.", "damaged or truncated"),
        (b"t.", "no mark at byte 1"),
        (b"K\x01\x86.", "a tuple without its items"),
        (b"", "the file ends too early"),
        (b"PK\x03\x04", "instruction b'P'"),
        (ARRAY.replace(b"f4", b"f8"), r"an array of shape \(2, 3\) without its 48 bytes"),
        (
            ARRAY.replace(b"J\x02\0\0\0J", b"J\xff\xff\xff\x7fJ", 1),
            r"shape \(2147483647, 3\) without its",
        ),
        (ARRAY.replace(b"J\x02\0\0\0J", b"J\xfe\xff\xff\xffJ", 1), r"an array of shape \(-2, 3\)"),
        (ARRAY.replace(b"U\x01<", b"U\x01q"), "a damaged array type"),
        (ARRAY.replace(ZEROS, ZEROS[:-1] + b"tb."), "."),
    ],
)
def test_hostile_pickles(content, message, tmp_path, monkeypatch):
    """One line says what is there; nothing runs, and nothing is allocated for a false length."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match=message) as refused:
        _read(content)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_truncated_anywhere():
    """A file that ends too early is refused at every length."""
    whole = coco_files.pickled(coco_files.part(2))
    assert set(_read(whole)) == {"features", "captions", "image_to_caption_ids"}
    for size in range(len(whole)):
        with pytest.raises(Refused):
            _read(whole[:size])


def test_deep_nesting():
    """Depth is no recursion."""
    found = _read(b"]" + b"]" * 100_000 + b"a" * 100_000 + b".")
    assert len(found) == 1
    with pytest.raises(Refused, match="a key of type tuple"):
        _read(b"})" + b"\x85" * 100_000 + b"K\x01s.")


# Tuples that name their parts twice: printed or hashed they are 2^20 values, in 46 bytes.
SHARED = b"K\x01\x85" + b"2\x86" * 20
DEEP = b")" + b"\x85" * 100_000
_SHAPE = b"(J\x02\0\0\0J\x03\0\0\0t"


@pytest.mark.parametrize("nested", [SHARED, DEEP])
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (b"cnumpy\ndtype\n", b"\x85R.", "an array of type '<tuple>', numbers only are admitted"),
        (
            ARRAY[: ARRAY.index(_SHAPE)],
            ARRAY[ARRAY.index(_SHAPE) + len(_SHAPE) :],
            "an array of shape (<tuple>",
        ),
        (b"X\x05\0\0\0numpy", b"\x93.", "the name 'numpy.<tuple>', which is not admitted"),
        (b"", b"X\x05\0\0\0dtype\x93.", "the name '<tuple>.dtype', which is not admitted"),
        (b"c_codecs\nencode\n", b"X\x06\0\0\0latin1\x86R.", "damaged or truncated at byte"),
        (b"c_codecs\nencode\nU\x01a", b"\x86R.", "a call of encode which is not admitted"),
        (b"}", b"K\x01s.", "a key of type tuple"),
        (b"", b")R.", "a call which is not admitted"),
        (b"", b"}b.", "a state for no array"),
    ],
)
def test_nested_values_in_false_places(nested, before, after, message):
    """Only their type is told: no text of 2^depth parts, and no recursion into the depth."""
    with pytest.raises(Refused) as refused:
        _read(before + nested + after)
    assert message in str(refused.value)


def test_one_string_many_times():
    """A long string that is turned to bytes again and again does not fill the memory."""
    text = b"X" + (40_000).to_bytes(4, "little") + b"a" * 40_000
    codec = b"c_codecs\nencode\nq\x01X\x06\0\0\0latin1q\x02" + text + b"q\x00"
    once = b"(" + codec + b"h\x01h\x00h\x02\x86R"
    assert _read(once + b"t.")[-1] == b"a" * 40_000
    with pytest.raises(Refused, match="more bytes in strings than its file of 40057 holds"):
        _read(once + b"h\x01h\x00h\x02\x86R" + b"t.")


def test_arrays_of_protocol_5():
    """Plain data are read; arrays are written by another name there, which is told."""
    write = "import pickle, sys, numpy as np; sys.stdout.buffer.write(pickle.dumps({}, 5))"
    for value, message in (("{'a': [1, 'x']}", ""), ("np.zeros(3)", "numeric._frombuffer'")):
        done = subprocess.run(
            [sys.executable, "-c", write.format(value)],
            capture_output=True,
            check=True,
            timeout=60,
        )
        if not message:
            assert _read(done.stdout) == {"a": [1, "x"]}
            continue
        with pytest.raises(Refused, match=message):
            _read(done.stdout)
