"""Reads TensorFlow's checkpoints without TensorFlow.

A checkpoint `ckpt-1` is a table `ckpt-1.index`, in the format of LevelDB and uncompressed, and its
data in files `ckpt-1.data-00000-of-00001`. The table maps the key of each tensor to a protobuf
message `BundleEntryProto`: where the tensor's bytes are, and their CRC-32C
(tensorflow/core/protobuf/tensor_bundle.proto, tensorflow/core/lib/io/table_format.txt).
"""

import dataclasses
import functools
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import google_crc32c
import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.files import refuse_special

# Key of the message `TrackableObjectGraph`: which object holds which others, and their variables.
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# TensorFlow's suffix of the key of a variable's value.
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
# Number of a type in `DataType` -> its name in NumPy; bfloat16 is read as 16-bit integers.
_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 14: "<u2", 19: "<f2"}
_BFLOAT16 = 14


class Damaged(Exception):
    """Damage of a checkpoint's files; the message says which."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """The place of a tensor.

    Attributes:
      dtype: number of its type in TensorFlow's `DataType`.
      shape: its dimensions.
      shard: number of its data file.
      offset, size: of its bytes in that file.
      crc: masked CRC-32C of its bytes.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int


@dataclasses.dataclass(frozen=True)
class TensorBundle:
    """A checkpoint whose index has been read.

    Attributes:
      prefix: of the checkpoint's files.
      entries: key -> place, of all tensors.
      shards: number of data files.
    """

    prefix: str
    entries: Mapping[str, Entry]
    shards: int

    @classmethod
    def open(cls, prefix: str) -> "TensorBundle":
        """Reads the index.

        Raises:
          UserError: if it is missing or damaged.
        """
        refuse_special(f"{prefix}.index")
        try:
            rows = dict(_table(Path(f"{prefix}.index").read_bytes()))
            header = _message(rows.pop(b"", b""))
            entries = {key.decode(): _entry(value) for key, value in rows.items()}
            return cls(prefix, entries, _number(header, 1))
        except FileNotFoundError:
            raise UserError(f"{prefix}: no checkpoint there; name another folder") from None
        except (Damaged, IndexError, ValueError, struct.error) as error:
            raise _damaged(prefix, f"its index cannot be read: {error}") from None

    @functools.cached_property
    def _objects(self) -> list[tuple[dict[str, int], str | None]]:
        """The object graph: of each object its children by name, and the key of its value."""
        try:
            # The bytes of a string come after its length and a checksum of that.
            entry = self.entries[_GRAPH]
            data = self._bytes(entry)
            length, at = _varint(data, 0)
            text = data[at + 4 : at + 4 + length]
            objects = []
            for node in _all(_message(text), 1):
                fields = _message(node)
                children = [_message(child) for child in _all(fields, 1)]
                values = [_message(value) for value in _all(fields, 2)]
                names = {_text(child, 2): _number(child, 1) for child in children}
                objects.append((names, _text(values[0], 3) if values else None))
            return objects
        except (Damaged, KeyError, IndexError, ValueError, struct.error) as error:
            raise _damaged(self.prefix, f"its object graph cannot be read: {error}") from None

    def children(self, path: Sequence[str]) -> list[str]:
        """Lists the names of the objects that the object at `path` holds; empty without one."""
        node = self._node(path)
        return [] if node is None else list(node[0])

    def key(self, path: Sequence[str]) -> str | None:
        """Returns the key of the variable at a path of names from the root; None without one."""
        node = self._node(path)
        return None if node is None else node[1]

    def _node(self, path: Sequence[str]) -> tuple[dict[str, int], str | None] | None:
        objects = self._objects
        node = objects[0] if objects else None
        for name in path:
            number = node[0].get(name) if node is not None else None
            node = objects[number] if number is not None and number < len(objects) else None
        return node

    def _bytes(self, entry: Entry) -> bytes:
        path = f"{self.prefix}.data-{entry.shard:05d}-of-{self.shards:05d}"
        refuse_special(path)
        try:
            with open(path, "rb") as file:
                file.seek(entry.offset)
                return file.read(entry.size)
        except FileNotFoundError:
            raise _damaged(self.prefix, "a data file is missing") from None

    def read(self, key: str) -> np.ndarray:
        """Reads a tensor and compares it with its checksum; bfloat16 becomes float32.

        Raises:
          UserError: if the data file is missing or damaged, or the tensor is not of numbers.
        """
        entry = self.entries[key]
        name = key.removesuffix(_VALUE)
        dtype = np.dtype(_TYPES.get(entry.dtype, "V1"))
        if entry.dtype not in _TYPES or math.prod(entry.shape) * dtype.itemsize != entry.size:
            raise _damaged(self.prefix, f"{name} is of an unknown type")
        data = self._bytes(entry)
        if len(data) != entry.size or _masked(google_crc32c.value(data)) != entry.crc:
            raise _damaged(self.prefix, f"{name} does not have its checksum")
        array = np.frombuffer(data, dtype).reshape(entry.shape)
        if entry.dtype == _BFLOAT16:
            # These are the upper halves of float32 numbers.
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array


