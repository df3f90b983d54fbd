"""Reads the tokenizer of a Hugging Face folder as a vocabulary of this project."""

import base64
import json
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from official_cmlm.checkpoints.formats.published_files import get_typed, read_json
from official_cmlm.common.errors import UserError, guard_reader
from official_cmlm.tokenization import (
    BytePairVocabulary,
    SentencePieceVocabulary,
    Vocabulary,
    WordPieceVocabulary,
    load_vocabulary,
)
from official_cmlm.tokenization.byte_pair import byte_pair_vocabulary
from official_cmlm.tokenization.sentence_piece import (
    MODEL_NAME,
    SPECIAL_TOKENS,
    sentence_piece_vocabulary,
)
from official_cmlm.tokenization.wordpiece import MARKERS, bare_wordpiece, check_wordpiece

# Hugging Face limits the length of a word in characters, this project in bytes. Only scripts
# without spaces between words have such long words; they need three bytes per character.
BYTES_PER_CHARACTER = 3
_MAX_CHARACTERS = 100
# Names of SentencePiece's files, whose ids an encoder's `tokenizer.json` may change.
_SENTENCE_PIECE_FILES = ("sentencepiece.bpe.model", "spiece.model", MODEL_NAME)
_SETTINGS = "tokenizer_config.json"
# SentencePiece's compiled rules that make a space of each white space at which the library
# `tokenizers` splits: a trie of their UTF-8 bytes, compressed, as most of it is zeros.
WHITE_SPACE_RULES = zlib.decompress(
    base64.b85decode(
        "c-muNVPIfTU|`_f$-uz1k%565Nb@XYVBiJP4J=Fy4VDZH^930|prIjyiJ`H83Cu>u4"
        "ObZ$8iBa!C<8+?5Vru?tw7wS%D~VL#2umx44pvS#ma!87ayJlvfq{{J$S*2y9^8~?_"
        "!r*e-h}{m5dC74J<Gmd~O=);E>J0+5Iqtk>ODTBg5k@)K3=*3;;F}E8_"
    )
)


@guard_reader()
def read_vocabulary(folder: Path, lower_case: bool | None, bare: bool = False) -> Vocabulary:
    """Reads `tokenizer.json`, else the older files of a folder.

    Args:
      folder: holds `tokenizer.json`, or `vocab.txt`, or `vocab.json` and `merges.txt`, and
        optionally `tokenizer_config.json`.
      lower_case: overrides the casing of a WordPiece vocabulary.
      bare: whether the source puts no special tokens around texts. Then those that its
        `tokenizer.json` lacks become its last entries.

    Raises:
      UserError: for a missing or damaged tokenizer, or a setting that cannot be represented.
    """
    settings_path = folder / _SETTINGS
    settings = read_json(settings_path)
    whole = folder / "tokenizer.json"
    if whole.exists():
        values = read_json(whole)
        kind = get_typed(whole, values, "model", dict, {}).get("type")
        if kind == "WordPiece":
            return _wordpiece(whole, values, lower_case, _markers(settings), bare)
        if kind == "BPE":
            return _byte_pair(whole, values, bare)
        if kind == "Unigram":
            return _unigram(whole, values, bare)
        raise UserError(
            f"{whole}: tokenizer {kind!r} cannot be imported; WordPiece, byte-level BPE and "
            "Unigram can"
        )
    for name in _SENTENCE_PIECE_FILES:
        if (folder / name).exists():
            raise UserError(
                f"{folder}: {name} needs tokenizer.json beside it; write that file once, where "
                'transformers is installed: python -c "from transformers import AutoTokenizer; '
                "AutoTokenizer."
                f"from_pretrained('{folder}').save_pretrained('{folder}')\""
            )
    if (folder / "merges.txt").exists():
        vocabulary = load_vocabulary(folder / "merges.txt")
        _refuse_added(folder, read_json(folder / "added_tokens.json"), set(vocabulary.tokens))
        prefix = get_typed(settings_path, settings, "add_prefix_space", bool, False)
        return BytePairVocabulary(vocabulary.tokens, vocabulary.merges, prefix)
    if not (folder / "vocab.txt").exists():
        raise UserError(f"{folder}: no tokenizer.json, vocab.txt or merges.txt; fetch one of them")
    tokens = load_vocabulary(folder / "vocab.txt", lower_case=True).tokens
    _refuse_added(folder, read_json(folder / "added_tokens.json"), set(tokens))
    if lower_case is None:
        lower_case = get_typed(settings_path, settings, "do_lower_case", bool)
    if lower_case is None:
        lower_case = guess_lower_case(tokens)
    _check_normalizer(
        settings_path,
        lower_case,
        settings.get("strip_accents"),
        settings.get("tokenize_chinese_chars"),
    )
    markers = _markers(settings)
    check_wordpiece(folder / "vocab.txt", tokens, markers)
    longest = _MAX_CHARACTERS * BYTES_PER_CHARACTER
    return WordPieceVocabulary(tokens, lower_case, longest, "bert", markers)


