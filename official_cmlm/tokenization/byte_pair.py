"""Byte-level BPE, the tokenizer of GPT-2 and RoBERTa: `vocab.json` and `merges.txt`."""

import dataclasses
import functools
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write_text, read_object, read_text
from official_cmlm.tokenization.vocabulary import (
    ROLES,
    AfterSpace,
    GraphTokenizer,
    Tokenizer,
    TokenRows,
    Vocabulary,
    check_unicode,
    token_rows,
    utf8,
)

_SETTINGS = "byte_pair.json"
_ADVICE = "take a whole copy of the vocabulary"
# The head of a text, up to the first space after a non-space. Under GPT-2's rules no word continues
# over that space, so the ids of the rest do not depend on text before the head.
_HEAD = re.compile(r".*?\S(?= |\Z)", re.DOTALL)
# The number of heads whose ids are remembered, and the longest remembered head in characters.
_REMEMBERED_HEADS, _LONGEST_REMEMBERED = 1 << 16, 32


@dataclasses.dataclass(frozen=True)
class BytePairVocabulary(Vocabulary):
    """A byte-level BPE vocabulary with its merges. Casing is always kept.

    Attributes:
      tokens: the entries, bytes spelled as GPT-2 spells them (a space is `Ġ`); index is the id.
      merges: pairs of entries to join, the most important first, each as `left right`.
      add_prefix_space: whether a space is put before the text, so that its first word is
        tokenised like all others. Default false, as RoBERTa was released.
    """

    merges: tuple[str, ...]
    add_prefix_space: bool = False

    kind: ClassVar[str] = "byte_pair"
    special_tokens: ClassVar[dict[str, str]] = dict(
        zip(ROLES, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"))
    )

    def continues_word(self, token: str) -> bool:
        # The first token of a word begins with the space before it. A punctuation mark without a
        # space continues a word.
        return not token.startswith("\u0120")

    def decode(self, ids: Sequence[int]) -> str:
        from tokenizers import decoders

        return decoders.ByteLevel().decode([self.tokens[i] for i in ids]).strip()

    @functools.cached_property
    def hash(self) -> str:
        parts = ("\n".join(self.tokens), "\n".join(self.merges), str(self.add_prefix_space))
        return hashlib.sha256("\n\n".join(parts).encode()).hexdigest()[:16]

    @property
    def space_changes_ids(self) -> bool:
        """True unless a space is put before every text."""
        return not self.add_prefix_space

    def settings(self) -> dict[str, bool | int | str]:
        return {"add_prefix_space": self.add_prefix_space}

    def save(self, folder: str | os.PathLike) -> list[str]:
        folder = Path(folder)
        ids = {token: i for i, token in enumerate(self.tokens)}
        atomic_write_text(folder / "vocab.json", json.dumps(ids, ensure_ascii=False))
        lines = "".join(f"{merge}\n" for merge in ("#version: 0.2", *self.merges))
        (folder / "merges.txt").write_text(lines, encoding="utf-8")
        atomic_write_text(folder / _SETTINGS, json.dumps(self.settings()) + "\n")
        return ["vocab.json", "merges.txt", _SETTINGS]

    def most_bytes(self, tokens: int) -> int | None:
        """Returns the bytes of `tokens` entries of the greatest length, as no byte is dropped."""
        # An entry has one character for each byte.
        return tokens * max(map(len, self.tokens))

    def tokenizer(self, tensorflow: bool = True) -> Tokenizer:
        del tensorflow
        return _FastBytePair(self)

    def graph_tokenizer(self) -> GraphTokenizer:
        from official_cmlm.tokenization.byte_pair_graph import GraphBytePair

        return GraphBytePair(self.tokens, self.merges, self.add_prefix_space)


class _FastBytePair(Tokenizer):
    """Byte-level BPE by the Rust library `tokenizers`."""

    def __init__(self, vocabulary: BytePairVocabulary) -> None:
        self._tokenizer = bare_tokenizer(vocabulary)
        self._changes = vocabulary.space_changes_ids
        # Head -> (number of ids that are replaced, the ids that replace them).
        self._heads: dict[str, tuple[int, list[int]]] = {}

    def tokenize(self, texts: Sequence[str]) -> TokenRows:
        return token_rows(self._encode(texts))

    def after_space(self, texts: Sequence[str]) -> AfterSpace | None:
        import numpy as np

        if not self._changes:
            return None
        matches = [_HEAD.match(text) for text in texts]
        heads = [match.group() if match else text for match, text in zip(matches, texts)]
        remembered = self._heads
        new = list(dict.fromkeys(head for head in heads if head not in remembered))
        rows = self._encode([*new, *(f" {head}" for head in new)])
        changed = {
            head: _without_common_end(alone, after)
            for head, alone, after in zip(new, rows, rows[len(new) :])
        }
        rows = [changed.get(head) or remembered[head] for head in heads]
        if len(remembered) > _REMEMBERED_HEADS:
            remembered.clear()
        remembered.update(item for item in changed.items() if len(item[0]) <= _LONGEST_REMEMBERED)
        replaced = np.fromiter((count for count, _ in rows), np.int64, len(rows))
        return AfterSpace(replaced, token_rows([ids for _, ids in rows]))

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        valid = [text.decode("utf-8") for text in utf8(texts)]
        encoded = self._tokenizer.encode_batch_fast(valid, add_special_tokens=False)
        return [encoding.ids for encoding in encoded]


def _without_common_end(before: list[int], now: list[int]) -> tuple[int, list[int]]:
    """Returns how many first ids of `before` differ from `now`, and the ids that replace them."""
    same = 0
    for old, new in zip(reversed(before), reversed(now)):
        if old != new:
            break
        same += 1
    return len(before) - same, now[: len(now) - same]


def bare_tokenizer(vocabulary: BytePairVocabulary) -> Any:
    """Builds a `tokenizers.Tokenizer` with entries and merges but without special tokens.

    So a literal `<mask>` in a text is plain text, as `[MASK]` is in WordPiece.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    merges = [tuple(merge.split(" ")) for merge in vocabulary.merges]
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, merges, unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=vocabulary.add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def read_byte_pair(folder: Path) -> BytePairVocabulary:
    """Reads `vocab.json` and `merges.txt` of a folder; see `load_vocabulary`."""
    path, merges_path = folder / "vocab.json", folder / "merges.txt"
    ids = read_object(path, _ADVICE)
    settings = read_object(folder / _SETTINGS, _ADVICE) if (folder / _SETTINGS).exists() else {}
    lines = read_text(merges_path, _ADVICE).split("\n")
    # The first line may name the version; "#version" further down is a merge like others.
    lines = lines[1:] if lines[0].startswith("#version") else lines
    merges = [line.removesuffix("\r") for line in lines if line.strip("\r")]
    if len(set(merges)) < len(merges):
        raise UserError(f"{merges_path}: a merge stands there twice; take a whole copy")
    prefix = settings.get("add_prefix_space", False)
    if not isinstance(prefix, bool):
        raise UserError(
            f"{folder / _SETTINGS}: add_prefix_space must be true or false, got {prefix!r}"
        )
    return byte_pair_vocabulary(path, ids, merges, prefix)


def byte_pair_vocabulary(
    where: Path, ids: dict[str, int], merges: Sequence[str], add_prefix_space: bool
) -> BytePairVocabulary:
    """Builds a vocabulary after a check of its entries and merges.

    Args:
      where: file that they come from, for messages.
      ids: entry -> id.
      merges: pairs of entries to join, each as `left right`.
      add_prefix_space: see `BytePairVocabulary`.

    Raises:
      UserError: if ids have gaps, if a special token is missing, or if a merge is malformed or
        joins something other than entries.
    """
    if any(type(value) is not int for value in ids.values()) or sorted(ids.values()) != list(
        range(len(ids))
    ):
        raise UserError(f"{where}: ids must be 0 to {len(ids) - 1}, each once; take a whole copy")
    check_unicode(where, ids)
    missing = [t for t in BytePairVocabulary.special_tokens.values() if t not in ids]
    if missing:
        raise UserError(f"{where}: {len(ids)} entries but no {' '.join(missing)}; add them")
    if not merges:
        raise UserError(f"{where}: no merges; take the merges.txt of the same release")
    from tokenizers.pre_tokenizers import ByteLevel

    lost = sorted(set(ByteLevel.alphabet()) - ids.keys())
    if lost:
        raise UserError(f"{where}: no entry for {len(lost)} of the 256 bytes ({lost[0]}); add them")
    for number, merge in enumerate(merges, start=1):
        parts = merge.split(" ")
        if len(parts) != 2 or any(part not in ids for part in (*parts, "".join(parts))):
            raise UserError(
                f"{where}: merge {number} ({merge!r}) does not join two entries to a third; "
                "vocabulary and merges belong to different models"
            )
    return BytePairVocabulary(tuple(sorted(ids, key=ids.get)), tuple(merges), add_prefix_space)
