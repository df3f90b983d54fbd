"""Reads the tokenizer of a Hugging Face folder as a vocabulary of this project."""

import base64
import binascii
import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from official_cmlm.checkpoints.formats.published_files import read_json, typed
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import refuse_special
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
    STEPS,
    parse,
    read_sentence_piece,
    sentence_piece_vocabulary,
)
from official_cmlm.tokenization.sentence_piece_model import NORMAL, USER_DEFINED
from official_cmlm.tokenization.sentence_piece_rules import read_rules, rules_for_single_characters
from official_cmlm.tokenization.wordpiece import MARKERS, bare_wordpiece, check_wordpiece

# Hugging Face limits the length of a word in characters, this project in bytes. Only scripts
# without spaces between words have such long words; they need three bytes per character.
BYTES_PER_CHARACTER = 3
_MAX_CHARACTERS = 100
# Names of SentencePiece files beside or instead of a `tokenizer.json`: XLM-R's and CamemBERT's,
# ALBERT's, and this project's.
_SENTENCE_PIECE_FILES = ("sentencepiece.bpe.model", "spiece.model", MODEL_NAME)
# Entries that XLM-R and CamemBERT put before those of the SentencePiece model, and the number of
# the model's own first entries that they leave out.
_FAIRSEQ_ENTRIES = {
    "XLMRoberta": (["<s>", "<pad>", "</s>", "<unk>"], 3),
    "Camembert": (["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"], 1),
}
# Tokenizers that are read without a `tokenizer.json` -> `model_type` of their networks.
_PLAIN_MODELS = {"XLMRoberta": "xlm-roberta", "Camembert": "camembert", "Albert": "albert"}
# The steps of a `SentencePieceVocabulary` as `tokenizer.json` spells them.
_STEPS = {
    "quotes": [
        {"type": "Replace", "pattern": {"String": pair}, "content": '"'} for pair in ("``", "''")
    ],
    "accents": [{"type": "NFKD"}, {"type": "StripAccents"}],
    "lower_case": [{"type": "Lowercase"}],
}
_SETTINGS = "tokenizer_config.json"
_DAMAGED_RULES = "precompiled_charsmap is damaged; fetch it again"


def read_vocabulary(folder: Path, lower_case: bool | None) -> Vocabulary:
    """Reads `tokenizer.json`, else the older files of a folder.

    Args:
      folder: holds `tokenizer.json`, or `vocab.txt`, or `vocab.json` and `merges.txt`, or a
        SentencePiece model, and optionally `tokenizer_config.json`.
      lower_case: overrides the casing of a WordPiece vocabulary.

    Raises:
      UserError: for a missing or damaged tokenizer, or a setting that cannot be represented.
    """
    settings_path = folder / _SETTINGS
    settings = read_json(settings_path)
    whole = folder / "tokenizer.json"
    if whole.exists():
        values = read_json(whole)
        kind = typed(whole, values, "model", dict, {}).get("type")
        if kind == "WordPiece":
            return _wordpiece(whole, values, lower_case, _markers(settings))
        if kind == "BPE":
            return _byte_pair(whole, values)
        if kind == "Unigram":
            return _unigram(whole, values)
        raise UserError(
            f"{whole}: tokenizer {kind!r} cannot be imported; WordPiece, byte-level BPE and "
            "Unigram can"
        )
    for name in _SENTENCE_PIECE_FILES:
        if (folder / name).exists():
            return _sentence_piece(folder / name, settings)
    if (folder / "merges.txt").exists():
        vocabulary = load_vocabulary(folder / "merges.txt")
        _refuse_added(folder, read_json(folder / "added_tokens.json"), set(vocabulary.tokens))
        prefix = typed(settings_path, settings, "add_prefix_space", bool, False)
        return BytePairVocabulary(vocabulary.tokens, vocabulary.merges, prefix)
    if not (folder / "vocab.txt").exists():
        raise UserError(
            f"{folder}: no tokenizer.json, vocab.txt, merges.txt or SentencePiece model; fetch one "
            "of them"
        )
    tokens = load_vocabulary(folder / "vocab.txt", lower_case=True).tokens
    _refuse_added(folder, read_json(folder / "added_tokens.json"), set(tokens))
    if lower_case is None:
        lower_case = typed(settings_path, settings, "do_lower_case", bool)
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