def guess_lower_case(tokens: tuple[str, ...]) -> bool:
    """Returns whether no entry of a WordPiece vocabulary, except special tokens, has a capital."""
    return not any(t != t.lower() for t in tokens if not (t.startswith("[") and t.endswith("]")))


def model_max_length(folder: Path) -> int | None:
    """Reads the longest sequence, in tokens, from `tokenizer_config.json`; None without one."""
    length = read_json(folder / _SETTINGS).get("model_max_length")
    # "No limit" is written as 1e30.
    return int(length) if isinstance(length, (int, float)) and 0 < length < 1e9 else None


def _markers(settings: dict[str, Any]) -> str:
    """Returns the key of `wordpiece.MARKERS` that `tokenizer_config.json` implies."""
    first = settings.get("cls_token")
    first = first.get("content") if isinstance(first, dict) else first
    return "mpnet" if first == MARKERS["mpnet"]["cls"] else "bert"


@guard_reader()
def _wordpiece(
    path: Path, values: dict[str, Any], lower_case: bool | None, markers: str, bare: bool
) -> WordPieceVocabulary:
    model = values["model"]
    _only(path, "model.unk_token", model.get("unk_token"), "[UNK]")
    _only(path, "model.continuing_subword_prefix", model.get("continuing_subword_prefix"), "##")
    ids = _ids(path, model.get("vocab"))
    tokens = tuple(sorted(ids, key=ids.get))
    tokens += _list_missing(MARKERS[markers], ids) if bare else ()
    check_wordpiece(path, tokens, markers)
    _refuse_added(path, _list_added(path, values), set(tokens))
    normalizer = get_typed(path, values, "normalizer", dict, {})
    longest = get_typed(path, model, "max_input_chars_per_word", int, _MAX_CHARACTERS)
    longest *= BYTES_PER_CHARACTER
    if normalizer.get("type") == "Sequence":
        # This project's exports have a sequence if their normalisation is tensorflow-text's.
        for cased in (False, True):
            vocabulary = WordPieceVocabulary(tokens, not cased, longest, markers=markers)
            if json.loads(bare_wordpiece(vocabulary, 1).to_str())["normalizer"] == normalizer:
                return vocabulary
    _only(path, "normalizer.type", normalizer.get("type"), "BertNormalizer")
    _only(path, "normalizer.clean_text", normalizer.get("clean_text", True), True)
    splitter = get_typed(path, values, "pre_tokenizer", dict, {}).get("type")
    _only(path, "pre_tokenizer.type", splitter, "BertPreTokenizer")
    if lower_case is None:
        lower_case = get_typed(path, normalizer, "lowercase", bool, False)
    _check_normalizer(
        path, lower_case, normalizer.get("strip_accents"), normalizer.get("handle_chinese_chars")
    )
    return WordPieceVocabulary(tokens, lower_case, longest, "bert", markers)


