"""Hostile input of the exported modules: (module, callable, input, expected outcome).

A case is a line of this table; `serving_modules` runs it. Two kinds of routes lead into a module:
its callables, as Python loads them, and its signature as a server runs it (`raw`), where no Python
checks ranks and types.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

KINDS = ("wordpiece", "byte_pair")
TEXT_ROUTES = {
    "preprocess": ("call", "signature", "raw", "tokenize", "concrete", "layer"),
    "serving": ("serve", "signature", "raw", "preprocess", "tokenize", "concrete"),
}
ENCODER_ROUTES = ("call", "training", "signature", "raw", "layer")
FAST_ROUTES = ("call", "serve", "signature", "raw", "tokenize")
# The positions of the tiny encoder and the length of its preprocess module, in tokens.
POSITIONS, LENGTH = 48, 24

ERROR = "error"
# A result, or an error: what happens depends on the route, and both are right.
EITHER = "either"


@dataclasses.dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
      name: the input in words.
      kind: of the vocabulary.
      module: `preprocess`, `encoder` or `serving`.
      route: how the module is called.
      make: returns the input: strings, a dict for the encoder, arguments for `pack`.
      expected: `ERROR`, `EITHER`, or how many rows the result has.
      same_as: other strings with which the result must be equal; None: not compared.
      fast: whether the normal suite has it.
    """

    name: str
    kind: str
    module: str
    route: str
    make: Callable[[], Any]
    expected: str | int
    same_as: Callable[[], Any] | None = None
    fast: bool = True

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.module}-{self.route}-{self.name}"


def _objects(*shape: int) -> np.ndarray:
    return np.full(shape, b"a cat", object)


def _strings(*strings: bytes) -> Callable[[], np.ndarray]:
    """Returns a maker of a vector of strings."""
    return lambda: np.array(strings, object)


