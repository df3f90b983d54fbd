"""The part of SentencePiece's file format, `sentencepiece_model.proto`, that is used here.

The package `sentencepiece` has generated code for it, but only for newer releases of protobuf than
TensorFlow allows. Field numbers from 200 on are free for users of the format.
"""

import collections
import itertools
import struct
from collections.abc import Mapping
from typing import Any

from official_cmlm.common.protobuf_messages import Messages

# Kinds of pieces.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
# `trainer_spec.model_type`.
UNIGRAM = 1

_MESSAGES = Messages(
    "official_cmlm.sentencepiece",
    {
        "Piece": {
            "piece": (1, "string", None),
            "score": (2, "float", None),
            "type": (3, "int32", str(NORMAL)),
        },
        "TrainerSpec": {
            "model_type": (3, "int32", str(UNIGRAM)),
            "vocab_size": (4, "int32", None),
            "treat_whitespace_as_suffix": (24, "bool", "false"),
            "byte_fallback": (35, "bool", "false"),
            "unk_id": (40, "int32", "0"),
            "bos_id": (41, "int32", "1"),
            "eos_id": (42, "int32", "2"),
            "pad_id": (43, "int32", "-1"),
            "unk_piece": (45, "string", "<unk>"),
            "bos_piece": (46, "string", "<s>"),
            "eos_piece": (47, "string", "</s>"),
            "pad_piece": (48, "string", "<pad>"),
        },
        "NormalizerSpec": {
            "name": (1, "string", None),
            "precompiled_charsmap": (2, "bytes", None),
            "add_dummy_prefix": (3, "bool", "true"),
            "remove_extra_whitespaces": (4, "bool", "true"),
            "escape_whitespaces": (5, "bool", "true"),
        },
        "Model": {
            "pieces": (1, "Piece", []),
            "trainer_spec": (2, "TrainerSpec", None),
            "normalizer_spec": (3, "NormalizerSpec", None),
        },
    },
)


def new_model() -> Any:
    """Returns an empty model, with `pieces`, `trainer_spec` and `normalizer_spec`."""
    return _MESSAGES.new("Model")


def parse_model(content: bytes) -> Any:
    """Parses the bytes of a model's file; raises protobuf's `DecodeError` for other bytes."""
    return _MESSAGES.parse("Model", content)


def compile_rules(rules: Mapping[str, str]) -> bytes:
    """Compiles rules of normalisation, a text -> its replacement, to a `precompiled_charsmap`.

    That is the number of bytes of a double array, the double array, and the replacements, each with
    a zero byte after it. The double array is a trie of the texts' bytes in units of 32 bits. Each
    node has a base, which no other node has. Its child for a byte is the unit at base ^ byte. A
    unit's lowest 8 bits are the byte that leads to it, bit 8 says whether a text ends there, and
    the bits from 10 on are its own place ^ its base. Where a text ends, the unit at the base has
    bit 31 and the place of the replacement.

    Raises:
      ValueError: if a text or a replacement holds a zero byte or half a surrogate pair.
    """
    if not rules:
        return b""
    trie: dict[int, Any] = {}
    replacements = b""
    for text, replacement in rules.items():
        if "\0" in text + replacement:
            raise ValueError("a rule of normalisation holds a zero byte")
        node = trie
        for byte in text.encode():
            node = node.setdefault(byte, {})
        # No text holds a zero byte, so that 0 is free for its end.
        node[0] = len(replacements)
        replacements += replacement.encode() + b"\0"
    units, bases = {0: 0}, set()
    # Number of bytes that lead on -> place of the last node with so many: the search is shorter.
    starts: dict[int, int] = {}
    nodes = collections.deque([(0, trie)])
    while nodes:
        place, node = nodes.popleft()
        low = min(node)
        for start in itertools.count(starts.get(len(node), 1)):
            base = start ^ low
            if base not in bases and not any(base ^ byte in units for byte in node):
                break
        starts[len(node)] = start
        bases.add(base)
        units[place] |= (base ^ place) << 10 | (0 in node) << 8
        for byte, child in node.items():
            units[base ^ byte] = byte or 1 << 31 | child
            if byte:
                nodes.append((base ^ byte, child))
    # Every base ^ byte is a unit.
    array = [units.get(place, 0) for place in range((max(units) | 255) + 1)]
    return struct.pack(f"<{len(array) + 1}I", 4 * len(array), *array) + replacements
