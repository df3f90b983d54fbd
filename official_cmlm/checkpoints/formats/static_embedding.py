"""Imports static encoders: folders of model2vec and of sentence-transformers' `StaticEmbedding`.

Such an encoder is a table with a vector for each entry of a tokenizer, and the vector of a text is
the mean over its tokens. Here it is an encoder without blocks, see `hold_table`, in which `[CLS]`,
`[SEP]` and what the source leaves out count nothing. So vectors have the source's directions. Their
lengths differ unless they are scaled to length 1.
"""

from pathlib import Path

import numpy as np

from official_cmlm.checkpoints.encoder_arrays import Tensors, hold_table
from official_cmlm.checkpoints.encoder_directory import (
    PROMPTS,
    EncodingSettings,
    check_vocabulary_size,
)
from official_cmlm.checkpoints.formats.huggingface import MODULES, list_modules
from official_cmlm.checkpoints.formats.huggingface_tensors import check_same_names
from official_cmlm.checkpoints.formats.huggingface_tokenizer import read_vocabulary
from official_cmlm.checkpoints.formats.imported_encoder import ImportedEncoder, ImportOptions
from official_cmlm.checkpoints.formats.published_files import (
    DTYPES,
    get_typed,
    read_json,
    read_tensors,
    weight_files,
)
from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import EncoderConfig

MODEL_TYPE = "model2vec"
# The table's name in a folder of model2vec, and in one of sentence-transformers.
_OWN, _THEIRS = "embeddings", "embedding.weight"
# Tensors of a vocabulary that model2vec has made smaller: a factor and a row for each entry.
_FACTORS, _ROWS = "weights", "mapping"
_TYPES = {_OWN: (*DTYPES, "F64", "I8"), _FACTORS: (*DTYPES, "F64"), _ROWS: ("I32", "I64")}
# Tokens of a text that model2vec reads unless it is told otherwise.
_MOST_TOKENS = 512


def is_static(folder: Path) -> bool:
    """Returns whether a folder is one of model2vec, or begins with a module `StaticEmbedding`."""
    if read_json(folder / "config.json").get("model_type") == MODEL_TYPE:
        return True
    return [kind for kind, _ in list_modules(folder)[:1]] == ["StaticEmbedding"]


def read_static(folder: Path, options: ImportOptions) -> ImportedEncoder:
    """Reads a folder for which `is_static` is true.

    Raises:
      UserError: if something is missing, damaged, contradictory or not representable.
    """
    if options.pooling:
        raise UserError(
            f"{folder}: a table of vectors, whose pooling is a mean; leave --pooling out"
        )
    modules, settings = list_modules(folder), read_json(folder / "config.json")
    kinds = [kind for kind, _ in modules]
    if kinds and kinds not in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"]):
        raise UserError(
            f"{folder / MODULES}: modules {', '.join(kinds)} cannot be represented; "
            "StaticEmbedding alone or with Normalize can"
        )
    place = folder / (modules[0][1] if modules else ".")
    tensors, others = read_tensors(
        weight_files(place), {_OWN, _THEIRS, _FACTORS, _ROWS}.__contains__, _TYPES
    )
    is_own = _OWN in tensors
    surplus = set() if options.drop_surplus else others
    optional = {_FACTORS, _ROWS} if is_own else set()
    present = tensors.keys() - optional | surplus
    check_same_names(str(place), {_OWN if is_own else _THEIRS}, present)
    vocabulary = (
        options.vocabulary()
        if options.vocab_file
        else read_vocabulary(place, options.lower_case, bare=True)
    )
    table, special = _read_table(place, tensors), vocabulary.special_ids
    # Special tokens that the source lacks are the last entries.
    if set(vocabulary.tokens[len(table) :]) <= set(vocabulary.special_tokens.values()):
        table = np.pad(table, ((0, max(len(vocabulary) - len(table), 0)), (0, 0)))
    check_vocabulary_size(str(place), vocabulary, len(table))
    left_out = ("cls", "sep", "unknown") if is_own else ("cls", "sep")
    table[[special[role] for role in left_out]] = 0
    normalize = "Normalize" in kinds
    if is_own:
        normalize = get_typed(folder / "config.json", settings, "normalize", bool, normalize)
    encoding = EncodingSettings.of_values(read_json(folder / PROMPTS), folder / PROMPTS)
    if not normalize and encoding.similarity_fn_name != "cosine":
        raise UserError(
            f"{folder / PROMPTS}: similarity {encoding.similarity_fn_name} of vectors that are not "
            "scaled to length 1 cannot be represented; cosine can"
        )
    length = _count_tokens(folder, place, is_own) + 2
    config = EncoderConfig(max_position_embeddings=length, normalize=normalize)
    held = hold_table(config, table, np.ones(len(table)))
    return ImportedEncoder(
        config=held.config,
        vocabulary=vocabulary,
        max_seq_length=length,
        encoder=held.encoder,
        notes=[] if normalize else ["vectors have the source's directions, and other lengths"],
        encoding=encoding,
    )


def _read_table(place: Path, tensors: Tensors) -> np.ndarray:
    """Returns the vector of each entry, float32 `[vocab, size]`."""
    table = tensors.get(_OWN, tensors.get(_THEIRS))
    rows = tensors.get(_ROWS, np.arange(len(table) if table.ndim else 0)).astype(np.int64)
    factors = tensors.get(_FACTORS, np.ones(len(rows), np.float32))
    if (
        (table.ndim, rows.ndim) != (2, 1)
        or factors.shape != rows.shape
        or not table.size * len(rows)
        or not 0 <= rows.min() <= rows.max() < len(table)
    ):
        raise UserError(f"{place}: its tensors do not fit together; fetch it again")
    return table[rows] * factors[:, np.newaxis]


def _count_tokens(folder: Path, place: Path, is_own: bool) -> int:
    """Returns how many tokens of a text are read."""
    path = folder / "config.json" if is_own else place / "tokenizer.json"
    values = read_json(path)
    if not is_own:
        values = get_typed(path, values, "truncation", dict, {})
    return min(max(get_typed(path, values, "max_length", int, _MOST_TOKENS), 1), _MOST_TOKENS)
