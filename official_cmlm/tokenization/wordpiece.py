"""WordPiece, BERT's tokenizer: a `vocab.txt`, by tensorflow-text or the library `tokenizers`."""

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
    FromGraph,
    GraphTokenizer,
    Tokenizer,
    TokenRows,
    Vocabulary,
    check_unicode,
    token_rows,
    utf8,
)

NORMALIZATIONS = ("tensorflow_text", "bert")
# Characters that BERT's first release drops: U+0000 and U+FFFD, and control, format and private-use
# characters except tab and line ends.
_DROPPED = r"[\x{00}-\x{08}\x{0B}\x{0C}\x{0E}-\x{1F}\x{7F}-\x{9F}\x{FFFD}\p{Cf}\p{Co}]"
# The model family that the special tokens are named after -> their names by role.
MARKERS = {
    "bert": dict(zip(ROLES, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))),
    "mpnet": dict(zip(ROLES, ("<pad>", "[UNK]", "<s>", "</s>", "<mask>"))),
}
# Characters besides white space that tensorflow-text treats as a space.
_SPACES = (
    r"\x{00}-\x{1F}\x{7F}-\x{9F}\x{600}-\x{605}\x{6DD}\x{70F}\x{890}-\x{891}\x{8E2}"
    r"\x{FFF9}-\x{FFFB}\x{110BD}\x{110CD}\x{13430}-\x{13438}"
)
# Characters that tensorflow-text drops from uncased text and treats as a space in cased text.
_UNSEEN = (
    r"\x{AD}\x{61C}\x{180E}\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2064}\x{2066}-\x{206F}"
    r"\x{FEFF}\x{1BCA0}-\x{1BCA3}\x{1D173}-\x{1D17A}\x{E0001}\x{E0020}-\x{E007F}"
)
_FILLERS = r"\x{115F}\x{1160}\x{3164}\x{FFA0}"
# The most bytes that normalisation makes of one character: U+FDFA becomes 18 Arabic letters.
_MOST_BYTES = 33


@dataclasses.dataclass(frozen=True)
class WordPieceVocabulary(Vocabulary):
    """A WordPiece vocabulary with its settings.

    Attributes:
      tokens: the entries; the index is the id.
      lower_case: lower-case, decompose and strip accents before splitting, as the uncased BERT
        vocabularies expect.
      max_bytes_per_word: the longest word, in bytes of UTF-8; a longer word becomes one `[UNK]`.
        tensorflow-text's own default of 100 turns whole unspaced Thai, Lao and Khmer clauses into
        `[UNK]`, 1000 does not. 100 is right only to reproduce a vocabulary that was published with
        it.
      normalization: `tensorflow_text` (default), as tensorflow-text and TF-Hub's modules normalise
        text, or `bert`, as BERT's first release and Hugging Face's tokenizers do; see
        `_bert_normalized` for how they differ.
      markers: names of the special tokens: `bert` (default), or `mpnet`, which puts RoBERTa's
        before the entries of BERT's vocabulary.
    """

    lower_case: bool
    max_bytes_per_word: int
    normalization: str = "tensorflow_text"
    markers: str = "bert"

    kind: ClassVar[str] = "wordpiece"

    @property
    def special_tokens(self) -> dict[str, str]:
        """Role -> entry."""
        return MARKERS[self.markers]

    def continues_word(self, token: str) -> bool:
        return token.startswith("##")

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.tokens[i] for i in ids).replace(" ##", "")

    @functools.cached_property
    def hash(self) -> str:
        parts = [*self.tokens, *map(str, self.settings().values())]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def settings(self) -> dict[str, bool | int | str]:
        settings = {"lower_case": self.lower_case, "max_bytes_per_word": self.max_bytes_per_word}
        if self.normalization != NORMALIZATIONS[0]:
            settings["normalization"] = self.normalization
        if self.markers != "bert":
            settings["markers"] = self.markers
        return settings

    def save(self, folder: str | os.PathLike) -> list[str]:
        path = Path(folder) / "vocab.txt"
        path.write_text("".join(f"{token}\n" for token in self.tokens), encoding="utf-8")
        atomic_write_text(path.with_suffix(".json"), json.dumps(self.settings()) + "\n")
        return ["vocab.txt", "vocab.json"]

    def tokenizer(self, tensorflow: bool = True) -> Tokenizer:
        return FromGraph(self.graph_tokenizer()) if tensorflow else RustWordPiece(self)

    def graph_tokenizer(self) -> GraphTokenizer:
        """Builds tensorflow-text's fast tokenizer, which needs no assets in a SavedModel."""
        own = self.normalization == NORMALIZATIONS[0]
        tokenizer = _build_fast(self.tokens, self.max_bytes_per_word, self.lower_case and own)
        return tokenizer if own else _bert_normalized(tokenizer, self.lower_case)


@functools.lru_cache(maxsize=4)
def _build_fast(
    tokens: tuple[str, ...], max_bytes_per_word: int, lower_case: bool
) -> GraphTokenizer:
    """Builds tensorflow-text's tokenizer; its tables take 0.1 to 1 second and serve all graphs."""
    import tensorflow as tf
    import tensorflow_text as tf_text

    with tf.init_scope():
        return tf_text.FastBertTokenizer(
            vocab=list(tokens),
            token_out_type=tf.int32,
            unknown_token="[UNK]",
            max_bytes_per_word=max_bytes_per_word,
            lower_case_nfd_strip_accents=lower_case,
        )