@guard_reader()
def _byte_pair(path: Path, values: dict[str, Any], bare: bool) -> BytePairVocabulary:
    model = values["model"]
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        _only(path, f"model.{key}", model.get(key) or None, None)
    _only(path, "normalizer", values.get("normalizer"), None)
    splitter = get_typed(path, values, "pre_tokenizer", dict, {})
    _only(path, "pre_tokenizer.type", splitter.get("type"), "ByteLevel")
    _only(path, "pre_tokenizer.use_regex", splitter.get("use_regex", True), True)
    ids = _ids(path, model.get("vocab"))
    missing = _list_missing(BytePairVocabulary.special_tokens, ids) if bare else ()
    ids = ids | {token: i for i, token in enumerate(missing, len(ids))}
    _refuse_added(path, _list_added(path, values), ids.keys())
    merges = [
        " ".join(map(str, merge)) if isinstance(merge, list) else str(merge)
        for merge in get_typed(path, model, "merges", list, [])
    ]
    prefix = get_typed(path, splitter, "add_prefix_space", bool, False)
    return byte_pair_vocabulary(path, ids, merges, prefix)


@guard_reader()
def _unigram(path: Path, values: dict[str, Any], bare: bool) -> SentencePieceVocabulary:
    """Reads a Unigram `tokenizer.json`, which transformers has made of a SentencePiece model."""
    model = values["model"]
    entries = get_typed(path, model, "vocab", list, [])
    _only(path, "model.byte_fallback", model.get("byte_fallback") or False, False)
    tokens = [entry for entry, _ in entries]
    if bare:
        missing = _list_missing(SPECIAL_TOKENS, tokens)
        tokens, entries = [*tokens, *missing], [*entries, *((token, 0.0) for token in missing)]
    _refuse_added(path, _list_added(path, values), set(tokens))
    added = {token["content"]: token for token in values.get("added_tokens") or []}
    split = sorted(content for content, token in added.items() if not token.get("special"))
    _refuse_added(path, split, ())
    charsmap = _normalization(path, get_typed(path, values, "normalizer", dict))
    splits = _splits_at_white_space(path, get_typed(path, values, "pre_tokenizer", dict, {}))
    if splits and not charsmap:
        charsmap = WHITE_SPACE_RULES
    unmatched = {*added, *(entry for entry in tokens if entry.endswith("NOTUSED"))}
    vocabulary = sentence_piece_vocabulary(path, entries, unmatched, charsmap)
    _only(path, "model.unk_id", model.get("unk_id"), vocabulary.special_ids["unknown"])
    if not bare:
        processor = get_typed(path, values, "post_processor", dict, {})
        _check_surroundings(path, processor, vocabulary)
    return vocabulary


def _normalization(path: Path, normalizer: dict[str, Any] | None) -> bytes:
    """Returns SentencePiece's compiled rules; raises `UserError` for steps beside them."""
    steps = [] if normalizer is None else [normalizer]
    if normalizer is not None and normalizer.get("type") == "Sequence":
        steps = get_typed(path, normalizer, "normalizers", list, [])
    # SentencePiece itself removes spaces at the ends and repeated spaces, so these steps are
    # redundant.
    steps = [
        step
        for step in steps
        if not (
            step.get("type") == "Strip"
            or (
                step.get("type") == "Replace"
                and step.get("pattern") == {"Regex": " {2,}"}
                and step.get("content") in (" ", "▁")
            )
        )
    ]
    charsmap = b""
    if steps and steps[-1].get("type") == "Precompiled":
        coded = get_typed(path, steps.pop(), "precompiled_charsmap", str, "")
        charsmap = base64.b64decode(coded, validate=True)
    _only(path, "normalizer", [step.get("type") for step in steps], [])
    return charsmap


