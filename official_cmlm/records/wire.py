"""Serialises `tf.train.Example` protocol buffers, for whole batches at once.

The protobuf library executes Python code for each number. Here NumPy encodes all numbers of a
batch, and an Example is assembled from slices. The bytes are equal to those of
`SerializeToString(deterministic=True)`, which writes features in the order of their names.
Source: https://protobuf.dev/programming-guides/encoding and tensorflow/core/example/feature.proto.
"""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# Field number << 3 | 2, of a field with a length in front: the 1st and the 2nd field of a message,
# and `Feature.int64_list`, the 3rd.
_FIRST, _SECOND, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"
# A feature's name -> its entry without the length in front and without the value.
_NAMES: dict[str, bytes] = {}


@dataclasses.dataclass(frozen=True)
class Varints:
    """Numbers in the encoding of a packed field, concatenated.

    Attributes:
      data: the bytes of all.
      bounds: `[numbers + 1]` int64; number i has `data[bounds[i]:bounds[i + 1]]`.
    """

    data: bytes
    bounds: "np.ndarray"

    @classmethod
    def of(cls, values: "np.ndarray") -> "Varints":
        """Encodes integers `[numbers]` of 0 or more: seven bits a byte, the lowest first."""
        import numpy as np

        largest = int(values.max(initial=0))
        # Half the memory to go through; vocabularies are far smaller.
        values = values.astype(np.uint32 if largest < 1 << 32 else np.uint64)
        sizes = np.ones(len(values), np.uint8)
        for bits in range(7, max(largest.bit_length(), 1), 7):
            sizes += values >= 1 << bits
        bounds = np.zeros(len(values) + 1, np.int64)
        np.cumsum(sizes, dtype=np.int64, out=bounds[1:])
        data = np.zeros(bounds[-1], np.uint8)
        for place in range(int(sizes.max(initial=0))):
            chosen = np.flatnonzero(sizes > place) if place else slice(None)
            more = (sizes[chosen] > place + 1).astype(np.uint8) << 7
            low = (values[chosen] >> 7 * place).astype(np.uint8) & 0x7F
            data[bounds[:-1][chosen] + place] = low | more
        return cls(data.tobytes(), bounds)


def int64_list(packed: bytes) -> bytes:
    """A `Feature` of integers, of the varints of one packed field."""
    field = _sized(_FIRST, packed) if packed else b""
    return _sized(_INT64_LIST, field)


def bytes_list(values: Iterable[bytes]) -> bytes:
    """A `Feature` of strings."""
    return _sized(_FIRST, b"".join(_sized(_FIRST, value) for value in values))


def entry(name: str, feature: bytes) -> bytes:
    """One feature of an Example, of what `int64_list` or `bytes_list` gives."""
    head = _NAMES.get(name)
    if head is None:
        head = _NAMES[name] = _sized(_FIRST, name.encode())
    return _sized(_FIRST, head + _sized(_SECOND, feature))


def example(entries: Iterable[bytes]) -> bytes:
    """A serialised `tf.train.Example`.

    Args:
      entries: what `entry` gives, in the order of the names, of which none begins with another.
    """
    return _sized(_FIRST, b"".join(entries))


def _sized(tag: bytes, value: bytes) -> bytes:
    size = len(value)
    if size < 128:
        return tag + bytes((size,)) + value
    if size < 1 << 14:
        return tag + bytes((size & 0x7F | 0x80, size >> 7)) + value
    length = bytearray()
    while size >= 128:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return tag + bytes(length) + value
