"""SentencePiece's compiled normalisation, `precompiled_charsmap`: the rules for characters.

The format: the number of bytes of a trie (uint32, little-endian), the trie, and the texts that
replace the keys, each ended by a NUL. The trie is a double array of Darts-clone
(https://github.com/s-yata/darts-clone): units of 32 bits, in which the node at `p` has its child of
byte `b` at `p ^ offset ^ b` if the unit there is labelled `b`; the value of the node at `p` is at
`p ^ offset`.
"""

import struct

import numpy as np

# Bits of a unit.
_IS_VALUE, _HAS_VALUE = 1 << 31, 1 << 8
# The children of a node lie within a block of 256 units.
_BLOCK = 256
# The number of last blocks in which nodes are still placed.
_OPEN_BLOCKS = 2
# Unicode's white space without U+0020; the library `tokenizers` splits at all of these.
WHITE_SPACE = (
    "\t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def rules_for_white_space() -> bytes:
    """Returns the rules that make a space of all white space, at which `tokenizers` splits."""
    return write_rules(dict.fromkeys(WHITE_SPACE, " "))


def write_rules(rules: dict[str, str]) -> bytes:
    """Compiles rules, character -> its replacement; equal rules give equal bytes."""
    texts, places, keys = b"", {}, {}
    for key, text in sorted((k.encode("utf-8"), t.encode("utf-8")) for k, t in rules.items()):
        if text not in places:
            places[text] = len(texts)
            texts += text + b"\0"
        keys[key] = places[text]
    trie = _trie(keys).tobytes()
    return struct.pack("<I", len(trie)) + trie + texts


def _trie(keys: dict[bytes, int]) -> np.ndarray:
    """Builds the double array of keys with values: uint32, a multiple of `_BLOCK` units."""
    root: dict = {}
    for key, value in keys.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        # Keys hold no NUL, so the place of byte 0 is free for the value.
        node[0] = value
    units = [0] * _BLOCK
    used, bases = bytearray(b"\1" + bytes(_BLOCK - 1)), set()
    ahead = [(0, root)]
    while ahead:
        place, node = ahead.pop()
        base = _free(list(node), used, bases)
        if base | 0xFF >= len(used):
            units += [0] * _BLOCK
            used += bytes(_BLOCK)
        bases.add(base)
        # The offset is below 2 ** 21, as there are far fewer units.
        units[place] |= (place ^ base) << 10
        for label, child in node.items():
            used[base ^ label] = 1
            if label == 0:
                units[place] |= _HAS_VALUE
                units[base] = child | _IS_VALUE
            else:
                units[base ^ label] = label
                ahead.append((base ^ label, child))
    return np.array(units, "<u4")


def _free(labels: list[int], used: bytearray, bases: set[int]) -> int:
    """Finds a base that no other node has, and from which the units of all labels are unused."""
    for place in range(max(0, len(used) - _OPEN_BLOCKS * _BLOCK), len(used)):
        base = place ^ labels[0]
        if not used[place] and base not in bases and not any(used[base ^ b] for b in labels):
            return base
    # The block after the last one is all free.
    return len(used) ^ labels[0]
