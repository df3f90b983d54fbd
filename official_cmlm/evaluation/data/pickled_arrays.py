"""Reads pickles of arrays, lists, dicts, strings and numbers, and of nothing else.

Some publishers ship arrays as pickles, which can run any code where Python's `pickle` reads them.
This reader executes the few instructions that plain data and NumPy's arrays are made of. Nothing is
imported or called: the five names that a pickled array mentions are tokens, and an array is made
from its bytes once its shape and type agree with their number. Memory is bounded by the size of the
file, times a constant: an instruction makes one object of fixed size, or one of bytes that it takes
from the file, or copies bytes of the pickle, of which no more are copied than the file has. Nothing
here hashes, compares or prints nested values, which may share their parts 2^depth times.
"""

import codecs
import math
import os
import re
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

_MARK = object()
# Bytes from which on a string is taken for an array's content.
_LONG = 2**16
# The names of pickled arrays, by the modules that Python 2's NumPy, NumPy 1 and NumPy 2 have.
_RECONSTRUCT, _NDARRAY, _DTYPE, _ENCODE = "_reconstruct", "ndarray", "dtype", "encode"
_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _DTYPE,
    ("_codecs", "encode"): _ENCODE,
}


class _Name(str):
    """One of `_NAMES`, which is no string of the pickle."""


class Refused(ValueError):
    """What a pickle holds that is not admitted, or that no pickle holds."""


def shown(value: Any) -> str:
    """A value for a message: the first characters of a string or number, else its type's name."""
    return str(value)[:40] if isinstance(value, str | int) else f"<{type(value).__name__}>"


class _Type:
    """A pickled dtype: booleans, integers and floats of fixed size."""

    def __init__(self, code: Any) -> None:
        if not isinstance(code, str) or not re.fullmatch("b1|[iu][1248]|f[248]", code):
            raise Refused(f"an array of type {shown(code)!r}, numbers only are admitted")
        self.dtype = np.dtype(code)

    def build(self, state: Any, machine: "_Machine") -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise Refused("a damaged array type")
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """A pickled array, whose values come after it."""

    def __init__(self) -> None:
        self.value: np.ndarray | None = None

    def build(self, state: Any, machine: "_Machine") -> None:
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[2], _Type):
            raise Refused("a damaged array")
        _, shape, kind, fortran, content = state
        if not isinstance(shape, tuple) or len(shape) > 8:
            raise Refused(f"an array of shape {shown(shape)}")
        sizes = f"({', '.join(map(shown, shape))})"
        if not all(type(n) is int and n >= 0 for n in shape):
            raise Refused(f"an array of shape {sizes}")
        if isinstance(content, str):
            # Python 2's strings are bytes, which are read as Latin-1 here.
            content = machine.latin_bytes(content)
        needed = math.prod(shape) * kind.dtype.itemsize
        if not isinstance(content, bytes) or len(content) != needed:
            raise Refused(f"an array of shape {sizes} without its {shown(needed)} bytes")
        flat = np.frombuffer(content, kind.dtype)
        self.value = flat.reshape(shape, order="F" if fortran else "C")


def read_pickle(file: BinaryIO) -> Any:
    """The object that a pickle of protocols 0 to 4 holds.

    Plain data of protocol 5 are written as those of 4; its arrays are written in another way, which
    is refused.

    Strings of Python 2 become `str`, their bytes read as Latin-1; those of more than 65,536 bytes
    stay bytes.

    Args:
      file: open for reading in binary mode.

    Returns:
      Dicts, lists, tuples, strings, bytes, numbers, booleans and None; arrays as objects that
      `array` takes.

    Raises:
      Refused: for anything else, and for a damaged or truncated pickle.
    """
    machine = _Machine(file)
    try:
        return machine.run()
    except Refused:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        what = type(error).__name__
        raise Refused(f"damaged or truncated at byte {machine.place()} ({what})") from None


def array(value: Any) -> np.ndarray | None:
    """The array that a value of `read_pickle` is; None if it is none."""
    return value.value if isinstance(value, _Array) else None