def _wordpiece(
    path: Path, values: dict[str, Any], lower_case: bool | None, markers: str
) -> WordPieceVocabulary:
    model = values["model"]
    _only(path, "model.unk_token", model.get("unk_token"), "[UNK]")
    _only(path, "model.continuing_subword_prefix", model.get("continuing_subword_prefix"), "##")
    ids = _ids(path, model.get("vocab"))
    tokens = tuple(sorted(ids, key=ids.get))
    check_wordpiece(path, tokens, markers)
    _refuse_added(path, _added(path, values), ids.keys())
    normalizer = typed(path, values, "normalizer", dict, {})
    longest = typed(path, model, "max_input_chars_per_word", int, _MAX_CHARACTERS)
    longest *= BYTES_PER_CHARACTER
    if normalizer.get("type") == "Sequence":
        # This project's exports have a sequence if their normalisation is tensorflow-text's.
        for cased in (False, True):
            vocabulary = WordPieceVocabulary(tokens, not cased, longest, markers=markers)
            if json.loads(bare_wordpiece(vocabulary, 1).to_str())["normalizer"] == normalizer:
                return vocabulary
    _only(path, "normalizer.type", normalizer.get("type"), "BertNormalizer")
    _only(path, "normalizer.clean_text", normalizer.get("clean_text", True), True)
    splitter = typed(path, values, "pre_tokenizer", dict, {}).get("type")
    _only(path, "pre_tokenizer.type", splitter, "BertPreTokenizer")
    if lower_case is None:
        lower_case = typed(path, normalizer, "lowercase", bool, False)
    _check_normalizer(
        path, lower_case, normalizer.get("strip_accents"), normalizer.get("handle_chinese_chars")
    )
    return WordPieceVocabulary(tokens, lower_case, longest, "bert", markers)


def _byte_pair(path: Path, values: dict[str, Any]) -> BytePairVocabulary:
    model = values["model"]
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        _only(path, f"model.{key}", model.get(key) or None, None)
    _only(path, "normalizer", values.get("normalizer"), None)
    splitter = typed(path, values, "pre_tokenizer", dict, {})
    _only(path, "pre_tokenizer.type", splitter.get("type"), "ByteLevel")
    _only(path, "pre_tokenizer.use_regex", splitter.get("use_regex", True), True)
    ids = _ids(path, model.get("vocab"))
    _refuse_added(path, _added(path, values), ids.keys())
    merges = [
        " ".join(map(str, merge)) if isinstance(merge, list) else str(merge)
        for merge in typed(path, model, "merges", list, [])
    ]
    prefix = typed(path, splitter, "add_prefix_space", bool, False)
    return byte_pair_vocabulary(path, ids, merges, prefix)


def _unigram(path: Path, values: dict[str, Any]) -> SentencePieceVocabulary:
    """Reads a Unigram `tokenizer.json`, which transformers has made of a SentencePiece model."""
    model = values["model"]
    entries = typed(path, model, "vocab", list, [])
    if not all(
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], int | float)
        for entry in entries
    ):
        raise UserError(f"{path}: model.vocab must be a list of [entry, score]; fetch it again")
    _only(path, "model.byte_fallback", model.get("byte_fallback") or False, False)
    known = [entry for entry, _ in entries]
    _refuse_added(path, _added(path, values), set(known))
    added = {token["content"]: token for token in values.get("added_tokens") or []}
    split = sorted(content for content, token in added.items() if not token.get("special"))
    _refuse_added(path, split, ())
    steps, charsmap = _normalization(path, typed(path, values, "normalizer", dict))
    splits = _splits_at_white_space(path, typed(path, values, "pre_tokenizer", dict, {}))
    if "accents" in steps or (splits and not charsmap):
        try:
            charsmap = rules_for_single_characters(charsmap, splits)
        except ValueError:
            raise UserError(f"{path}: {_DAMAGED_RULES}") from None
    unmatched = {*added, *(entry for entry in known if entry.endswith("NOTUSED"))}
    vocabulary = sentence_piece_vocabulary(path, entries, unmatched, charsmap, " ".join(steps))
    _only(path, "model.unk_id", model.get("unk_id"), vocabulary.special_ids["unknown"])
    processor = typed(path, values, "post_processor", dict, {})
    _check_surroundings(path, processor, vocabulary)
    return vocabulary


