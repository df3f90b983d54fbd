"""Writes an encoder directory as ONNX graphs inside a sentence-transformers folder."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from official_cmlm.backends.onnx import SUBFOLDER, graph_name, is_exported
from official_cmlm.backends.onnx_graph import graph_of
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, write_published_settings
from official_cmlm.checkpoints.huggingface_config import ROBERTAS, config_json
from official_cmlm.checkpoints.weights import load_encoder
from official_cmlm.configs.encoder import OWN_VECTOR, VectorOverride
from official_cmlm.errors import UserError
from official_cmlm.files import staged_folder

from . import sentence_transformers_folder
from .huggingface_tokenizer import write_tokenizer

# Architectures whose tokenizers give no token types, so that programs do not pass them either.
_WITHOUT_TYPES = (*ROBERTAS, "distilbert", "mpnet")


def export(
    model_dir: str,
    output_dir: str,
    precisions: Sequence[str],
    overwrite: bool,
    seq_length: int | None = None,
    override: VectorOverride = OWN_VECTOR,
) -> None:
    """Writes the folder; it appears under its name when it is complete.

    It is what `sentence_transformers_folder.export` writes, and `onnx/` with a graph for each
    precision. Where sentence-transformers has no module for the vector, only the tokenizer and the
    graphs are written, whose output `sentence_embedding` is the vector.

    Args:
      model_dir: an encoder directory.
      output_dir: folder to write.
      precisions: keys of `backends.onnx_graph.PRECISIONS`.
      overwrite: replace an earlier export.
      seq_length: what texts are cut to, in tokens; None takes the directory's length.
      override: the vector that the graphs compute. Default: the encoder's own.

    Raises:
      UserError: if `model_dir` is not an encoder directory, or if `output_dir` exists already.
    """
    output = Path(os.path.expanduser(output_dir)).resolve()
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        if not is_exported(output):
            raise UserError(f"{output}: exists and holds no export; name another --export_dir")
        if not overwrite:
            raise UserError(f"{output}: holds an export already; pass --overwrite or another name")
    directory = EncoderDirectory.open(model_dir)
    encoder, vocabulary = load_encoder(directory, override, seq_length), directory.vocabulary
    config, length = encoder.config, directory.length(seq_length)
    if not 3 <= length <= config.max_seq_length:
        raise UserError(
            f"--seq_length must be 3 to {config.max_seq_length} (the position table), got {length}"
        )
    values = config_json(config, vocabulary)
    known = config.sentence_vector == "pooled" and config.pooled_by.exported_as is not None
    # ALBERT's own SentencePiece tokenizer gives no token types.
    without_types = values["model_type"] in _WITHOUT_TYPES or (
        values["model_type"] == "albert" and vocabulary.kind == "sentencepiece"
    )
    with staged_folder(output) as partial:
        if known:
            # Below a folder of its own, as the model card has the name of the folder.
            inner = partial / "whole" / output.name
            sentence_transformers_folder.export(
                model_dir, str(inner), False, None, False, seq_length, override
            )
            for path in inner.iterdir():
                path.rename(partial / path.name)
            inner.rmdir()
            inner.parent.rmdir()
        else:
            write_tokenizer(partial, vocabulary, values["model_type"], config.max_seq_length)
            settings = directory.settings.exported(config.pooling, config.sentence_vector)
            write_published_settings(partial, settings)
        (partial / SUBFOLDER).mkdir()
        for precision in precisions:
            graph = graph_of(encoder, vocabulary, length, precision, not without_types)
            (partial / SUBFOLDER / graph_name(precision)).write_bytes(graph)
        # Programs that do not read sentence-transformers' settings cut and pad to this length.
        _set_length(partial / "tokenizer_config.json", length)


def _set_length(path: Path, length: int) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    values["model_max_length"] = length
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
