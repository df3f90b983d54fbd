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
from typing import Any

import google_crc32c
import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import refuse_special
from official_cmlm.common.protobuf_messages import Messages

# Key of the message `TrackableObjectGraph`: the children and variables of each object.
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# TensorFlow's suffix of the key of a variable's value.
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
# Number of a type in `DataType` -> its name in NumPy; bfloat16 is read as 16-bit integers.
_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 14: "<u2", 19: "<f2"}
_BFLOAT16 = 14
# Messages of tensor_bundle.proto, tensor_shape.proto and trackable_object_graph.proto.
_MESSAGES = Messages(
    "official_cmlm.checkpoints",
    {
        "BundleHeaderProto": {"num_shards": (1, "int32", None)},
        "Dimension": {"size": (1, "int64", None)},
        "Shape": {"dim": (2, "Dimension", [])},
        "BundleEntryProto": {
            "dtype": (1, "int32", None),
            "shape": (2, "Shape", None),
            "shard_id": (3, "int32", None),
            "offset": (4, "int64", None),
            "size": (5, "int64", None),
            # It is masked, see `_masked`.
            "crc32c": (6, "fixed32", None),
        },
        "ObjectReference": {"node_id": (1, "int32", None), "local_name": (2, "string", None)},
        "SerializedTensor": {"checkpoint_key": (3, "string", None)},
        "TrackableObject": {
            "children": (1, "ObjectReference", []),
            "attributes": (2, "SerializedTensor", []),
        },
        "TrackableObjectGraph": {"nodes": (1, "TrackableObject", [])},
    },
)


class Damaged(Exception):
    """Damage of a checkpoint's files; the message says which."""


@dataclasses.dataclass(frozen=True)
class TensorBundle:
    """A checkpoint whose index has been read.

    Attributes:
      prefix: the path of the checkpoint's files without their endings.
      entries: key -> `BundleEntryProto`, for all tensors.
      shards: number of data files.
    """

    prefix: str
    entries: Mapping[str, Any]
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
            header = _message("BundleHeaderProto", rows.pop(b"", b""))
            entries = {k.decode(): _message("BundleEntryProto", v) for k, v in rows.items()}
            return cls(prefix, entries, header.num_shards)
        except FileNotFoundError:
            raise UserError(f"{prefix}: no checkpoint there; name another folder") from None
        except (Damaged, IndexError, ValueError, struct.error) as error:
            raise damaged(prefix, f"its index cannot be read: {error}") from None

    @functools.cached_property
    def _objects(self) -> list[tuple[dict[str, int], str | None]]:
        """The object graph: for each object, the numbers of its children and its value's key."""
        try:
            # A string tensor holds the string's length, a checksum of the length, and the string.
            entry = self.entries[_GRAPH]
            data = self._bytes(entry)
            length, at = _varint(data, 0)
            graph = _message("TrackableObjectGraph", data[at + 4 : at + 4 + length])
            objects = []
            for node in graph.nodes:
                children = {child.local_name: child.node_id for child in node.children}
                key = node.attributes[0].checkpoint_key if node.attributes else None
                # Protobuf returns a string that is not UTF-8 as bytes.
                if not all(isinstance(name, str) for name in (*children, key or "")):
                    raise Damaged("a name is not UTF-8")
                objects.append((children, key))
            return objects
        except (Damaged, KeyError, IndexError, ValueError, struct.error) as error:
            raise damaged(self.prefix, f"its object graph cannot be read: {error}") from None

    def children(self, path: Sequence[str]) -> list[str]:
        """Lists the names of the children of the object at `path`; empty without such an object."""
        node = self._node(path)
        return [] if node is None else list(node[0])

    def key(self, path: Sequence[str]) -> str | None:
        """Returns the key of the variable at a path of names from the root; None if none exists."""
        node = self._node(path)
        return None if node is None else node[1]

    def _node(self, path: Sequence[str]) -> tuple[dict[str, int], str | None] | None:
        objects = self._objects
        node = objects[0] if objects else None
        for name in path:
            number = node[0].get(name) if node is not None else None
            node = objects[number] if number in range(len(objects)) else None
        return node

    def shape(self, key: str) -> tuple[int, ...]:
        """Returns the shape of a tensor."""
        return tuple(dimension.size for dimension in self._entry(key).shape.dim)

    def _entry(self, key: str) -> Any:
        if key not in self.entries:
            raise damaged(self.prefix, f"its index has no {key.removesuffix(VALUE)}")
        return self.entries[key]

    def _bytes(self, entry: Any) -> bytes:
        path = f"{self.prefix}.data-{entry.shard_id:05d}-of-{self.shards:05d}"
        refuse_special(path)
        try:
            with open(path, "rb") as file:
                file.seek(entry.offset)
                return file.read(entry.size)
        except FileNotFoundError:
            raise damaged(self.prefix, "a data file is missing") from None

    def read(self, key: str) -> np.ndarray:
        """Reads a tensor and compares it with its checksum; bfloat16 becomes float32.

        Raises:
          UserError: if the data file is missing or damaged, or the tensor's type is unknown.
        """
        entry = self._entry(key)
        name, shape = key.removesuffix(VALUE), self.shape(key)
        dtype = np.dtype(_TYPES.get(entry.dtype, "V1"))
        if entry.dtype not in _TYPES or math.prod(shape) * dtype.itemsize != entry.size:
            raise damaged(self.prefix, f"{name} is of an unknown type")
        data = self._bytes(entry)
        if len(data) != entry.size or _masked(google_crc32c.value(data)) != entry.crc32c:
            raise damaged(self.prefix, f"{name} does not have its checksum")
        array = np.frombuffer(data, dtype).reshape(shape)
        if entry.dtype == _BFLOAT16:
            # These are the upper halves of float32 numbers.
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array


def damaged(prefix: str, why: str) -> UserError:
    """Returns the error for a checkpoint that is damaged and was to be used."""
    return UserError(
        f"{prefix}: damaged ({why}); copy it again, or resume the training in "
        f"{Path(prefix).parent}, which starts from the checkpoint before it"
    )


def _masked(crc: int) -> int:
    # The table stores checksums in this form, as LevelDB does.
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a number with seven bits in each byte; returns it and the position after it."""
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
    # The footer has two handles: of the table's properties, and of its index of blocks.
    at = _varint(footer, _varint(footer, 0)[1])[1]
    start, at = _varint(footer, at)
    size, _ = _varint(footer, at)
    for _, handle in _block(data, start, size):
        offset, end = _varint(handle, 0)
        yield from _block(data, offset, _varint(handle, end)[0])


def _block(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values of a block; a key omits the beginning that it shares with the last."""
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


def _message(name: str, data: bytes) -> Any:
    """Parses a message."""
    from google.protobuf.message import DecodeError

    try:
        return _MESSAGES.parse(name, data)
    except DecodeError:
        raise Damaged(f"no {name}") from None