def _normalization(path: Path, normalizer: dict[str, Any] | None) -> tuple[list[str], bytes]:
    """Returns the steps of `SentencePieceVocabulary` and SentencePiece's compiled rules."""
    steps = [] if normalizer is None else [normalizer]
    if normalizer is not None and normalizer.get("type") == "Sequence":
        steps = typed(path, normalizer, "normalizers", list, [])
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
        try:
            charsmap = base64.b64decode(
                typed(path, steps.pop(), "precompiled_charsmap", str, ""), validate=True
            )
        except (binascii.Error, ValueError):
            raise UserError(f"{path}: {_DAMAGED_RULES}") from None
    names = []
    while steps:
        for name, spelled in _STEPS.items():
            if steps[: len(spelled)] == spelled:
                names.append(name)
                steps = steps[len(spelled) :]
                break
        else:
            _only(path, "normalizer", [step.get("type") for step in steps], [])
    return names, charsmap


def _splits_at_white_space(path: Path, splitter: dict[str, Any]) -> bool:
    """Returns whether texts are split at all white space, or only at U+0020.

    Raises:
      UserError: for other splitters.
    """
    steps = [splitter]
    if splitter.get("type") == "Sequence":
        steps = typed(path, splitter, "pretokenizers", list, [])
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
    tokens = typed(path, processor, "special_tokens", dict, {})
    for role, token in (("cls", cls), ("sep", sep)):
        found = typed(path, tokens, token, dict, {}).get("ids")
        _only(path, f"post_processor.special_tokens.{token}.ids", found, [ids[role]])


def _sentence_piece(path: Path, settings: dict[str, Any]) -> SentencePieceVocabulary:
    """Reads a SentencePiece model without `tokenizer.json` as transformers does."""
    if path.name == MODEL_NAME:
        return read_sentence_piece(path)
    refuse_special(path)
    name = _tokenizer_class(path, settings)
    pieces, charsmap, _ = parse(path, path.read_bytes(), user_defined=name == "Albert")
    steps: list[str] = []
    if name == "Albert":
        steps = _alberts_steps(path.with_name(_SETTINGS), settings)
        _check_alberts_pieces(path, pieces, charsmap, steps)
    if "accents" in steps or not charsmap:
        # Texts are split at all white space, not at U+0020 alone.
        try:
            charsmap = rules_for_single_characters(charsmap, spaces=True)
        except ValueError:
            raise UserError(f"{path}: {_DAMAGED_RULES}") from None
    entries = [(piece, score) for piece, score, _ in pieces]
    unmatched = {piece for piece, _, kind in pieces if kind not in (NORMAL, USER_DEFINED)}
    if name in _FAIRSEQ_ENTRIES:
        first, left_out = _FAIRSEQ_ENTRIES[name]
        unmatched |= set(first)
        entries = [*((e, 0.0) for e in first), *entries[left_out:], ("<mask>", 0.0)]
    vocabulary = sentence_piece_vocabulary(path, entries, unmatched, charsmap, " ".join(steps))
    _check_settings(path.with_name(_SETTINGS), settings, vocabulary)
    return vocabulary


def _tokenizer_class(path: Path, settings: dict[str, Any]) -> str:
    """Finds a SentencePiece model's tokenizer, a key of `_PLAIN_MODELS`, in transformers' order."""
    settings_path, config_path = path.with_name(_SETTINGS), path.with_name("config.json")
    config = read_json(config_path)
    name = typed(settings_path, settings, "tokenizer_class", str)
    name = name or typed(config_path, config, "tokenizer_class", str)
    if name is None:
        kind = config.get("model_type")
        name = next((name for name, of in _PLAIN_MODELS.items() if of == kind), "")
    short = name.removesuffix("Fast").removesuffix("Tokenizer")
    # The tokenizer determines the ids only of its own file; ALBERT's is called `spiece.model`.
    if short not in _PLAIN_MODELS or (short == "Albert") != (path.name == "spiece.model"):
        raise UserError(
            f"{settings_path}: tokenizer_class {name!r} says nothing about the ids of {path.name}; "
            f"{', '.join(_PLAIN_MODELS)} do, of their own files; fetch tokenizer.json"
        )
    return short


