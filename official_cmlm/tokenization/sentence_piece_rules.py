"""SentencePiece's compiled normalisation, `precompiled_charsmap`: the rules for characters.

The format: the number of bytes of a trie (uint32, little-endian), the trie, and the texts that
replace the keys, each ended by a NUL. The trie is a double array of Darts-clone
(https://github.com/s-yata/darts-clone): units of 32 bits, in which the node at `p` has its child of
byte `b` at `p ^ offset ^ b` if the unit there is labelled `b`; the value of the node at `p` is at
`p ^ offset`.
"""

import struct
from collections.abc import Iterator

import numpy as np

# Bits of a unit.
_IS_VALUE, _FAR, _HAS_VALUE = 1 << 31, 1 << 9, 1 << 8
# The children of a node lie within a block of 256 units.
_BLOCK = 256
# The number of last blocks in which nodes are still placed.
_OPEN_BLOCKS = 2
# Single characters have fewer nodes in every undamaged trie.
_MOST_NODES = 1 << 18
# Unicode's white space without U+0020; the library `tokenizers` splits at all of these.
WHITE_SPACE = (
    "\t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def rules_for_single_characters(charsmap: bytes, spaces: bool) -> bytes:
    """Returns the rules whose key is one character, for texts without composed letters.

    The library `tokenizers` applies only these rules to such texts, as its longer keys are letters
    with one mark. SentencePiece itself would also join the parts of Hangul again.

    Args:
      charsmap: compiled rules; empty: none.
      spaces: whether all white space becomes U+0020 unless a rule says otherwise.

    Raises:
      ValueError: if `charsmap` is damaged.
    """
    rules = read_rules(charsmap) if charsmap else {}
    if spaces:
        rules = dict.fromkeys(WHITE_SPACE, " ") | rules
        as_spaces = str.maketrans(dict.fromkeys(WHITE_SPACE, " "))
        rules = {key: text.translate(as_spaces) for key, text in rules.items()}
    return write_rules(rules)


def read_rules(charsmap: bytes) -> dict[str, str]:
    """Reads the rules whose key is one character: character -> its replacement.

    Raises:
      ValueError: if `charsmap` is damaged.
    """
    if len(charsmap) < 4:
        raise ValueError("shorter than its own length")
    (size,) = struct.unpack_from("<I", charsmap)
    if size % 4 or 4 + size > len(charsmap):
        raise ValueError("its trie is cut off")
    units = np.frombuffer(charsmap, "<u4", size // 4, offset=4)
    texts = charsmap[4 + size :]
    if texts[-1:] != b"\0":
        raise ValueError("its last text is cut off")
    rules = {}
    for key, value in _characters(units):
        end = texts.find(b"\0", value)
        if end < 0:
            raise ValueError("a text is missing")
        rules[key.decode("utf-8")] = texts[value:end].decode("utf-8")
    return rules


def _characters(units: np.ndarray) -> Iterator[tuple[bytes, int]]:
    """Yields the keys of a trie that are one character, and their values."""
    labels = np.arange(1, 256, dtype=np.int64)
    ahead, nodes = [(b"", 0)], 0
    while ahead:
        key, place = ahead.pop()
        nodes += 1
        # Nodes may share children; in a damaged trie a node may be its own child.
        if place >= len(units) or nodes > _MOST_NODES:
            raise ValueError("its trie leads out of itself, or in circles")
        unit = int(units[place])
        base = place ^ ((unit >> 10) << ((unit & _FAR) >> 6))
        if key and len(key) >= _width(key[0]):
            if unit & _HAS_VALUE:
                if base >= len(units):
                    raise ValueError("its trie leads out of itself")
                yield key, int(units[base]) & ~_IS_VALUE
            continue
        places = base ^ labels
        inside = places < len(units)
        found = units[places[inside]] & np.uint32(_IS_VALUE | 0xFF) == labels[inside]
        ahead += [(key + bytes([b]), base ^ b) for b in labels[inside][found].tolist()]


def _width(lead: int) -> int:
    """Returns the number of bytes of a UTF-8 character from its first byte."""
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def write_rules(rules: dict[str, str]) -> bytes:
    """Compiles rules; equal rules give equal bytes. `read_rules` is the inverse."""
    if not rules:
        return b""
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