def _mebibytes(piece: bytes) -> Callable[[], np.ndarray]:
    """Returns a maker of one string of 10 MiB."""
    return lambda: np.array([piece * (10 * 2**20 // len(piece))], object)


# name -> (input, expected, fast)
TEXTS: dict[str, tuple] = {
    "two strings": (_strings(b"the cat sat", b"a dog"), 2, True),
    "scalar": (_objects, ERROR, True),
    "matrix": (lambda: _objects(2, 3), ERROR, True),
    "matrix 1 x 1": (lambda: _objects(1, 1), ERROR, False),
    "matrix without rows": (lambda: _objects(0, 1), ERROR, True),
    "matrix without columns": (lambda: _objects(2, 0), ERROR, False),
    "no strings": (_strings(), 0, True),
    "empty string": (_strings(b""), 1, True),
    "integers": (lambda: np.array([1, 2], np.int32), ERROR, True),
    "floats": (lambda: np.array([1.0, np.nan], np.float32), ERROR, True),
    "invalid UTF-8": (_strings(b"\xff\xfe", b"a \xc3", b"\x80cat", b"\xf5\x80\x80\x80"), 4, True),
    "overlong UTF-8": (_strings(b"\xc0\x80", b"\xe0\x80\xaf"), 2, False),
    "surrogates in UTF-8": (_strings(b"\xed\xa0\x80", b"a \xed\xb0\x80 cat"), 2, True),
    "NUL bytes": (_strings(b"\0", b"a\0cat", b"a cat\0" * 50), 3, True),
    "control characters": (_strings(bytes(range(32)), b"\x7f"), 2, True),
    "every byte": (_strings(*(bytes([byte]) * 3 for byte in range(256))), 256, False),
    "noncharacters": (_strings("\ufdd0\ufffe\uffff\U0010ffff".encode()), 1, False),
    "marks without letters": (_strings("\u0301".encode() * 5000), 1, False),
    "10 MiB of words": (_mebibytes(b"cat "), 1, False),
    "10 MiB of spaces": (_mebibytes(b" "), 1, False),
    "10 MiB of NUL": (_mebibytes(b"\0"), 1, False),
    "10 MiB, one word": (_mebibytes(b"a"), 1, False),
    "10 MiB, not UTF-8": (_mebibytes(b"\xff"), 1, False),
    "100,000 strings": (_strings(*(b"cat %d" % i for i in range(100_000))), 100_000, False),
}
# name -> strings that must give the same result
_SAME = {"10 MiB of words": _strings(b"cat " * 100)}


def _inputs(batch: int = 2, seq: int = 5, **changed: Any) -> Callable[[], dict[str, np.ndarray]]:
    """Inputs of the encoder; `ids`, `mask` and `types` replace one of them."""

    def make() -> dict[str, np.ndarray]:
        values = {
            "input_word_ids": np.full([batch, seq], 7, np.int32),
            "input_mask": np.ones([batch, seq], np.int32),
            "input_type_ids": np.zeros([batch, seq], np.int32),
        }
        names = {"ids": "input_word_ids", "mask": "input_mask", "types": "input_type_ids"}
        return values | {names[key]: value for key, value in changed.items()}

    return make


def _ids(value: int) -> np.ndarray:
    """Ids of which one has this value."""
    ids = np.full([2, 5], 7, np.int32)
    ids[1, 3] = value
    return ids


def _ints(*shape: int, of: int = 1) -> np.ndarray:
    return np.full(shape, of, np.int32)


def _same(*shape: int, dtype: Any = np.int32) -> dict[str, np.ndarray]:
    """Returns three inputs of this shape."""
    return {name: np.ones(shape, dtype) for name in ("ids", "mask", "types")}


# name -> (input, expected, fast)
ENCODER: dict[str, tuple] = {
    "two rows": (_inputs(), 2, True),
    "batch 0": (_inputs(batch=0), 0, True),
    "length 1": (_inputs(seq=1), 2, False),
    "length 0": (_inputs(seq=0), ERROR, True),
    "batch 0, length 0": (_inputs(batch=0, seq=0), EITHER, False),
    "whole position table": (_inputs(seq=POSITIONS), 2, False),
    "longer than the position table": (_inputs(seq=POSITIONS + 1), ERROR, True),
    "id beyond the vocabulary": (_inputs(ids=_ids(10_000)), ERROR, True),
    "negative id": (_inputs(ids=_ids(-1)), ERROR, True),
    "largest id": (_inputs(ids=_ids(2**31 - 1)), ERROR, False),
    "smallest id": (_inputs(ids=_ids(-(2**31))), ERROR, False),
    "type 2": (_inputs(types=_ints(2, 5, of=2)), ERROR, True),
    "negative type": (_inputs(types=_ints(2, 5, of=-1)), ERROR, True),
    "mask of zeros": (_inputs(mask=_ints(2, 5, of=0)), 2, True),
    "mask of -1": (_inputs(mask=_ints(2, 5, of=-1)), ERROR, True),
    "mask of largest numbers": (_inputs(mask=_ints(2, 5, of=2**31 - 1)), ERROR, False),
    "shorter mask": (_inputs(mask=_ints(2, 4)), ERROR, True),
    "mask of length 1": (_inputs(mask=_ints(2, 1)), ERROR, True),
    "mask of one row": (_inputs(mask=_ints(1, 5)), ERROR, True),
    "mask of rank 1": (_inputs(mask=_ints(5)), ERROR, True),
    "mask of rank 3": (_inputs(mask=_ints(2, 1, 5)), ERROR, False),
    "types of length 1": (_inputs(types=_ints(2, 1, of=0)), ERROR, True),
    "one row of ids": (_inputs(ids=_ints(1, 5)), ERROR, False),
    "scalars": (_inputs(**_same()), ERROR, True),
    "rank 1": (_inputs(**_same(5)), ERROR, True),
    "rank 3": (_inputs(**_same(2, 5, 1)), ERROR, True),
    "floats": (_inputs(**_same(2, 5, dtype=np.float32)), EITHER, True),
    "64-bit integers": (_inputs(**_same(2, 5, dtype=np.int64)), EITHER, False),
    "strings": (_inputs(ids=_objects(2, 5)), ERROR, True),
    "no mask": (lambda: {"input_word_ids": _ints(2, 5)}, ERROR, True),
    "nothing": (dict, ERROR, False),
    "another input": (lambda: {**_inputs()(), "more": _ints(2, 5)}, EITHER, False),
}


def _splits(*splits: list[int], values: int = 4) -> Callable[[], dict]:
    """Returns a maker of segments by their row splits, which are not checked."""
    return lambda: {"splits": [np.array(s, np.int64) for s in splits], "values": values}


def _length(length: Any, *splits: list[int]) -> Callable[[], dict]:
    return lambda: {**_splits(*(splits or ([0, 1, 4],)))(), "seq_length": length}


# name -> (input of bert_pack_inputs, expected, fast)
PACK: dict[str, tuple] = {
    "one segment": (_splits([0, 1, 4]), 2, True),
    "two segments": (_splits([0, 1, 4], [0, 4, 4]), 2, True),
    "no rows": (_splits([0], values=0), 0, True),
    "three segments": (_splits([0, 4], [0, 4], [0, 4]), ERROR, False),
    "no segment": (_splits(), ERROR, True),
    "segments of 2 and 1 rows": (_splits([0, 1, 4], [0, 4]), ERROR, True),
    "splits beyond the values": (_splits([0, 100, 1_000_000]), ERROR, True),
    "falling splits": (_splits([0, 4, 1]), ERROR, True),
    "negative splits": (_splits([0, -5, 4]), ERROR, True),
    "splits that begin at 2": (_splits([2, 3, 4]), ERROR, True),
    "no splits": (_splits([]), ERROR, True),
    "length 3": (_length(3), 2, True),
    "length 0": (_length(0), ERROR, True),
    "length 1": (_length(1), ERROR, True),
    "length 2": (_length(2), 2, False),
    "length 2 of two segments": (_length(2, [0, 4], [0, 4]), ERROR, False),
    "negative length": (_length(-7), ERROR, True),
    "smallest length": (_length(-(2**31)), ERROR, False),
    "largest length": (_length(2**31 - 1), ERROR, True),
    "two lengths": (_length([8, 9]), ERROR, True),
    "length 8.5": (_length(8.5), ERROR, False),
}


def cases() -> Iterator[Case]:
    """Yields every input of a module by each of its routes.

    The normal suite has one kind of vocabulary, and each kind of fault by one of the routes, in
    turn.
    """

    def fast_route(number: int, routes: tuple[str, ...]) -> str:
        routes = [route for route in routes if route in FAST_ROUTES]
        return routes[number % len(routes)]

    for kind in KINDS:
        normal = kind == KINDS[0]
        for module, routes in TEXT_ROUTES.items():
            for number, (name, (make, expected, fast)) in enumerate(TEXTS.items()):
                chosen = fast_route(number, routes) if normal and fast else None
                same = _SAME.get(name)
                for route in routes:
                    yield Case(name, kind, module, route, make, expected, same, route == chosen)
        for name, (make, expected, fast) in PACK.items():
            yield Case(name, kind, "preprocess", "pack", make, expected, fast=fast and normal)
    # The encoder knows nothing of the kind of vocabulary.
    for number, (name, (make, expected, fast)) in enumerate(ENCODER.items()):
        chosen = fast_route(number, ENCODER_ROUTES) if fast else None
        for route in ENCODER_ROUTES:
            yield Case(name, KINDS[0], "encoder", route, make, expected, fast=route == chosen)
