"""WordPiece by the Rust library `tokenizers`: where TensorFlow is not installed, and in exports."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from official_cmlm.tokenization.vocabulary import TokenRows, token_rows, utf8

if TYPE_CHECKING:
    from official_cmlm.tokenization.wordpiece import WordPieceVocabulary

# Characters besides white space that tensorflow-text treats as a space.
_SPACES = (
    r"\x{00}-\x{1F}\x{7F}-\x{9F}\x{600}-\x{605}\x{6DD}\x{70F}\x{890}-\x{891}\x{8E2}"
    r"\x{FFF9}-\x{FFFB}\x{110BD}\x{110CD}\x{13430}-\x{13438}"
)
# Characters that it drops from uncased text and treats as a space in cased text.
_DROPPED = (
    r"\x{AD}\x{61C}\x{180E}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2064}\x{2066}-\x{206F}"
    r"\x{FEFF}\x{1BCA0}-\x{1BCA3}\x{1D173}-\x{1D17A}\x{E0001}\x{E0020}-\x{E007F}"
)
_FILLERS = r"\x{115F}\x{1160}\x{3164}\x{FFA0}"
# The most bytes that normalisation makes of one character: U+FDFA becomes 18 Arabic letters.
_MOST_BYTES = 33


class RustWordPiece:
    """A `tokenization.Tokenizer` of a WordPiece vocabulary, without TensorFlow.

    Its ids equal those of `WordPieceVocabulary.tokenizer` with one exception: under the
    normalisation `tensorflow_text`, uncased Cherokee and nine letters of Church Slavonic keep
    another case.
    """

    def __init__(self, vocabulary: "WordPieceVocabulary") -> None:
        self._most = vocabulary.max_bytes_per_word
        self._unknown = vocabulary.special_ids["unknown"]
        # Its limit counts characters, so `_too_long` checks the bytes of longer words.
        self._tokenizer = bare_wordpiece(vocabulary, self._most)
        # These characters are white space before and after normalisation, so they end every word.
        self._run = re.compile(rf"[^ \t\n\r]{{{self._most // _MOST_BYTES + 1},}}")

    def tokenize(self, texts: Sequence[str]) -> TokenRows:
        """See `tokenization.Tokenizer`."""
        valid = [text.decode("utf-8") for text in utf8(texts)]
        encoded = self._tokenizer.encode_batch_fast(valid, add_special_tokens=False)
        rows = [encoding.ids for encoding in encoded]
        for index, text in enumerate(valid):
            # An ASCII character is one byte, so the library's own limit is right for such texts.
            if not text.isascii() and self._run.search(text):
                words = self._words(text)
                if any(map(self._too_long, words)):
                    rows[index] = [i for word in words for i in self._ids(word)]
        return token_rows(rows)

    def _words(self, text: str) -> list[str]:
        normalized = self._tokenizer.normalizer.normalize_str(text)
        return [word for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]

    def _too_long(self, word: str) -> bool:
        # A character has at most four bytes.
        return len(word) * 4 > self._most and len(word.encode()) > self._most

    def _ids(self, word: str) -> list[int]:
        if self._too_long(word):
            return [self._unknown]
        return [token.id for token in self._tokenizer.model.tokenize(word)]

    def after_space(self, texts: Sequence[str]) -> None:
        """Returns None: words are split at white space, so a space before a text changes no id."""


def bare_wordpiece(vocabulary: "WordPieceVocabulary", longest: int) -> Any:
    """Builds a `tokenizers.Tokenizer` of the vocabulary, without special tokens.

    Args:
      vocabulary: entries, casing and normalisation.
      longest: characters of the longest word; a longer one is `[UNK]`.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    tokenizer = tokenizers.Tokenizer(
        models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=longest)
    )
    tokenizer.normalizer = _normalizer(vocabulary)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _normalizer(vocabulary: "WordPieceVocabulary") -> Any:
    from tokenizers import Regex, normalizers

    if vocabulary.normalization == "bert":
        return normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=True,
            strip_accents=None,
            lowercase=vocabulary.lower_case,
        )
    # This normaliser only puts spaces around Chinese characters.
    chinese = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )

    def replace(pattern: str, by: str) -> Any:
        return normalizers.Replace(Regex(pattern), by)

    if not vocabulary.lower_case:
        return normalizers.Sequence([replace(f"[{_SPACES}{_DROPPED}]", " "), chinese])
    # The sequence is NFKC with case folding, mostly lower-casing, and then the removal of accents.
    return normalizers.Sequence(
        [
            replace(f"[{_SPACES}]", " "),
            replace(f"[{_DROPPED}{_FILLERS}]", ""),
            normalizers.NFKC(),
            normalizers.Lowercase(),
            normalizers.Replace("ß", "ss"),
            normalizers.Replace("ς", "σ"),
            normalizers.NFD(),
            normalizers.Replace("\u0345", "ι"),
            replace(r"\p{Mn}", ""),
            chinese,
        ]
    )
