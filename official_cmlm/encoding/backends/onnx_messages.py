"""Messages of ONNX's format (onnx/onnx.proto), as far as the graphs of encoders need them.

The package onnx has them too, with 30 MB of operators that are not used here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from official_cmlm.common.protobuf_messages import Messages

# NumPy's name of a type -> its number in `TensorProto.DataType`.
ELEMENT_TYPES = {"float32": 1, "int8": 3, "int32": 6, "int64": 7}
# Type of an attribute's value -> its field, and its number in `AttributeProto.AttributeType`.
_ATTRIBUTES = {float: ("f", 1), int: ("i", 2), list: ("ints", 7)}
_MESSAGES = Messages(
    "official_cmlm.onnx",
    {
        "ModelProto": {
            "ir_version": (1, "int64", None),
            "producer_name": (2, "string", None),
            "graph": (7, "GraphProto", None),
            "opset_import": (8, "OperatorSetIdProto", []),
            "metadata_props": (14, "StringStringEntryProto", []),
        },
        "OperatorSetIdProto": {"domain": (1, "string", None), "version": (2, "int64", None)},
        "StringStringEntryProto": {"key": (1, "string", None), "value": (2, "string", None)},
        "GraphProto": {
            "node": (1, "NodeProto", []),
            "name": (2, "string", None),
            "initializer": (5, "TensorProto", []),
            "input": (11, "ValueInfoProto", []),
            "output": (12, "ValueInfoProto", []),
        },
        "NodeProto": {
            "input": (1, "string", []),
            "output": (2, "string", []),
            "name": (3, "string", None),
            "op_type": (4, "string", None),
            "attribute": (5, "AttributeProto", []),
            "domain": (7, "string", None),
        },
        "AttributeProto": {
            "name": (1, "string", None),
            "f": (2, "float", None),
            "i": (3, "int64", None),
            "ints": (8, "int64", []),
            "type": (20, "int32", None),
        },
        "TensorProto": {
            "dims": (1, "int64", []),
            "data_type": (2, "int32", None),
            "name": (8, "string", None),
            "raw_data": (9, "bytes", None),
        },
        "ValueInfoProto": {"name": (1, "string", None), "type": (2, "TypeProto", None)},
        "TypeProto": {"tensor_type": (1, "TypeOfTensor", None)},
        "TypeOfTensor": {"elem_type": (1, "int32", None), "shape": (2, "TensorShapeProto", None)},
        "TensorShapeProto": {"dim": (1, "Dimension", [])},
        "Dimension": {"dim_value": (1, "int64", None), "dim_param": (2, "string", None)},
    },
)
message = _MESSAGES.new


def node_of(
    kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: float | int | list
) -> Any:
    """Returns a `NodeProto` of an operator; attributes are sorted by name."""
    node = message("NodeProto", op_type=kind, input=inputs, output=outputs)
    for name, value in sorted(attributes.items()):
        field, number = _ATTRIBUTES[type(value)]
        node.attribute.add(name=name, type=number, **{field: value})
    return node


def tensor_of(name: str, array: np.ndarray) -> Any:
    """Returns the `TensorProto` of an array."""
    little = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    return message(
        "TensorProto",
        dims=array.shape,
        data_type=ELEMENT_TYPES[array.dtype.name],
        name=name,
        raw_data=little.tobytes(),
    )


def value_info(name: str, dtype: str, shape: Sequence[int | str]) -> Any:
    """Returns the `ValueInfoProto` of an input or output; unknown dimensions have names."""
    dimensions = [
        {"dim_param": size} if isinstance(size, str) else {"dim_value": size} for size in shape
    ]
    described = {"elem_type": ELEMENT_TYPES[dtype], "shape": {"dim": dimensions}}
    return message("ValueInfoProto", name=name, type={"tensor_type": described})
