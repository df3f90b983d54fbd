"""Writes a vocabulary as the tokenizer files of a Hugging Face folder."""

from pathlib import Path
from typing import Any

from official_cmlm.checkpoints.formats.huggingface_tokenizer import BYTES_PER_CHARACTER
from official_cmlm.common.files import write_json
from official_cmlm.tokenization import (
    BytePairVocabulary,
    SentencePieceVocabulary,
    Vocabulary,
    WordPieceVocabulary,
)
from official_cmlm.tokenization.byte_pair import bare_tokenizer
from official_cmlm.tokenization.sentence_piece import bare_sentence_piece
from official_cmlm.tokenization.wordpiece import bare_wordpiece

# Regular expression of the files that `write_tokenizer` writes.
OWN_FILES = r"(tokenizer(_config)?|special_tokens_map|vocab)\.json|vocab\.txt|merges\.txt"
# Hugging Face's limit of a word's length, in characters; ours, in bytes, is converted by
# `BYTES_PER_CHARACTER`.
_MIN_CHARACTERS = 100


def write_tokenizer(folder: Path, vocabulary: Vocabulary, model_type: str, max_length: int) -> None:
    """Writes `tokenizer.json`, `tokenizer_config.json` and the plain vocabulary files.

    Args:
      folder: existing folder.
      vocabulary: what the encoder was trained with.
      model_type: a key of `huggingface_config.CLASSES`.
      max_length: tokens that the position table covers.
    """
    special = vocabulary.special_tokens
    settings: dict[str, Any] = {
        "model_max_length": max_length,
        "pad_token": special["pad"],
        "unk_token": special["unknown"],
        "cls_token": special["cls"],
        "sep_token": special["sep"],
        "mask_token": special["mask"],
    }
    if isinstance(vocabulary, WordPieceVocabulary):
        tokenizer = _build_wordpiece(vocabulary)
        lines = "".join(f"{token}\n" for token in vocabulary.tokens)
        (folder / "vocab.txt").write_text(lines, encoding="utf-8")
        # A `BertTokenizer` would put its own normalisation in the place of the file's.
        own = vocabulary.normalization != "bert"
        by_type = "MPNetTokenizer" if model_type == "mpnet" else "BertTokenizer"
        settings |= {
            "tokenizer_class": "PreTrainedTokenizerFast" if own else by_type,
            "do_lower_case": vocabulary.lower_case,
            "strip_accents": None,
            "tokenize_chinese_chars": True,
        }
    elif isinstance(vocabulary, BytePairVocabulary):
        tokenizer = _build_byte_pair(vocabulary)
        for name in vocabulary.save(folder):
            if name not in ("vocab.json", "merges.txt"):
                (folder / name).unlink()
        settings |= {
            "tokenizer_class": "RobertaTokenizer",
            "bos_token": special["cls"],
            "eos_token": special["sep"],
            "add_prefix_space": vocabulary.add_prefix_space,
            "trim_offsets": True,
        }
    elif isinstance(vocabulary, SentencePieceVocabulary):
        tokenizer = _build_sentence_piece(vocabulary.without_padding())
        # This class loads `tokenizer.json`, whatever the network is.
        settings |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    else:
        raise TypeError(f"no Hugging Face tokenizer for {type(vocabulary).__name__}")
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, values in (
        ("tokenizer_config.json", settings),
        ("special_tokens_map.json", {k: v for k, v in settings.items() if k.endswith("_token")}),
    ):
        write_json(folder / name, values)


def _surround(vocabulary: WordPieceVocabulary | SentencePieceVocabulary) -> Any:
    """Returns the step that puts special tokens around a text, or around and between two texts."""
    from tokenizers import processors

    cls, sep = (vocabulary.special_tokens[role] for role in ("cls", "sep"))
    pair = f"{cls} $A {sep} {sep} $B {sep}"
    if isinstance(vocabulary, WordPieceVocabulary) and vocabulary.markers == "bert":
        pair = f"{cls} $A {sep} $B:1 {sep}:1"
    ids = [(token, vocabulary.tokens.index(token)) for token in (cls, sep)]
    return processors.TemplateProcessing(f"{cls} $A {sep}", pair, ids)


def build_bare(vocabulary: Vocabulary) -> Any:
    """Builds a `tokenizers.Tokenizer` for which special tokens are like other entries."""
    if isinstance(vocabulary, BytePairVocabulary):
        return bare_tokenizer(vocabulary)
    if isinstance(vocabulary, SentencePieceVocabulary):
        return bare_sentence_piece(vocabulary, vocabulary.tokens)
    longest = max(_MIN_CHARACTERS, vocabulary.max_bytes_per_word // BYTES_PER_CHARACTER)
    return bare_wordpiece(vocabulary, longest)


def _build_wordpiece(vocabulary: WordPieceVocabulary) -> Any:
    tokenizer = build_bare(vocabulary)
    tokenizer.post_processor = _surround(vocabulary)
    tokenizer.add_special_tokens(list(vocabulary.special_tokens.values()))
    return tokenizer


def _build_byte_pair(vocabulary: BytePairVocabulary) -> Any:
    import tokenizers
    from tokenizers import processors

    special, ids = vocabulary.special_tokens, vocabulary.special_ids
    tokenizer = build_bare(vocabulary)
    tokenizer.post_processor = processors.RobertaProcessing(
        (special["sep"], ids["sep"]),
        (special["cls"], ids["cls"]),
        trim_offsets=True,
        add_prefix_space=vocabulary.add_prefix_space,
    )
    # As in RoBERTa's release, the mask token includes the space before it.
    tokenizer.add_special_tokens(
        [
            tokenizers.AddedToken(token, lstrip=role == "mask", normalized=False, special=True)
            for role, token in special.items()
        ]
    )
    return tokenizer


def _build_sentence_piece(vocabulary: SentencePieceVocabulary) -> Any:
    """Returns a Unigram tokenizer that also splits off the special tokens."""
    import tokenizers

    special = vocabulary.special_tokens
    tokenizer = build_bare(vocabulary)
    tokenizer.post_processor = _surround(vocabulary)
    added = {*special.values(), *(vocabulary.tokens[i] for i in vocabulary.controls)}
    tokenizer.add_special_tokens(
        [
            tokenizers.AddedToken(
                token, lstrip=token == special["mask"], normalized=False, special=True
            )
            for token in sorted(added, key=vocabulary.tokens.index)
            # Tokens that CamemBERT marks as not used are left out, and so are tokens with an inner
            # "▁", which the split at spaces would keep from matching.
            if not token.endswith("NOTUSED") and "▁" not in token[1:]
        ]
    )
    return tokenizer