def _splits_at_white_space(path: Path, splitter: dict[str, Any]) -> bool:
    """Returns whether texts are split at all white space, or only at U+0020.

    Raises:
      UserError: for other splitters.
    """
    steps = [splitter]
    if splitter.get("type") == "Sequence":
        steps = get_typed(path, splitter, "pretokenizers", list, [])
    kinds = [step.get("type") for step in steps]
    if kinds != ["WhitespaceSplit", "Metaspace"]:
        _only(path, "pre_tokenizer.type", kinds, ["Metaspace"])
    metaspace = steps[-1]
    # Without the split an entry could continue over a space.
    _only(path, "pre_tokenizer.split", metaspace.get("split", True), True)
    _only(path, "pre_tokenizer.replacement", metaspace.get("replacement"), "▁")
    # Older files have `add_prefix_space`, newer files a scheme. Unless an earlier step splits at
    # white space, only the first word has no space before it, so `first` equals `always`.
    scheme = metaspace.get("prepend_scheme", "always")
    if (scheme, len(kinds)) != ("first", 1):
        _only(path, "pre_tokenizer.prepend_scheme", scheme, "always")
    _only(path, "pre_tokenizer.add_prefix_space", metaspace.get("add_prefix_space", True), True)
    return len(kinds) == 2


def _check_surroundings(
    path: Path, processor: dict[str, Any], vocabulary: SentencePieceVocabulary
) -> None:
    """Raises `UserError` unless one special token precedes a text and one follows it."""
    special, ids = vocabulary.special_tokens, vocabulary.special_ids
    cls, sep = special["cls"], special["sep"]
    kind = processor.get("type")
    if kind in ("BertProcessing", "RobertaProcessing"):
        for role, token in (("cls", cls), ("sep", sep)):
            _only(path, f"post_processor.{role}", processor.get(role), [token, ids[role]])
        return
    _only(path, "post_processor.type", kind, "TemplateProcessing")
    parts = (("SpecialToken", cls), ("Sequence", "A"), ("SpecialToken", sep))
    single = [{part: {"id": name, "type_id": 0}} for part, name in parts]
    _only(path, "post_processor.single", processor.get("single"), single)
    tokens = get_typed(path, processor, "special_tokens", dict, {})
    for role, token in (("cls", cls), ("sep", sep)):
        listed = get_typed(path, tokens, token, dict, {}).get("ids")
        _only(path, f"post_processor.special_tokens.{token}.ids", listed, [ids[role]])


def _ids(path: Path, vocab: Any) -> dict[str, int]:
    if not isinstance(vocab, dict) or sorted(vocab.values(), key=str) != sorted(
        range(len(vocab)), key=str
    ):
        raise UserError(
            f"{path}: model.vocab must map entries to ids 0, 1, … without gaps; fetch it again"
        )
    return vocab


def _list_added(path: Path, values: dict[str, Any]) -> list[str]:
    tokens = get_typed(path, values, "added_tokens", list, [])
    return [token["content"] for token in tokens]


def _list_missing(special: dict[str, str], entries: Collection[str]) -> tuple[str, ...]:
    return tuple(token for token in special.values() if token not in entries)


def _refuse_added(path: Path, added: Iterable[str], entries: Collection[str]) -> None:
    unknown = [token for token in added if token not in entries]
    if unknown:
        raise UserError(
            f"{path}: {len(unknown)} token(s) were added to the vocabulary ({unknown[0]!r}, …); "
            "tokens that are never split cannot be represented"
        )


def _check_normalizer(
    path: Path, lower_case: bool, strip_accents: bool | None, chinese: bool | None
) -> None:
    """Raises `UserError` for a normaliser that `WordPieceVocabulary` cannot represent.

    The vocabulary lower-cases and strips accents together, and always isolates Chinese characters.
    """
    if strip_accents not in (None, lower_case):
        raise UserError(
            f"{path}: strip_accents {strip_accents} with lower-casing {lower_case} cannot be "
            "represented; both or neither"
        )
    if chinese is False:
        raise UserError(f"{path}: Chinese characters that are not isolated cannot be represented")


def _only(path: Path, key: str, got: Any, expected: Any) -> None:
    if got != expected:
        raise UserError(f"{path}: {key} is {got!r}; only {expected!r} can be represented")