def _bert_normalized(cased: GraphTokenizer, lower_case: bool) -> GraphTokenizer:
    """Puts the normalisation of BERT's first release before tensorflow-text's cased tokenizer.

    tensorflow-text's own normalisation differs. For uncased vocabularies it replaces compatible
    characters and folds case (`…` becomes `...`, `ß` becomes `ss`, a final `ς` becomes `σ`); for
    cased ones, a soft hyphen or a zero-width joiner splits a word. Words then get other pieces than
    in the training of the vocabulary.
    """
    import tensorflow as tf
    import tensorflow_text as tf_text

    class BertNormalized(tf.Module):
        """A `GraphTokenizer` that is saved with the module that holds it."""

        def __init__(self) -> None:
            super().__init__(name="bert_normalized")
            self._cased = cased

        def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
            """Maps strings `[batch]` to int32 `[batch, (tokens)]`."""
            texts = tf.strings.regex_replace(texts, _DROPPED, "")
            if lower_case:
                texts = tf_text.normalize_utf8(texts, "NFD")
                texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
                # Lower-casing a whole word would map its last Σ to `ς`; BERT's does not.
                texts = tf.strings.regex_replace(texts, "Σ", "σ")
                texts = tf.strings.lower(texts, encoding="utf-8")
            return self._cased.tokenize(texts)

    return BertNormalized()


def read_wordpiece(
    path: Path,
    lower_case: bool | None = None,
    max_bytes_per_word: int | None = None,
    markers: str | None = None,
) -> WordPieceVocabulary:
    """Reads a `vocab.txt`; arguments override saved settings, see `load_vocabulary`."""
    text = read_text(path, "name a vocabulary; cmlm build-vocab makes one")
    tokens = tuple(text.replace("\r\n", "\n").removesuffix("\n").split("\n")) if text else ()
    saved = _read_settings(path.with_suffix(".json"))
    markers = markers or saved.get("markers", "bert")
    check_wordpiece(path, tokens, markers)
    if lower_case is None:
        lower_case = saved.get("lower_case")
    if lower_case is None:
        raise UserError(f"{path}: casing unknown; pass --lower_case=true or --lower_case=false")
    if max_bytes_per_word is None:
        max_bytes_per_word = saved.get("max_bytes_per_word", 1000)
    return WordPieceVocabulary(
        tokens,
        lower_case,
        max_bytes_per_word,
        saved.get("normalization", NORMALIZATIONS[0]),
        markers,
    )


def _read_settings(path: Path) -> dict[str, bool | int | str]:
    """Reads the settings beside a vocabulary; empty if there are none."""
    if not path.exists():
        return {}
    saved = read_object(path, "delete it or write it again")
    if not isinstance(saved.get("lower_case", True), bool):
        raise UserError(f"{path}: lower_case must be true or false, got {saved['lower_case']!r}")
    # `in` a tuple compares; a dict would hash the value from the file, which may be a list.
    for key, values in (("normalization", NORMALIZATIONS), ("markers", tuple(MARKERS))):
        if saved.get(key, values[0]) not in values:
            raise UserError(f"{path}: {key} must be one of {', '.join(values)}, got {saved[key]!r}")
    longest = saved.get("max_bytes_per_word", 1000)
    if type(longest) is not int or longest < 1:
        raise UserError(f"{path}: max_bytes_per_word must be a positive integer, got {longest!r}")
    return saved


def check_wordpiece(path: Path, tokens: tuple[str, ...], markers: str = "bert") -> None:
    """Raises `UserError` if a special token is missing, or an entry is empty or not unique."""
    check_unicode(path, tokens)
    entries = set(tokens)
    missing = [token for token in MARKERS[markers].values() if token not in entries]
    if missing:
        raise UserError(
            f"{path}: {len(tokens)} entries but no {' '.join(missing)}; add a line for each"
        )
    seen: dict[str, int] = {}
    for line, token in enumerate(tokens, start=1):
        if not token:
            raise UserError(f"{path}: line {line} is empty; remove it (ids count lines)")
        if token in seen:
            raise UserError(
                f"{path}: {token!r} stands on lines {seen[token]} and {line}; remove one"
            )
        seen[token] = line


class RustWordPiece(Tokenizer):
    """A tokenizer of a WordPiece vocabulary, without TensorFlow.

    Its ids equal those of `WordPieceVocabulary.tokenizer` with one exception: under the
    normalisation `tensorflow_text`, uncased Cherokee and nine letters of Church Slavonic get
    another case.
    """

    def __init__(self, vocabulary: WordPieceVocabulary) -> None:
        self._most = vocabulary.max_bytes_per_word
        self._unknown = vocabulary.special_ids["unknown"]
        # The library's limit counts characters, so `_too_long` checks the bytes of long words.
        self._tokenizer = bare_wordpiece(vocabulary, self._most)
        # These characters are white space before and after normalisation, so they end every word.
        self._run = re.compile(rf"[^ \t\n\r]{{{self._most // _MOST_BYTES + 1},}}")

    def tokenize(self, texts: Sequence[str]) -> TokenRows:
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


def bare_wordpiece(vocabulary: WordPieceVocabulary, longest: int) -> Any:
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


def _normalizer(vocabulary: WordPieceVocabulary) -> Any:
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
        return normalizers.Sequence([replace(f"[{_SPACES}{_UNSEEN}]", " "), chinese])
    # The sequence is NFKC with case folding, mostly lower-casing, and then the removal of accents.
    return normalizers.Sequence(
        [
            replace(f"[{_SPACES}]", " "),
            replace(f"[{_UNSEEN}{_FILLERS}]", ""),
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
