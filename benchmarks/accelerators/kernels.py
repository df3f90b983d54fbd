"""Kernels of a compiled program, from its text: what each moves and multiplies, and its least time.

Every kernel of the entry, of its loops' bodies and of its larger branches reads its operands and
writes its results once. Caches may save some of these bytes; nothing else can.
"""

import dataclasses
import math
import re
from collections.abc import Iterator

_SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2}
_SIZES |= {"f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8, "u64": 8}
_HEAD = re.compile(r"^(?:ENTRY )?%([\w.-]+) \(.*\{$")
_LINE = re.compile(r"^\s+(?:ROOT )?%([\w.-]+) = (\([^()]*\)|\S+) ([a-z][\w-]*)\((.*)$")
_SHAPE = re.compile(r"([a-z]+\d*)\[([\d,]*)\]")
_CONTRACTED = re.compile(r'lhs_contracting_dim(?:ension)?s(?:=\{|":\[)([\d,"]*)')
# Sizes of the attention weights that a kernel never writes.
_WEIGHTS = re.compile(r'"intermediate_tensor_shape": ?\{[^{}]*?"dimensions": ?\[([\d, "]*)\]')
# Operations that are views, or move nothing.
_FREE = {"parameter", "get-tuple-element", "bitcast", "constant", "tuple"}


@dataclasses.dataclass(frozen=True)
class Kernels:
    """Sums over the kernels of a program.

    Attributes:
      count: number of kernels.
      bytes: bytes of operands and results.
      flops: of matrix products.
      floor: seconds, if every kernel took the longer of its bytes' and its products' time.
    """

    count: int = 0
    bytes: float = 0.0
    flops: float = 0.0
    floor: float = 0.0

    def __add__(self, other: "Kernels") -> "Kernels":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other))
        return Kernels(*(a + b for a, b in pairs))

    def times(self, number: int) -> "Kernels":
        """Returns the sums of as many runs of the same kernels."""
        return Kernels(*(number * value for value in dataclasses.astuple(self)))


def count_kernels(text: str, bandwidth: float, peak: float) -> Kernels:
    """Counts the kernels of a program for a GPU.

    Args:
      text: `compiled.as_text()`.
      bandwidth: bytes a second that a kernel can move.
      peak: FLOPs a second that it can multiply.
    """
    computations, entry, name = {}, "", ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            name = head[1]
            computations[name] = {}
            entry = name if line.startswith("ENTRY") else entry
        elif name and (match := _LINE.match(line)):
            computations[name][match[1]] = match.groups()[1:]
    return sum(_walk(computations, entry, bandwidth, peak), Kernels())


def _walk(
    computations: dict[str, dict], name: str, bandwidth: float, peak: float
) -> Iterator[Kernels]:
    rows = computations[name]
    for shape, operation, rest in rows.values():
        if operation in _FREE:
            continue
        called = re.findall(r"(?:calls|to_apply|body|\w+_computation)=%([\w.-]+)", rest)
        if operation in ("conditional", "while", "call"):
            parts = [sum(_walk(computations, c, bandwidth, peak), Kernels()) for c in called]
            trips = re.search(r'known_trip_count":\{"n":"(\d+)"', rest)
            largest = max(parts, key=lambda part: part.bytes)
            yield largest.times(int(trips[1]) if trips else 1)
            continue
        operands = {o for o in re.findall(r"%([\w.-]+)", rest.split("), ")[0]) if o in rows}
        shapes = _SHAPE.findall(shape)
        # A library's workspace is the last of its results.
        shapes = shapes[:-1] if operation == "custom-call" and len(shapes) > 1 else shapes
        moved = sum(map(_bytes, shapes))
        moved += sum(_bytes(s) for o in operands for s in _SHAPE.findall(rows[o][0]))
        flops = _products(computations, {"": (shape, operation, rest)} | rows, [""])
        yield Kernels(1, moved, flops, max(moved / bandwidth, flops / peak))


def _products(computations: dict[str, dict], rows: dict, names: list[str]) -> float:
    """Returns the FLOPs of the products among some rows, and in the computations they call."""
    total = 0.0
    for shape, operation, rest in map(rows.get, names):
        contracted, weights = _CONTRACTED.search(rest), _WEIGHTS.search(rest)
        if weights:
            # Attention has two products; its gradient four, and the weights once more.
            size = _dimensions(rows[re.search(r"%([\w.-]+)", rest)[1]][0])[-1]
            count = 5 if "Backward" in rest else 2
            total += 2.0 * count * size * math.prod(map(int, re.findall(r"\d+", weights[1])))
        elif operation in ("dot", "custom-call") and contracted:
            left = _dimensions(rows[re.search(r"%([\w.-]+)", rest)[1]][0])
            sizes = [left[int(d)] for d in re.findall(r"\d+", contracted[1])]
            total += 2.0 * math.prod(_dimensions(shape)) * math.prod(sizes)
        elif operation == "fusion":
            inner = computations[re.search(r"calls=%([\w.-]+)", rest)[1]]
            total += _products(computations, inner, list(inner))
    return total


def _dimensions(shape: str) -> list[int]:
    """Returns the dimensions of the first array in a shape."""
    return [int(d) for d in _SHAPE.search(shape)[2].split(",") if d]


def _bytes(shape: tuple[str, str]) -> int:
    dimensions = [int(d) for d in shape[1].split(",") if d]
    return _SIZES.get(shape[0], 0) * math.prod(dimensions)