def _alberts_steps(path: Path, settings: dict[str, Any]) -> list[str]:
    """Returns the steps of ALBERT's tokenizer before SentencePiece."""
    _only(path, "remove_space", settings.get("remove_space", True), True)
    without = {
        "accents": typed(path, settings, "keep_accents", bool, False),
        "lower_case": not typed(path, settings, "do_lower_case", bool, True),
    }
    return [step for step in STEPS if not without.get(step)]


def _check_alberts_pieces(
    path: Path, pieces: list[tuple[str, float, int]], charsmap: bytes, steps: list[str]
) -> None:
    """Raises `UserError` for pieces that cannot be represented.

    Some releases of transformers split an entry that ends with a digit and a comma, others do not.
    SentencePiece splits texts at user-defined pieces, such as ALBERT's `(`. Such a piece equals an
    ordinary entry only if it is one character that no other entry has: then it is always a token
    of its own, whatever its score.
    """
    for piece, _, kind in pieces:
        if kind == NORMAL and len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            raise UserError(
                f"{path}: the entry {piece!r}, a digit and a comma, is split by some releases of "
                "transformers and not by others; fetch tokenizer.json"
            )
    own = {piece for piece, _, kind in pieces if kind == USER_DEFINED}
    if not own:
        return
    try:
        changed = own & read_rules(charsmap).keys() if charsmap else set()
    except ValueError:
        raise UserError(f"{path}: {_DAMAGED_RULES}") from None
    joined = {each for each in own if any(each in piece for piece, _, _ in pieces if piece != each)}
    wrong = changed | joined | {piece for piece in own if len(piece) != 1}
    # Without this step, rules for several characters are applied too.
    wrong |= own if "accents" not in steps else set()
    if wrong:
        raise UserError(
            f"{path}: the user-defined piece {min(wrong)!r} has more than one character, is part "
            "of other entries, or may be normalised, which cannot be represented; fetch "
            "tokenizer.json"
        )


def _check_settings(
    path: Path, settings: dict[str, Any], vocabulary: SentencePieceVocabulary
) -> None:
    """Raises `UserError` if other JSON files add tokens to a SentencePiece model or change it."""
    roles = {"unk": "unknown", "bos": "cls", "eos": "sep"}
    for key in ("pad", "unk", "cls", "sep", "mask", "bos", "eos"):
        expected = vocabulary.special_tokens[roles.get(key, key)]
        found = settings.get(f"{key}_token") or expected
        found = found.get("content") if isinstance(found, dict) else found
        _only(path, f"{key}_token", found, expected)
    _only(path, "add_prefix_space", settings.get("add_prefix_space", True), True)
    known = set(vocabulary.tokens)
    own = path.with_name("added_tokens.json")
    _refuse_added(own, read_json(own), known)
    for key in ("additional_special_tokens", "extra_special_tokens"):
        more = settings.get(key)
        more = more.values() if isinstance(more, dict) else typed(path, settings, key, list, [])
        _refuse_added(path, map(_content, more), known)
    listed = typed(path, settings, "added_tokens_decoder", dict, {}).values()
    _refuse_added(path, map(_content, listed), known)
    split = [t for t in listed if isinstance(t, dict) and not t.get("special")]
    _refuse_added(path, map(_content, split), ())


def _content(token: Any) -> str:
    """Returns the text of a token that is written as a string or as an object."""
    return str(token.get("content") if isinstance(token, dict) else token)


def _ids(path: Path, vocab: Any) -> dict[str, int]:
    if not isinstance(vocab, dict) or sorted(vocab.values(), key=str) != sorted(
        range(len(vocab)), key=str
    ):
        raise UserError(
            f"{path}: model.vocab must map entries to ids 0, 1, … without gaps; fetch it again"
        )
    return vocab


def _added(path: Path, values: dict[str, Any]) -> list[str]:
    tokens = typed(path, values, "added_tokens", list, [])
    if not all(isinstance(t, dict) and isinstance(t.get("content"), str) for t in tokens):
        raise UserError(
            f"{path}: added_tokens must be objects with a text as content; fetch it again"
        )
    return [token["content"] for token in tokens]


def _refuse_added(path: Path, added: Iterable[str], known: Collection[str]) -> None:
    unknown = [token for token in added if token not in known]
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