def _damaged(prefix: str, why: str) -> UserError:
    return UserError(
        f"{prefix}: damaged ({why}); copy it again, or resume the training in "
        f"{Path(prefix).parent}, which starts from the checkpoint before it"
    )


def _masked(crc: int) -> int:
    # The table stores checksums in this form, as LevelDB does.
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a number of seven bits a byte; returns it and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise Damaged("a number is too long")


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values of a table."""
    if len(data) < _FOOTER or struct.unpack_from("<Q", data, len(data) - 8)[0] != _MAGIC:
        raise Damaged("it is cut short")
    footer = data[-_FOOTER:]
    # The handle of the table's properties comes before the one of its index of blocks.
    at = _varint(footer, _varint(footer, 0)[1])[1]
    start, at = _varint(footer, at)
    size, _ = _varint(footer, at)
    for _, handle in _block(data, start, size):
        offset, end = _varint(handle, 0)
        yield from _block(data, offset, _varint(handle, end)[0])


def _block(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values of a block, whose keys share their beginnings with those before."""
    block, kind = data[start : start + size], data[start + size]
    (crc,) = struct.unpack_from("<I", data, start + size + 1)
    if kind != 0 or _masked(google_crc32c.value(data[start : start + size + 1])) != crc:
        raise Damaged("a block does not have its checksum")
    (restarts,) = struct.unpack_from("<I", block, size - 4)
    end, at, key = size - 4 * (restarts + 1), 0, b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own + length
        yield key, block[at - length : at]


_Field = tuple[int, int | bytes]


def _message(data: bytes) -> list[_Field]:
    """Returns the fields of a protobuf message: number, and an integer or bytes."""
    fields: list[_Field] = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        elif kind == 5:
            (value,) = struct.unpack_from("<I", data, at)
            at += 4
        else:
            raise Damaged("a message has an unknown field")
        fields.append((tag >> 3, value))
    return fields


def _number(fields: list[_Field], number: int) -> int:
    found = [value for key, value in fields if key == number]
    return int(found[-1]) if found and isinstance(found[-1], int) else 0


def _all(fields: list[_Field], number: int) -> list[bytes]:
    return [value for key, value in fields if key == number and isinstance(value, bytes)]


def _text(fields: list[_Field], number: int) -> str:
    return b"".join(_all(fields, number)[-1:]).decode()


def _entry(value: bytes) -> Entry:
    """Reads a `BundleEntryProto`."""
    fields = _message(value)
    shape = b"".join(_all(fields, 2)[-1:])
    dimensions = tuple(_number(_message(size), 1) for size in _all(_message(shape), 2))
    return Entry(_number(fields, 1), dimensions, *(_number(fields, n) for n in (3, 4, 5, 6)))
