"""SentencePiece by the Rust library `tokenizers`: where TensorFlow is missing, and in exports."""

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from official_cmlm.tokenization.vocabulary import TokenRows, token_rows, utf8

if TYPE_CHECKING:
    from official_cmlm.tokenization.sentence_piece import SentencePieceVocabulary

# A letter with several marks, such as Vietnamese in Unicode's decomposed form. Composition would
# change the order of other marks, such as Arabic ones.
_SEVERAL_MARKS = re.compile(r"[^\u0300-\u036F][\u0300-\u036F]{2,}")


class RustSentencePiece:
    """A `tokenization.Tokenizer` of a SentencePiece vocabulary, without TensorFlow.

    Its ids equal those of `SentencePieceVocabulary.tokenizer` with these exceptions: if two ways to
    split a word are equally probable, it may take the other one; a letter may lose marks that
    Unicode does not compose with it; and U+0085 is a space. Without rules of normalisation it
    strips spaces other than U+0020 from the end, and treats several `▁` in a text differently.
    """

    def __init__(self, vocabulary: "SentencePieceVocabulary") -> None:
        entries = list(vocabulary.tokens)
        # No text is tokenised to these, as no piece has a space after the split at spaces.
        for index in (*vocabulary.controls, vocabulary.special_ids["unknown"]):
            entries[index] = f" {index}"
        self._tokenizer = bare_sentence_piece(vocabulary, entries)
        # Whether the normalisation composes letters and marks. The library then takes only the
        # first of several marks; a letter that is composed before is taken whole.
        normalizer = self._tokenizer.normalizer
        self._composes = normalizer is not None and normalizer.normalize_str("e\u0301") == "é"

    def tokenize(self, texts: Sequence[str]) -> TokenRows:
        """See `tokenization.Tokenizer`."""
        valid = [text.decode("utf-8") for text in utf8(texts)]
        if self._composes:
            valid = [_SEVERAL_MARKS.sub(_composed, text) for text in valid]
        encoded = self._tokenizer.encode_batch_fast(valid, add_special_tokens=False)
        return token_rows([encoding.ids for encoding in encoded])

    def after_space(self, texts: Sequence[str]) -> None:
        """Returns None: every text gets a space before it, so another one changes no id."""


def _composed(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", found[0])


def bare_sentence_piece(vocabulary: "SentencePieceVocabulary", entries: Sequence[str]) -> Any:
    """Builds a `tokenizers.Tokenizer` as transformers converts SentencePiece models.

    Args:
      vocabulary: scores and normalisation.
      entries: the spelling of the entries.
    """
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    unknown = vocabulary.special_ids["unknown"]
    scored = list(zip(entries, vocabulary.scores, strict=True))
    tokenizer = tokenizers.Tokenizer(models.Unigram(scored, unknown, byte_fallback=False))
    space = {"replacement": "▁", "prepend_scheme": "always"}
    split = pre_tokenizers.Metaspace(**space)
    steps = [each for step in vocabulary.steps.split() for each in _step(step)]
    if vocabulary.charsmap:
        rules = normalizers.Precompiled(vocabulary.charsmap)
        tokenizer.normalizer = normalizers.Sequence([*steps, rules]) if steps else rules
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), split])
    else:
        # Only U+0020 is a space, as no rule replaces other white space.
        tokenizer.normalizer = normalizers.Sequence(
            [
                *steps,
                normalizers.Strip(left=False, right=True),
                normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
            ]
        )
        tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Metaspace(**space)
    return tokenizer


def _step(name: str) -> list[Any]:
    """Returns a step of `SentencePieceVocabulary.steps` as transformers writes it for ALBERT."""
    from tokenizers import normalizers

    if name == "quotes":
        return [normalizers.Replace(pair, '"') for pair in ("``", "''")]
    if name == "accents":
        return [normalizers.NFKD(), normalizers.StripAccents()]
    return [normalizers.Lowercase()]
