"""SentencePiece with a unigram model, the tokenizer of XLM-R and CamemBERT."""

import dataclasses
import functools
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.common.files import atomic_write, refuse_special
from official_cmlm.common.normal_forms import normalise
from official_cmlm.tokenization import sentence_piece_model as format_
from official_cmlm.tokenization.vocabulary import (
    ROLES,
    FromGraph,
    GraphTokenizer,
    Tokenizer,
    TokenRows,
    Vocabulary,
    check_unicode,
    token_rows,
    utf8,
)

MODEL_NAME = "sentencepiece.model"
_ADVICE = "take a whole copy of the vocabulary"
_UNUSED = "<unused:{}>"
# U+2581, SentencePiece's spelling of a space.
_SPACE = "▁"
SPECIAL_TOKENS = dict(zip(ROLES, ("<pad>", "<unk>", "<s>", "</s>", "<mask>")))
# A letter with several marks, such as Vietnamese in Unicode's decomposed form. Other marks, such as
# Arabic ones, are left out, because composition would change their order.
_SEVERAL_MARKS = re.compile(r"[^\u0300-\u036F][\u0300-\u036F]{2,}")


@dataclasses.dataclass(frozen=True)
class SentencePieceVocabulary(Vocabulary):
    """A unigram SentencePiece vocabulary in the order of the encoder's embedding table.

    XLM-R and CamemBERT number their entries differently from the SentencePiece model in their
    release: special tokens come first. Here the model itself has the encoder's order, so that its
    ids need no translation.

    Attributes:
      tokens: the entries, a space spelled `▁` (U+2581); index is the id.
      scores: logarithm of each entry's probability, float32; 0 for the entries of `controls`.
      controls: ids of entries that no text is tokenised to: special tokens except the unknown one,
        entries with a space after their first character, and unused entries.
      charsmap: SentencePiece's compiled normalisation, `precompiled_charsmap`; empty: none.
    """

    scores: tuple[float, ...]
    controls: tuple[int, ...]
    charsmap: bytes

    kind: ClassVar[str] = "sentencepiece"

    @property
    def special_tokens(self) -> dict[str, str]:
        """Role -> entry."""
        return SPECIAL_TOKENS

    def continues_word(self, token: str) -> bool:
        return not token.startswith(_SPACE)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.tokens[i] for i in ids).replace(_SPACE, " ").strip()

    @functools.cached_property
    def hash(self) -> str:
        import numpy as np

        digest = hashlib.sha256("\n".join(self.tokens).encode())
        digest.update(np.array(self.scores, "<f4").tobytes())
        digest.update(f"\n{self.controls}\n".encode() + self.charsmap)
        return digest.hexdigest()[:16]

    def settings(self) -> dict[str, bool | int | str]:
        return {}

    def save(self, folder: str | os.PathLike) -> list[str]:
        with atomic_write(Path(folder) / MODEL_NAME) as file:
            file.write(self.serialize())
        return [MODEL_NAME]

    def serialize(self) -> bytes:
        """Returns the content of the vocabulary's SentencePiece model file."""
        model, special = format_.new_model(), self.special_ids
        controls = set(self.controls)
        for index, (token, score) in enumerate(zip(self.tokens, self.scores)):
            kind = format_.CONTROL if index in controls else format_.NORMAL
            kind = format_.UNKNOWN if index == special["unknown"] else kind
            model.pieces.add(piece=token, score=score, type=kind)
        trained = model.trainer_spec
        trained.model_type, trained.vocab_size = format_.UNIGRAM, len(self)
        for theirs, role in (("unk", "unknown"), ("bos", "cls"), ("eos", "sep"), ("pad", "pad")):
            setattr(trained, f"{theirs}_id", special[role])
            setattr(trained, f"{theirs}_piece", self.special_tokens[role])
        model.normalizer_spec.precompiled_charsmap = self.charsmap
        # These are written out because readers differ in their defaults.
        model.normalizer_spec.add_dummy_prefix = True
        model.normalizer_spec.remove_extra_whitespaces = True
        model.normalizer_spec.escape_whitespaces = True
        return model.SerializeToString(deterministic=True)

    def select(self, ids: Sequence[int]) -> "SentencePieceVocabulary":
        controls = set(self.controls)
        return dataclasses.replace(
            super().select(ids),
            scores=tuple(self.scores[i] for i in ids),
            controls=tuple(new for new, old in enumerate(ids) if old in controls),
        )

    def pad(self, entries: int) -> "SentencePieceVocabulary":
        """Adds unused entries at the end, until there are `entries`, an embedding table's rows."""
        more = range(len(self), entries)
        return dataclasses.replace(
            self,
            tokens=(*self.tokens, *map(_UNUSED.format, more)),
            scores=(*self.scores, *[0.0] * len(more)),
            controls=(*self.controls, *more),
        )

    def without_padding(self) -> "SentencePieceVocabulary":
        """Removes the entries that `pad` has added."""
        used = len(self)
        while self.tokens[used - 1] == _UNUSED.format(used - 1):
            used -= 1
        return dataclasses.replace(
            self,
            tokens=self.tokens[:used],
            scores=self.scores[:used],
            controls=tuple(i for i in self.controls if i < used),
        )

    def tokenizer(self, tensorflow: bool = True) -> Tokenizer:
        """Builds tensorflow-text's tokenizer, ten times as fast as SentencePiece's own."""
        return FromGraph(self.graph_tokenizer()) if tensorflow else RustSentencePiece(self)

    def graph_tokenizer(self) -> GraphTokenizer:
        """Builds tensorflow-text's fast SentencePiece, which needs no assets in a SavedModel.

        The ids equal those of the library `sentencepiece`, except that bytes that are not UTF-8 may
        become another number of unknown tokens. tensorflow-text's `SentencepieceTokenizer` contains
        an older release of that library and takes ten times as long.
        """
        import tensorflow as tf
        import tensorflow_text as tf_text

        class GraphSentencePiece(tf.Module):
            """A `GraphTokenizer` that is saved with the module that holds it."""

            def __init__(self, model: bytes) -> None:
                super().__init__(name="sentence_piece")
                self._tokenizer = tf_text.FastSentencepieceTokenizer(model)

            def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
                """Maps strings `[batch]` to int32 `[batch, (tokens)]`."""
                # This tokenizer returns int32 row splits; all others return int64.
                return self._tokenizer.tokenize(texts).with_row_splits_dtype(tf.int64)

        return GraphSentencePiece(self.serialize())


