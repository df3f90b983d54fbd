"""Learns a WordPiece vocabulary, with the `tokenizers` library, and measures its coverage."""

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from official_cmlm.common.errors import UserError
from official_cmlm.tokenization import Vocabulary, build_tokenizer

from .mixture import count_words

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Paragraphs of more than this size in total, in bytes, wait on disk between the two passes.
_SPOOL_BYTES = 64 << 20


def learn_wordpiece(
    paragraphs: Iterable[str], vocab_size: int, lower_case: bool, min_frequency: int
) -> list[str]:
    """Learns a WordPiece vocabulary; the same paragraphs always give the same one.

    Args:
      paragraphs: the text; read once.
      vocab_size: entries wanted, the special tokens included. There are fewer if the text does not
        have that many pieces of `min_frequency`.
      lower_case: whether to lower-case and to strip accents, before all else.
      min_frequency: a pair of pieces seen less often in the text is not joined.

    Returns:
      The entries in the order of their ids: special tokens, characters, characters within words
      (with the prefix ##), then longer pieces, the earliest learned first.

    Raises:
      UserError: no text, or a vocabulary too small for its characters.
    """
    with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
        for paragraph in paragraphs:
            spool.write(" ".join(paragraph.split()).encode(errors="replace") + b"\n")
        # The trainer numbers the characters within words as its hash table yields them, which
        # differs from run to run, and breaks ties by these numbers. So a first pass without
        # merges finds the characters, and the second gets them in a fixed order.
        alphabet = set(_train(_lines(spool), SPECIAL_TOKENS, 0, lower_case, 1))
        alphabet.difference_update(SPECIAL_TOKENS)
        check_alphabet(len(alphabet), vocab_size)
        order = sorted(alphabet, key=lambda entry: (len(entry) > 1, entry))
        first = (*SPECIAL_TOKENS, *order)
        return _train(_lines(spool), first, vocab_size, lower_case, min_frequency)


def check_alphabet(characters: int, vocab_size: int) -> None:
    """Raises `UserError` if the text has no characters, or too many for the vocabulary.

    A character that has an entry as the beginning of a word and one within words counts twice.
    """
    if not characters:
        raise UserError("the input holds no text to learn a vocabulary from; check --input")
    needed = len(SPECIAL_TOKENS) + characters
    if vocab_size < needed:
        raise UserError(
            f"vocab_size is {vocab_size}, but the special tokens and the text's"
            f" {characters} characters alone take {needed}; raise --vocab_size to more"
        )


def make_splitter(lower_case: bool) -> tuple[Any, Any]:
    """Returns the normaliser and the splitter into words, of `tokenizers`, that both learners use.

    Args:
      lower_case: whether to lower-case and to strip accents.
    """
    # Imported here, so that `--help` does not wait for it.
    from tokenizers import normalizers, pre_tokenizers

    normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=lower_case,
        lowercase=lower_case,
    )
    return normalizer, pre_tokenizers.BertPreTokenizer()


def format_coverage(vocabulary: Vocabulary, texts: Mapping[str, Sequence[str]]) -> str:
    """Formats a Markdown table of the tokens per word and the share of `[UNK]` of each language.

    Words are those between spaces, and Han characters; tokens are those of the records.
    """
    tokenizer, unknown = build_tokenizer(vocabulary), vocabulary.tokens.index("[UNK]")
    lines = ["language | tokens per word | unknown", "--- | ---: | ---:"]
    for language, sample in texts.items():
        # A file of text holds valid Unicode alone, so half surrogate pairs are replaced.
        ids = tokenizer.tokenize(
            [text.encode("utf-8", "replace").decode() for text in sample]
        ).values
        per_word = len(ids) / max(1, sum(map(count_words, sample)))
        share = 100 * (ids == unknown).sum() / max(1, len(ids))
        lines.append(f"{language} | {per_word:.3f} | {share:.3f} %")
    return "".join(f"| {line} |\n" for line in lines)


def _lines(spool: IO[bytes]) -> Iterator[str]:
    spool.seek(0)
    return (line.decode() for line in spool)


def _train(
    lines: Iterator[str], first: tuple[str, ...], size: int, lower_case: bool, min_frequency: int
) -> list[str]:
    from tokenizers import Tokenizer, models, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = make_splitter(lower_case)
    # No `limit_alphabet`: every character of the text has an entry, or Chinese would lose some.
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=list(first),
        continuing_subword_prefix="##",
        # The library draws its own bars, for the part that only it can see, on terminals alone.
        show_progress=sys.stderr.isatty(),
    )
    tokenizer.train_from_iterator(lines, trainer=trainer)
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)
