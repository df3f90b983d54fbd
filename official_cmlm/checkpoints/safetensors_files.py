"""Reads the weights of a Hugging Face folder: safetensors files, single or sharded."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from official_cmlm.checkpoints.json_files import read_any_json
from official_cmlm.errors import UserError
from official_cmlm.files import inside

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
# Half precisions are converted to float32, which is exact.
_DTYPES = ("F32", "F16", "BF16")
_PICKLED = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "pytorch_model.bin.index.json")


def weight_files(folder: Path) -> dict[Path, list[str] | None]:
    """Finds the safetensors files of a folder and the tensors that the index expects in each.

    Raises:
      UserError: if there are none (pickled weights are not read), or if a shard is missing.
    """
    if (folder / SINGLE).is_dir():
        raise UserError(f"{folder / SINGLE}: a folder; fetch the file that belongs there")
    if (folder / SINGLE).exists():
        return {folder / SINGLE: None}
    if (folder / INDEX).exists():
        return _shards(folder)
    others = sorted(folder.glob("*.safetensors"))
    if len(others) == 1:
        return {others[0]: None}
    if others:
        names = ", ".join(path.name for path in others)
        raise UserError(f"{folder}: several weight files ({names}) and no {INDEX}; name one file")
    pickled = [path.name for pattern in _PICKLED for path in sorted(folder.glob(pattern))]
    if pickled:
        raise UserError(
            f"{folder / pickled[0]}: pickled weights are not read, because opening a pickle runs "
            "whatever code is in it; if you trust the file, convert it where PyTorch is installed:"
            ' python -c "from transformers import AutoModelForMaskedLM as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}')\" (AutoModel for a model "
            "without language-model head)"
        )
    raise UserError(f"{folder}: no weights; expected {SINGLE} or {INDEX} with its shards")


def _shards(folder: Path) -> dict[Path, list[str] | None]:
    path = folder / INDEX
    values = read_any_json(path)
    if not isinstance(values, dict) or not isinstance(values.get("weight_map"), dict):
        raise UserError(f"{path}: no index of safetensors shards (no weight_map); fetch it again")
    files: dict[Path, list[str] | None] = {}
    for tensor, name in sorted(values["weight_map"].items()):
        files.setdefault(inside(folder, name, path), []).append(tensor)
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise UserError(
            f"{path}: lists {', '.join(missing)}, not in the folder; fetch the missing shard(s)"
        )
    return files


def read_tensors(
    files: dict[Path, list[str] | None], wanted: Callable[[str], bool]
) -> tuple[dict[str, np.ndarray], set[str]]:
    """Reads the wanted tensors.

    Args:
      files: see `weight_files`.
      wanted: whether to read a tensor, by its name.

    Returns:
      The wanted tensors by name, float32, and the names of all others.

    Raises:
      UserError: for a damaged file, a tensor that the index promises but its shard lacks, or a
        wanted tensor other than a float of 16 or 32 bits.
    """
    from safetensors import SafetensorError, safe_open

    tensors: dict[str, np.ndarray] = {}
    others: set[str] = set()
    for path, expected in files.items():
        try:
            # Opening checks header, offsets and file size against each other.
            with safe_open(path, framework="np") as file:
                names = set(file.keys())
                lacking = sorted(set(expected or ()) - names)
                if lacking:
                    raise UserError(
                        f"{path}: lacks {lacking[0]}, which {INDEX} expects in it; fetch both again"
                    )
                for name in sorted(names):
                    if not wanted(name):
                        others.add(name)
                        continue
                    dtype = file.get_slice(name).get_dtype()
                    if dtype not in _DTYPES:
                        raise UserError(
                            f"{path}: {name} is {dtype}; the weights of an encoder must be "
                            f"{', '.join(_DTYPES)} (quantised checkpoints cannot be imported)"
                        )
                    tensors[name] = file.get_tensor(name).astype(np.float32)
        except SafetensorError as error:
            raise UserError(
                f"{path}: damaged or no safetensors file ({error}); fetch it again"
            ) from None
    return tensors, others