def read_sentence_piece(path: Path) -> SentencePieceVocabulary:
    """Reads a SentencePiece model; see `load_vocabulary`."""
    refuse_special(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {_ADVICE}") from None
    pieces, charsmap = parse(path, content)
    return sentence_piece_vocabulary(
        path,
        [(piece, score) for piece, score, _ in pieces],
        {piece for piece, _, kind in pieces if kind in (format_.CONTROL, format_.UNUSED)},
        charsmap,
    )


def parse(path: Path, content: bytes) -> tuple[list[tuple[str, float, int]], bytes]:
    """Reads a SentencePiece model.

    Args:
      path: its file, for messages.
      content: its bytes.

    Returns:
      Each piece with score and kind, and the compiled normalisation.

    Raises:
      UserError: if it is damaged, or of a kind that cannot be represented.
    """
    with guard_reading(path, _ADVICE):
        model = format_.parse_model(content)
    trained, normalizer = model.trainer_spec, model.normalizer_spec
    wrong = {
        "model_type is not unigram": trained.model_type != format_.UNIGRAM,
        "byte_fallback": trained.byte_fallback,
        "treat_whitespace_as_suffix": trained.treat_whitespace_as_suffix,
        "add_dummy_prefix is off": not normalizer.add_dummy_prefix,
        "remove_extra_whitespaces is off": not normalizer.remove_extra_whitespaces,
        "escape_whitespaces is off": not normalizer.escape_whitespaces,
        "user-defined pieces": any(p.type == format_.USER_DEFINED for p in model.pieces),
    }
    for what, is_so in wrong.items():
        if is_so:
            raise UserError(f"{path}: {what}, which cannot be represented; take another model")
    pieces = [(piece.piece, piece.score, piece.type) for piece in model.pieces]
    return pieces, normalizer.precompiled_charsmap


def sentence_piece_vocabulary(
    where: Path,
    entries: Sequence[tuple[str, float]],
    unmatched: set[str],
    charsmap: bytes,
) -> SentencePieceVocabulary:
    """Builds a vocabulary after a check of its entries and scores.

    Args:
      where: file that they come from, for messages.
      entries: token and score, in the order of ids.
      unmatched: entries that no text is tokenised to, besides the special tokens.
      charsmap: see `SentencePieceVocabulary`.

    Raises:
      UserError: if an entry is listed twice, if a special token is missing, or if a score is not
        finite.
    """
    tokens = tuple(token for token, _ in entries)
    check_unicode(where, tokens)
    unique = set(tokens)
    if len(unique) < len(tokens):
        raise UserError(f"{where}: an entry stands there twice; {_ADVICE}")
    missing = [token for token in SPECIAL_TOKENS.values() if token not in unique]
    if missing:
        raise UserError(
            f"{where}: {len(tokens)} entries but no {' '.join(missing)}; take the tokenizer of an "
            "encoder, or train the model with these as control symbols"
        )
    # Hugging Face splits texts at spaces first, so that no entry continues over a space.
    unmatched = unmatched | {token for token in tokens if _SPACE in token[1:]}
    unmatched = (unmatched | set(SPECIAL_TOKENS.values())) - {SPECIAL_TOKENS["unknown"]}
    controls = tuple(i for i, token in enumerate(tokens) if token in unmatched)
    scores = [0.0 if token in unmatched else score for token, score in entries]
    if any(not -1e9 < score <= 1e9 for score in scores):
        raise UserError(f"{where}: a score is not finite; {_ADVICE}")
    return SentencePieceVocabulary(tokens, tuple(scores), controls, charsmap)


class RustSentencePiece(Tokenizer):
    """A tokenizer of a SentencePiece vocabulary, without TensorFlow.

    Its ids equal those of `SentencePieceVocabulary.tokenizer` with these exceptions: if two ways to
    split a word are equally probable, the two tokenizers may choose differently; a letter may lose
    marks that Unicode does not compose with it; and U+0085 is a space. Without rules of
    normalisation it strips spaces other than U+0020 from the end, and treats several `▁` in a text
    differently.
    """

    def __init__(self, vocabulary: SentencePieceVocabulary) -> None:
        entries = list(vocabulary.tokens)
        # No text is tokenised to these spellings: texts are split at spaces, so no word has one.
        for index in (*vocabulary.controls, vocabulary.special_ids["unknown"]):
            entries[index] = f" {index}"
        self._tokenizer = bare_sentence_piece(vocabulary, entries)
        # If the normalisation composes letters and marks, the library drops all but the first of
        # several marks, so `tokenize` composes such letters beforehand.
        normalizer = self._tokenizer.normalizer
        self._composes = normalizer is not None and normalizer.normalize_str("e\u0301") == "é"

    def tokenize(self, texts: Sequence[str]) -> TokenRows:
        valid = [text.decode("utf-8") for text in utf8(texts)]
        if self._composes:
            valid = [_SEVERAL_MARKS.sub(_compose, text) for text in valid]
        encoded = self._tokenizer.encode_batch_fast(valid, add_special_tokens=False)
        return token_rows([encoding.ids for encoding in encoded])


def _compose(match: re.Match[str]) -> str:
    return normalise("NFC", match[0])


def bare_sentence_piece(vocabulary: SentencePieceVocabulary, entries: Sequence[str]) -> Any:
    """Builds the `tokenizers.Tokenizer` that transformers would make of a SentencePiece model.

    Args:
      vocabulary: scores and normalisation.
      entries: the spelling of each entry, in place of the vocabulary's.
    """
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    unknown = vocabulary.special_ids["unknown"]
    scored = list(zip(entries, vocabulary.scores, strict=True))
    tokenizer = tokenizers.Tokenizer(models.Unigram(scored, unknown, byte_fallback=False))
    space = {"replacement": "▁", "prepend_scheme": "always"}
    split = pre_tokenizers.Metaspace(**space)
    if vocabulary.charsmap:
        tokenizer.normalizer = normalizers.Precompiled(vocabulary.charsmap)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), split])
    else:
        # Only U+0020 is a space, as no rule replaces other white space.
        tokenizer.normalizer = normalizers.Sequence(
            [
                normalizers.Strip(left=False, right=True),
                normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
            ]
        )
        tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Metaspace(**space)
    return tokenizer
