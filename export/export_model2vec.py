"""Exports a static encoder for model2vec: `cmlm export ENCODER --to=model2vec`.

Writes a folder that `model2vec.StaticModel.from_pretrained(path)` loads, and so does
sentence-transformers as its module `StaticEmbedding`. Both take the mean of the vectors of a text's
tokens, without special tokens around them. What these add to every text here becomes one more
token, which the tokenizer's normalisation puts before the text.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_arrays import EncoderWeights
from official_cmlm.checkpoints.encoder_directory import PROMPTS, write_published_settings
from official_cmlm.checkpoints.formats.huggingface import MODULES
from official_cmlm.checkpoints.formats.static_embedding import MODEL_TYPE
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_object, write_json
from official_cmlm.encoding import exporting
from official_cmlm.tokenization import WordPieceVocabulary

from .export_sentence_transformers import LIBRARY, write_tensors
from .formats.huggingface_tokenizer import build_bare

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
OWN_FILES = rf"({CONFIG}|{MODULES}|{PROMPTS}|{TOKENIZER}|model\.safetensors|params\.yaml)"
# Positions whose mean takes the place of each: about as many as a sentence has tokens.
_POSITIONS = 32
# The spelling of the token before each text: a character for private use, which no text has.
_BEFORE = "\ue000"


def define_flags() -> None:
    """Defines the flags: encoder, export folder."""
    exporting.define_flags()


def main() -> None:
    """Runs the binary."""
    options = exporting.begin()
    export(options)
    print(options.export_dir)


def export(options: exporting.ExportOptions) -> None:
    """Writes the folder; it appears under its name when it is complete.

    Raises:
      UserError: if the vector is another than a mean over tokens, each on its own, or as
        `exporting.stage_export` does.
    """
    with exporting.stage_export(options, _is_export, OWN_FILES) as (folder, source):
        where, config = source.directory.path, source.weights.config
        if config.num_layers or config.pooling not in ("mean", "weighted_mean"):
            raise UserError(
                f"{where}: {config.num_layers} blocks and pooling {config.pooling}; model2vec has "
                "tables of vectors alone: no blocks, pooling mean or weighted_mean"
            )
        if config.num_projections or (config.dense_size and config.dense_activation != "none"):
            raise UserError(f"{where}: model2vec has no layers with activation after the mean")
        table, is_exact = read_table(source.weights)
        if not is_exact:
            cli.warn(
                f"{where}: its vectors depend on the order of tokens; the export has those of an "
                "average position"
            )
        vocabulary = source.directory.vocabulary
        cls, sep = (vocabulary.special_ids[role] for role in ("cls", "sep"))
        table[cls] += table[sep]
        is_longer = bool(np.abs(table[cls]).max() > 1e-6 * np.abs(table).max())
        if is_longer and not isinstance(vocabulary, WordPieceVocabulary):
            raise UserError(
                f"{where}: its special tokens count in the mean; model2vec has none, and only a "
                f"WordPiece vocabulary can replace them, not {vocabulary.kind}"
            )
        tokenizer = build_longer(vocabulary) if is_longer else build_bare(vocabulary)
        most = source.seq_length - 2 + is_longer
        tokenizer.enable_truncation(most)
        tokenizer.save(str(folder / TOKENIZER))
        write_tensors(folder, {"embeddings": table.astype(np.float32)})
        values = {
            "model_type": MODEL_TYPE,
            "architectures": ["StaticModel"],
            "hidden_dim": config.embedding_size,
            "normalize": config.normalize,
            "max_length": most,
        }
        write_json(folder / CONFIG, values)
        kinds = {"StaticEmbedding": "."} | (
            {"Normalize": "1_Normalize"} if config.normalize else {}
        )
        listed = [
            {"idx": i, "name": str(i), "path": path, "type": LIBRARY + kind}
            for i, (kind, path) in enumerate(kinds.items())
        ]
        write_json(folder / MODULES, listed)
        settings = source.directory.settings.for_export(config.pooling, config.sentence_vector)
        write_published_settings(folder, dataclasses.replace(settings, ranges=None))
        source.write_params(folder)


def _is_export(folder: Path) -> bool:
    path = folder / CONFIG
    return path.exists() and read_object(path).get("model_type") == MODEL_TYPE


def read_table(weights: EncoderWeights) -> tuple[np.ndarray, bool]:
    """Returns what each token adds to the sum that has the embedding's direction.

    Args:
      weights: an encoder without blocks, whose vector is a mean.

    Returns:
      float64 `[vocab, embedding_size]`, and whether it is so at every position.
    """
    config = weights.config
    arrays = {name: np.asarray(array, np.float64) for name, array in weights.encoder.items()}
    positions = arrays["position_embedding/embeddings"][config.position_offset :]
    words = arrays["word_embeddings/embeddings"]
    hidden = words + positions[1:_POSITIONS].mean(axis=0) + arrays["type_embeddings/embeddings"][0]
    hidden -= hidden.mean(axis=1, keepdims=True)
    hidden /= np.sqrt(hidden.var(axis=1, keepdims=True) + config.layer_norm_epsilon)
    hidden *= arrays["embeddings/layer_norm/gamma"]
    hidden += arrays["embeddings/layer_norm/beta"]
    for name in ("embedding_projection", "dense"):
        if f"{name}/kernel" in arrays:
            hidden = hidden @ arrays[f"{name}/kernel"] + arrays[f"{name}/bias"]
    counts = np.exp(arrays.get("token_weights/embeddings", np.zeros([len(words), 1])))
    return hidden * counts, np.ptp(positions, axis=0).max() <= 1e-4 * words.std()


def build_longer(vocabulary: WordPieceVocabulary) -> Any:
    """Returns a `tokenizers.Tokenizer` that puts the entry of `[CLS]` before each text."""
    from tokenizers import normalizers

    names = {vocabulary.special_tokens["cls"]: _BEFORE}
    tokens = tuple(names.get(token, token) for token in vocabulary.tokens)
    tokenizer = build_bare(dataclasses.replace(vocabulary, tokens=tokens))
    steps = [tokenizer.normalizer, normalizers.Prepend(f"{_BEFORE} ")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer


if __name__ == "__main__":
    define_flags()
    cli.run(main)