class _Machine:
    """The stack on which a pickle builds its object."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._copied = 0

    def place(self) -> int:
        return self._file.tell()

    def run(self) -> Any:
        instructions, read, stack = _INSTRUCTIONS, self._file.read, self._stack
        while (code := read(1)) != b".":
            instruction = instructions.get(code)
            if instruction is None:
                what = "the file ends too early" if not code else f"instruction {code!r}"
                raise Refused(f"{what} at byte {self.place()}")
            instruction(self, stack)
        (found,) = stack
        return found

    def take(self, count: int) -> bytes:
        """The next bytes, all of them."""
        # A damaged length must not reserve memory for more than there is.
        if count < 0 or (count > _LONG and count > self._size - self.place()):
            raise Refused(f"a length of {count} at byte {self.place()} of {self._size}")
        content = self._file.read(count)
        if len(content) < count:
            raise Refused(f"the file ends too early, at byte {self.place()}")
        return content

    def latin_bytes(self, text: str) -> bytes:
        """The bytes of a string of Latin-1, a copy."""
        # One string can be named at a few bytes each time.
        self._copied += len(text)
        if self._copied > self._size:
            raise Refused(f"more bytes in strings than its file of {self._size} holds")
        return text.encode("latin-1")

    def unsigned(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def signed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little", signed=True)

    def line(self) -> bytes:
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise Refused(f"the file ends too early, at byte {self.place()}")
        return line[:-1]

    def items(self) -> list[Any]:
        """What is on the stack above the last mark; both are removed."""
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place] is _MARK:
                found = self._stack[place + 1 :]
                del self._stack[place:]
                return found
        raise Refused(f"no mark at byte {self.place()}")

    def put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def memoize(self) -> None:
        self.put(len(self._memo))

    def get(self, index: int) -> None:
        self._stack.append(self._memo[index])

    def extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise Refused(f"items for no list at byte {self.place()}")
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise Refused(f"items for no dict at byte {self.place()}")
        for key, value in zip(items[::2], items[1::2]):
            # The hash of a tuple is computed recursively.
            if type(key) not in (str, int, bytes):
                raise Refused(f"a key of type {type(key).__name__}")
            target[key] = value

    def name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Refused(f"the name {f'{shown(module)}.{shown(name)}'!r}, which is not admitted")
        found = _NAMES.get((module, name))
        if found is None:
            raise Refused(f"the name {f'{module}.{name}'[:60]!r}, which is not admitted")
        self._stack.append(_Name(found))

    def reduce(self) -> None:
        arguments, called = self._stack.pop(), self._stack.pop()
        if type(called) is not _Name or type(arguments) is not tuple:
            raise Refused("a call which is not admitted")
        if called == _DTYPE and arguments:
            self._stack.append(_Type(arguments[0]))
        elif called == _RECONSTRUCT and arguments and type(arguments[0]) is _Name:
            if arguments[0] != _NDARRAY or arguments[1:2] != ((0,),):
                raise Refused("a damaged array")
            self._stack.append(_Array())
        elif called == _ENCODE and len(arguments) == 2 and arguments[1] in ("latin1", "latin-1"):
            self._stack.append(self.latin_bytes(arguments[0]))
        else:
            raise Refused(f"a call of {called} which is not admitted")

    def build(self) -> None:
        state = self._stack.pop()
        if not isinstance(self._stack[-1], _Type | _Array):
            raise Refused("a state for no array")
        self._stack[-1].build(state, self)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


def _latin(content: bytes) -> str | bytes:
    """A string of Python 2; long ones stay bytes, since an array has no use for the string."""
    return content.decode("latin-1") if len(content) <= _LONG else content


def _quoted(line: bytes) -> str | bytes:
    """A string of protocol 0, with quotes and escapes."""
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        raise Refused("a string without quotes")
    return _latin(codecs.escape_decode(line[1:-1])[0])


def _integer(line: bytes) -> int | bool:
    """An integer or boolean of protocol 0."""
    if len(line) > 20:
        raise Refused("an integer of more than 20 digits")
    return {b"00": False, b"01": True}.get(line) if line in (b"00", b"01") else int(line)


def _pushed(read: Callable[[_Machine], Any]) -> Callable[[_Machine, list[Any]], None]:
    return lambda machine, stack: stack.append(read(machine))


def _tuple(count: int) -> Callable[[_Machine, list[Any]], None]:
    def make(machine: _Machine, stack: list[Any]) -> None:
        items = tuple(stack[len(stack) - count :])
        if len(items) < count or _MARK in items:
            raise Refused("a tuple without its items")
        del stack[len(stack) - count :]
        stack.append(items)

    return make


def _new_dict(machine: _Machine, stack: list[Any]) -> None:
    items = machine.items()
    stack.append({})
    machine.update(items)


def _set_item(machine: _Machine, stack: list[Any]) -> None:
    value, key = stack.pop(), stack.pop()
    machine.update([key, value])


_INSTRUCTIONS: dict[bytes, Callable[[_Machine, list[Any]], None]] = {
    b"\x80": lambda machine, stack: machine.take(1),
    b"\x95": lambda machine, stack: machine.take(8),
    b"(": lambda machine, stack: stack.append(_MARK),
    b"0": lambda machine, stack: stack.pop(),
    b"1": lambda machine, stack: machine.items(),
    b"2": lambda machine, stack: stack.append(stack[-1]),
    b"N": lambda machine, stack: stack.append(None),
    b"\x88": lambda machine, stack: stack.append(True),
    b"\x89": lambda machine, stack: stack.append(False),
    b"I": _pushed(lambda machine: _integer(machine.line())),
    b"L": _pushed(lambda machine: _integer(machine.line().removesuffix(b"L"))),
    b"K": _pushed(lambda machine: machine.unsigned(1)),
    b"M": _pushed(lambda machine: machine.unsigned(2)),
    b"J": _pushed(lambda machine: machine.signed(4)),
    b"\x8a": _pushed(lambda machine: machine.signed(machine.unsigned(1))),
    b"F": _pushed(lambda machine: float(machine.line())),
    b"G": _pushed(lambda machine: struct.unpack(">d", machine.take(8))[0]),
    b"S": _pushed(lambda machine: _quoted(machine.line())),
    b"U": _pushed(lambda machine: _latin(machine.take(machine.unsigned(1)))),
    b"T": _pushed(lambda machine: _latin(machine.take(machine.signed(4)))),
    b"V": _pushed(lambda machine: machine.line().decode("raw-unicode-escape")),
    b"\x8c": _pushed(lambda machine: _text(machine.take(machine.unsigned(1)))),
    b"X": _pushed(lambda machine: _text(machine.take(machine.unsigned(4)))),
    b"\x8d": _pushed(lambda machine: _text(machine.take(machine.unsigned(8)))),
    b"C": _pushed(lambda machine: machine.take(machine.unsigned(1))),
    b"B": _pushed(lambda machine: machine.take(machine.unsigned(4))),
    b"\x8e": _pushed(lambda machine: machine.take(machine.unsigned(8))),
    b"]": lambda machine, stack: stack.append([]),
    b"l": lambda machine, stack: stack.append(machine.items()),
    b"a": lambda machine, stack: machine.extend([stack.pop()]),
    b"e": lambda machine, stack: machine.extend(machine.items()),
    b"}": lambda machine, stack: stack.append({}),
    b"d": _new_dict,
    b"s": _set_item,
    b"u": lambda machine, stack: machine.update(machine.items()),
    b")": lambda machine, stack: stack.append(()),
    b"t": lambda machine, stack: stack.append(tuple(machine.items())),
    b"\x85": _tuple(1),
    b"\x86": _tuple(2),
    b"\x87": _tuple(3),
    b"p": lambda machine, stack: machine.put(_integer(machine.line())),
    b"q": lambda machine, stack: machine.put(machine.unsigned(1)),
    b"r": lambda machine, stack: machine.put(machine.unsigned(4)),
    b"\x94": lambda machine, stack: machine.memoize(),
    b"g": lambda machine, stack: machine.get(_integer(machine.line())),
    b"h": lambda machine, stack: machine.get(machine.unsigned(1)),
    b"j": lambda machine, stack: machine.get(machine.unsigned(4)),
    b"c": lambda machine, stack: machine.name(_text(machine.line()), _text(machine.line())),
    b"\x93": lambda machine, stack: machine.name(stack.pop(-2), stack.pop()),
    b"R": lambda machine, stack: machine.reduce(),
    b"b": lambda machine, stack: machine.build(),
}
