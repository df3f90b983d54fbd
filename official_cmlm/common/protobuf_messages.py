"""Messages of protobuf made from a table.

Generated code would require a certain release of protobuf, perhaps one that TensorFlow refuses.
"""

import functools
from collections.abc import Mapping
from typing import Any


class Messages:
    """A package of messages; their classes are made when the first one is needed."""

    def __init__(
        self, package: str, fields: Mapping[str, Mapping[str, tuple[int, str, Any]]]
    ) -> None:
        """Takes message -> field -> (number, type, default).

        A type is protobuf's name of it, or another message; a list as default makes the field
        repeated. Enums are integers. Other fields of a parsed message are kept unchanged.
        """
        self._package, self._fields = package, fields

    def new(self, kind: str, /, **fields: Any) -> Any:
        """Returns a message, e.g. `new("Dimension", size=3)`; dicts stand for inner messages."""
        return self._classes[kind](**fields)

    def parse(self, kind: str, content: bytes) -> Any:
        """Parses a message; raises protobuf's `DecodeError` for invalid bytes."""
        return self._classes[kind].FromString(content)

    @functools.cached_property
    def _classes(self) -> dict[str, type]:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        package = self._package
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{package}.proto", package=package, syntax="proto2"
        )
        for message, fields in self._fields.items():
            described_message = file.message_type.add(name=message)
            for field, (number, kind, default) in fields.items():
                described = described_message.field.add(name=field, number=number)
                repeated = isinstance(default, list)
                described.label = described.LABEL_REPEATED if repeated else described.LABEL_OPTIONAL
                described.type = getattr(described, f"TYPE_{kind.upper()}", described.TYPE_MESSAGE)
                if described.type == described.TYPE_MESSAGE:
                    described.type_name = f".{package}.{kind}"
                elif default is not None and not repeated:
                    described.default_value = default
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        return {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
            for name in self._fields
        }
