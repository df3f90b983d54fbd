"""Message classes of protobuf made from a table.

Generated code would ask for a release of protobuf, which may not be one that TensorFlow takes.
"""

from collections.abc import Mapping
from typing import Any

# Message -> field -> (number, type, default). A type is a name of protobuf's or another message; a
# list as default makes the field repeated. Enums are integers. Other fields are kept unchanged.
Messages = Mapping[str, Mapping[str, tuple[int, str, Any]]]


def message_class(package: str, messages: Messages, name: str) -> type:
    """Returns the class of one of the messages."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto2"
    )
    for message, fields in messages.items():
        described_message = file.message_type.add(name=message)
        for field, (number, kind, default) in fields.items():
            described = described_message.field.add(name=field, number=number)
            repeated = isinstance(default, list)
            described.label = described.LABEL_REPEATED if repeated else described.LABEL_OPTIONAL
            described.type = getattr(described, f"TYPE_{kind.upper()}", described.TYPE_MESSAGE)
            if described.type == described.TYPE_MESSAGE:
                described.type_name = f".{package}.{kind}"
            elif default is not None:
                described.default_value = default
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
