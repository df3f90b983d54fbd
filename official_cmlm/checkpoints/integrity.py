"""Finds the newest undamaged checkpoint of a folder.

TensorFlow writes a checkpoint as parts in `ckpt-N_temp/`, renames the data to `ckpt-N.data-…`,
writes `ckpt-N.index`, and finally replaces the file `checkpoint`, which names the newest, by a
rename. So the newest checkpoint is undamaged whenever a process is killed. Later damage, by a disk
or a copy, is detected by the checksum of every tensor.
"""

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from official_cmlm.checkpoints.encoder_directory import checkpoints_among
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import make_unfinished_path, refuse_special

# Keys of variables in a checkpoint end so.
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# The names of TensorFlow's unfinished checkpoints, and of the files of finished ones.
_LEFTOVER = re.compile(r"ckpt-\d+_temp")
_FILE = re.compile(r"(ckpt-\d+)\.(?:index|data-\d{5}-of-\d{5})")


def damage(prefix: str) -> str | None:
    """Describes the damage of a checkpoint; None if all of its tensors can be read and are finite.

    Every tensor is read once and compared with its checksum.
    """
    if not tf.io.gfile.exists(f"{prefix}.index"):
        return "its index file is missing"
    refuse_special(f"{prefix}.index")
    try:
        reader = tf.train.load_checkpoint(prefix)
        for name in sorted(reader.get_variable_to_shape_map()):
            value = reader.get_tensor(name)
            # NumPy has no bfloat16, so its kind is V; strings are bytes without a dtype.
            kind = getattr(value, "dtype", np.dtype(bytes)).kind
            if kind == "V":
                value = value.astype(np.float32)
            if kind in "fV" and not np.isfinite(value).all():
                return f"{name.removesuffix(VALUE)} holds non-finite values"
    except tf.errors.NotFoundError:
        return "a data file is missing"
    except (tf.errors.OpError, ValueError, IndexError) as error:
        return " ".join(str(error).split())[:120]
    return None


def checkpoints_of(folder: str | os.PathLike) -> list[str]:
    """Lists the prefixes of a folder's checkpoints, newest first; the folder may be remote.

    Raises:
      UserError: see `encoder_directory.checkpoints_among`.
    """
    folder = os.fspath(folder)
    if not tf.io.gfile.isdir(folder):
        return []
    return checkpoints_among(folder, tf.io.gfile.listdir(folder), _state(folder))


def _state(folder: str) -> str:
    """Reads the file `checkpoint` of a folder; an empty string if it is missing or unreadable."""
    path = os.path.join(folder, "checkpoint")
    refuse_special(path)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except tf.errors.OpError:
        return ""


def last_checkpoint(folder: str | os.PathLike) -> str:
    """Returns a phrase for messages: the checkpoint that a training would resume from."""
    prefixes = checkpoints_of(folder)
    return (
        f"the last good checkpoint is {prefixes[0]}" if prefixes else "there is no checkpoint yet"
    )


def latest_good_checkpoint(folder: str | os.PathLike) -> str | None:
    """Finds the prefix of the newest undamaged checkpoint; None if the folder has no checkpoint.

    Each damaged checkpoint that is skipped is named in a line on standard error.

    Raises:
      UserError: if there are checkpoints and all are damaged.
    """
    skipped: list[str] = []
    for prefix in checkpoints_of(folder):
        wrong = damage(prefix)
        if wrong is None:
            for line in skipped:
                print(f"{line}; resuming from {os.path.basename(prefix)}", file=sys.stderr)
            return prefix
        skipped.append(f"{prefix}: damaged ({wrong})")
    if skipped:
        raise UserError(
            f"{'; '.join(skipped)}; no checkpoint of {folder} is undamaged: restore one from a "
            "backup, or start again with another --model_dir"
        )
    return None


def clean_up(folder: str | os.PathLike, prefix: str | None) -> None:
    """Prepares a folder for a training that resumes from `prefix`, or starts if that is None.

    The file `checkpoint` then names `prefix` as the newest and omits newer, damaged checkpoints.
    Files of checkpoints that it does not list are removed.
    """
    if prefix is not None:
        _make_latest(prefix)
    remove_leftovers(folder)


def _make_latest(prefix: str) -> None:
    folder = os.path.dirname(prefix)
    prefixes = checkpoints_of(folder)
    # Without names of files, `checkpoints_among` returns only what the file `checkpoint` lists.
    if checkpoints_among(folder, [], _state(folder))[:1] != [prefix]:
        older = [p for p in reversed(prefixes[prefixes.index(prefix) :]) if _time_of(p)]
        lines = [f"model_checkpoint_path: {json.dumps(os.path.relpath(prefix, folder))}"]
        for path in older:
            lines.append(f"all_model_checkpoint_paths: {json.dumps(os.path.relpath(path, folder))}")
            # Without a timestamp TensorFlow's manager would never delete it.
            lines.append(f"all_model_checkpoint_timestamps: {_time_of(path)}")
        path = os.path.join(folder, "checkpoint")
        # `Path` would turn the two slashes of gs:// into one.
        unfinished = os.path.join(folder, make_unfinished_path(Path("checkpoint")).name)
        with tf.io.gfile.GFile(unfinished, "w") as file:
            file.write("\n".join(lines) + "\n")
        tf.io.gfile.rename(unfinished, path, overwrite=True)


def _time_of(prefix: str) -> float:
    """Returns when a checkpoint was written, in seconds since 1970; 0 if it has no index."""
    path = f"{prefix}.index"
    return tf.io.gfile.stat(path).mtime_nsec / 1e9 if tf.io.gfile.exists(path) else 0.0


def remove_leftovers(folder: str | os.PathLike) -> None:
    """Removes unfinished checkpoints, and checkpoints that the file `checkpoint` does not list.

    A process that is killed after renaming a checkpoint's data and before listing the checkpoint
    leaves files of full size, which nothing else would delete. Call it only while no other process
    writes checkpoints to the folder.
    """
    folder = os.fspath(folder)
    prefixes = checkpoints_of(folder)
    # If the newest listed checkpoint is not here, the list may be another folder's: keep the files.
    complete = all(tf.io.gfile.exists(f"{prefix}.index") for prefix in prefixes[:1])
    names = {os.path.basename(prefix) for prefix in prefixes}
    for name in tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else ():
        path, file = os.path.join(folder, name), _FILE.fullmatch(name)
        if _LEFTOVER.fullmatch(name.rstrip("/")):
            tf.io.gfile.rmtree(path)
        elif complete and file and file[1] not in names:
            tf.io.gfile.remove(path)


def refuse_damage(prefix: str) -> None:
    """Raises `UserError` if a checkpoint that is to be used is damaged."""
    wrong = damage(prefix)
    if wrong is not None:
        raise UserError(
            f"{prefix}: damaged ({wrong}); copy it again, or resume the training in "
            f"{os.path.dirname(prefix)}, which starts from the checkpoint before it"
        )
