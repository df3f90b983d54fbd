"""Reads the files of public checkpoints: JSON, and weights as safetensors, single or sharded."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.common import files
from official_cmlm.common.errors import UserError, guard_reader, guard_reading

ADVICE = "fetch it again"
_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
# Half precisions are converted to float32, which is exact.
DTYPES = ("F32", "F16", "BF16")
_PICKLED = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "pytorch_model.bin.index.json")


def read_json(path: Path, required: bool = False) -> dict[str, Any]:
    """Reads a JSON object.

    Args:
      path: the file.
      required: raise if it is missing instead of returning an empty object.

    Raises:
      UserError: if the file does not hold a JSON object.
    """
    if not path.exists() and not required:
        return {}
    return files.read_object(path, ADVICE)


def get_typed(path: Path, values: dict[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """Returns `values[key]` after a check of its type; `default` if it is absent or null.

    Args:
      path: the file, for messages.
      values: a JSON object.
      key: the key to read.
      kind: `int`, `float` (integers are accepted), `bool`, `str`, `dict` or `list`.
      default: the value if the key is absent or null.

    Raises:
      UserError: if the value is of another type.
    """
    value = values.get(key)
    if value is None:
        return default
    matches = isinstance(value, (int, float) if kind is float else kind)
    # Whole numbers from 2 ** 1024 on cannot become floats; the limit here is half of that.
    matches = matches and not (kind is float and abs(value) >= 1 << 1023)
    if not matches or (isinstance(value, bool) and kind is not bool):
        expected = _NAMES.get(kind, f"a number ({kind.__name__})")
        raise UserError(f"{path}: {key} must be {expected}, got {value!r:.60}; fetch it again")
    return float(value) if kind is float else value


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
    values = files.read_json(path, ADVICE)
    if not isinstance(values, dict) or not isinstance(values.get("weight_map"), dict):
        raise UserError(f"{path}: no index of safetensors shards (no weight_map); fetch it again")
    shards: dict[Path, list[str] | None] = {}
    for tensor, name in sorted(values["weight_map"].items()):
        shards.setdefault(files.join_inside(folder, name, path), []).append(tensor)
    missing = [file.name for file in shards if not file.exists()]
    if missing:
        raise UserError(
            f"{path}: lists {', '.join(missing)}, not in the folder; fetch the missing shard(s)"
        )
    return shards


def read_tensors(
    paths: dict[Path, list[str] | None],
    is_read: Callable[[str], bool],
    dtypes: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[dict[str, np.ndarray], set[str]]:
    """Reads the wanted tensors.

    Args:
      paths: see `weight_files`.
      is_read: whether to read a tensor, by its name.
      dtypes: the types that tensors may have, by name. Default: `DTYPES`.

    Returns:
      The wanted tensors by name, float32, and the names of all others.

    Raises:
      UserError: for a damaged file, a tensor that the index promises but its shard lacks, or a
        wanted tensor of another type.
    """
    from safetensors import safe_open

    tensors: dict[str, np.ndarray] = {}
    others: set[str] = set()
    for path, expected in paths.items():
        files.refuse_special(path)
        files.check_fits_memory(path)
        with guard_reading(path, ADVICE):
            # Opening checks header, offsets and file size against each other.
            with safe_open(path, framework="np") as file:
                names = set(file.keys())
                lacking = sorted(set(expected or ()) - names)
                if lacking:
                    raise UserError(
                        f"{path}: lacks {lacking[0]}, which {INDEX} expects in it; fetch both again"
                    )
                for name in sorted(names):
                    if not is_read(name):
                        others.add(name)
                        continue
                    dtype = file.get_slice(name).get_dtype()
                    if dtype not in (known := (dtypes or {}).get(name, DTYPES)):
                        raise UserError(
                            f"{path}: {name} is {dtype}; the weights of an encoder must be "
                            f"{', '.join(known)} (quantised checkpoints cannot be imported)"
                        )
                    tensors[name] = file.get_tensor(name).astype(np.float32)
    return tensors, others


@guard_reader(ADVICE)
def read_metadata(path: Path) -> dict[str, str]:
    """Returns the metadata of a safetensors file; raises `UserError` if the file is damaged."""
    from safetensors import safe_open

    files.refuse_special(path)
    with safe_open(path, framework="np") as file:
        return file.metadata() or {}
