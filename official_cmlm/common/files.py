"""Files and folders: written completely or not at all, read with errors that name the file."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import time
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.common.processor import physical_memory

if TYPE_CHECKING:
    import numpy as np

# A full disk, an exhausted quota, a file larger than allowed, a read-only file system. (A missing
# permission is not among them: it may concern a file that is read.)
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
# TensorFlow's errors have no error number, only the system's text, with the file before it.
_SYSTEM_TEXT = {
    os.strerror(number): number
    for number in (
        *(*_UNWRITABLE, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOENT, errno.EISDIR),
        *(errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP),
    )
}
_IN_A_MESSAGE = re.compile(rf"(?:(\S+); )?({'|'.join(map(re.escape, _SYSTEM_TEXT))})")
# The digest of a file in the cache is beside it under this suffix.
_DIGEST = ".sha256"
# Errors of file systems that have no locks.
_WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)
# Suffix of files that are being written.
_UNFINISHED = ".tmp"
# Most file systems take names of 255 bytes; this leaves room for what makes a name unique.
_MOST_NAME_BYTES = 220
# Larger files are not configurations.
_MOST_BYTES = 1 << 28
# Files in the cache that were not used for this long are removed when others are written there.
_UNUSED_SECONDS = 90 * 24 * 3600
README = "README.md"
_HANDWRITTEN = r"(?i:(readme|licen[cs]e|copying|notice)(\.(md|txt))?)"
# Last line of a README.md that an export has written, and may write again.
GENERATED = "<!-- Written by official_cmlm; without this line the next export keeps the file. -->"
# The longest name of a file, in bytes, on all usual file systems.
_LONGEST_NAME = 255


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, replace: bool = True) -> Iterator[BinaryIO]:
    """Yields a binary file to write, renamed to `path` when the block ends without an error.

    Whenever the process is killed, `path` holds either the old or the new content. An error leaves
    no partial file. Two processes may write the same path at once: the later one wins, unless
    `replace` is false: then a file that is there by the end is kept, and a `UserError` raised.

    >>> with atomic_write("vocab.txt") as file:   # doctest: +SKIP
    ...     file.write(b"[PAD]\\n")
    """
    path = Path(path)
    unfinished = make_unfinished_path(path)
    try:
        # Mode x never opens an existing file, which could be a link to another one.
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            unfinished.replace(path)
        else:
            rename_new(unfinished, path)
    except OSError as error:
        # An error without a name is usually one of writing this file; reading errors name theirs.
        if error.filename is None and error.errno in _UNWRITABLE:
            error.filename = os.fspath(path)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


def rename_new(source: Path, target: Path) -> None:
    """Renames a file or a folder to a free name; raises `UserError` if the name is taken."""
    if os.path.lexists(target):
        raise UserError(
            f"{target}: was created by another process while this one ran; choose another output"
        )
    source.rename(target)


def atomic_write_text(path: str | os.PathLike, text: str) -> None:
    """Writes `text` in UTF-8, with the line ends that it has, as `atomic_write` does."""
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "replace"))


def write_json(path: str | os.PathLike, values: Any) -> None:
    """Writes values as JSON with an indent of two, as `atomic_write` does; folders are made.

    Raises:
      ValueError: a number is not finite, which JSON cannot represent.
    """
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    atomic_write_text(path, json.dumps(values, indent=2, allow_nan=False) + "\n")


def make_unfinished_path(path: Path) -> Path:
    """Returns a name beside `path` that no other process uses, on this host or another one."""
    # A name of the greatest length is cut, so that the suffix fits.
    name = os.fsdecode(os.fsencode(path.name)[:_MOST_NAME_BYTES])
    return path.with_name(f"{name}.{os.getpid()}-{os.urandom(4).hex()}{_UNFINISHED}")


def name_special_kind(path: str | os.PathLike) -> str:
    """Returns the kind of a local path whose reading might never end, e.g. "a pipe"; else empty."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        # Opening a missing file fails with a message of its own. Remote paths end here too.
        return ""
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return ""
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def refuse_special(path: str | os.PathLike) -> None:
    """Raises `UserError` for a local path that is a pipe, a socket or a device."""
    if kind := name_special_kind(path):
        raise UserError(f"{path}: {kind}, not a file; write its content into a file and name that")


def check_fits_memory(path: str | os.PathLike) -> None:
    """Raises `UserError` for a file with more bytes than this machine's memory, as a sparse one."""
    if os.path.exists(path) and os.path.getsize(path) > physical_memory():
        raise UserError(f"{path}: larger than this machine's memory; is it the right file?")


def sha256(path: str | os.PathLike) -> str:
    """Returns the SHA-256 of a file's content in hexadecimal digits; raises as `refuse_special`."""
    refuse_special(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(paths: Iterable[Path], facts: str = "") -> str:
    """Returns sixteen hexadecimal digits of the contents of files and of `facts`.

    Raises:
      UserError: as `refuse_special` and `check_fits_memory`.
    """
    hashed = hashlib.sha256(facts.encode())
    for path in paths:
        refuse_special(path)
        check_fits_memory(path)
        with path.open("rb") as file:
            while chunk := file.read(1 << 22):
                hashed.update(chunk)
    return hashed.hexdigest()[:16]


def cache_folder() -> Path:
    """Returns `official_cmlm` below XDG_CACHE_HOME or `~/.cache`; it need not exist.

    A user may remove its content at any time: it can be made again.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "official_cmlm"


def is_cached(path: Path) -> bool:
    """Returns whether a file or folder in the cache is as it was written, and notes its use."""
    written = path.with_suffix(_DIGEST)
    try:
        whole = written.read_text(encoding="ascii") == _content(path)
    except (OSError, ValueError, UserError):
        return False
    with contextlib.suppress(OSError):
        os.utime(written)
    return whole


def note_cached(path: Path, content: Path) -> None:
    """Writes the digest of `content`, which is or will be at `path` in the cache.

    Files beside it that were not used for long are removed; `is_cached` counts as a use.
    """
    atomic_write_text(path.with_suffix(_DIGEST), _content(content))
    for used in path.parent.glob(f"*{_DIGEST}"):
        # Another process may remove it at the same time.
        with contextlib.suppress(OSError):
            if time.time() - used.stat().st_mtime > _UNUSED_SECONDS:
                remove_cached(used.with_suffix(path.suffix))


def remove_cached(path: Path) -> None:
    """Removes a file or folder of the cache and then its digest; neither need exist."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.with_suffix(_DIGEST).unlink(missing_ok=True)


def _content(path: Path) -> str:
    if not path.is_dir():
        return sha256(path)
    paths = sorted(inner for inner in path.rglob("*") if not inner.is_dir())
    return digest(
        paths, str([(str(inner.relative_to(path)), inner.stat().st_size) for inner in paths])
    )


def remove_unfinished(folder: Path) -> None:
    """Removes the files that `atomic_write` had begun in a folder when its process was killed."""
    for path in folder.glob(f"*{_UNFINISHED}"):
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flushes a file that another library has written to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_array(file: BinaryIO, array: "np.ndarray") -> None:
    """Writes an array in `.npy` form; a full disk raises an OSError with its error number.

    `np.save` into a real file loses that number.
    """
    import numpy as np

    # Without a `fileno` NumPy writes through `write`, which keeps the system's error number.
    np.save(types.SimpleNamespace(write=file.write), array, allow_pickle=False)


def read_array(path: Path, advice: str, mapped: bool = False) -> "np.ndarray":
    """Reads a `.npy` file, or maps it; raises `UserError`, with advice, for anything else."""
    import numpy as np

    refuse_special(path)
    with guard_reading(path, advice):
        # It is mapped in any case, as a damaged header may promise more than the file holds.
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path}: damaged (an archive, not an array); {advice}")
    return array if mapped else np.array(array)


def system_error(error: BaseException) -> OSError | None:
    """Returns the system's error that caused an exception, or None.

    An `OSError` is returned itself. An error of TensorFlow is recognised by the system's text in
    its message, e.g. `model/ckpt-1.index; No space left on device`.
    """
    if isinstance(error, OSError):
        return error if error.errno is not None else None
    if not type(error).__module__.startswith("tensorflow."):
        return None
    match = _IN_A_MESSAGE.search(str(error))
    return OSError(_SYSTEM_TEXT[match[2]], match[2], match[1]) if match else None


@contextlib.contextmanager
def report_write_errors(
    folder: str | os.PathLike, remedy: str | Callable[[], str] = "free disk space and start again"
) -> Iterator[None]:
    """Turns a full disk or a read-only file system inside the `with` block into a `UserError`.

    Args:
      folder: what is written.
      remedy: what to do, for the message; a function is called when it is needed.

    Raises:
      UserError: names the folder, or the file if it is elsewhere, the reason and the free space.
        All other errors pass unchanged.
    """
    try:
        yield
    except Exception as error:
        system = system_error(error)
        if system is None or system.errno not in _UNWRITABLE:
            raise
        advice = remedy if isinstance(remedy, str) else remedy()
        raise UserError(f"{_unwritable(Path(folder), system)}; {advice}") from None


def _unwritable(folder: Path, error: OSError) -> str:
    file = error.filename if isinstance(error.filename, str | os.PathLike) else None
    if file is None:
        return f"{folder}, or a temporary folder: cannot be written ({error.strerror})"
    place = Path(file).resolve()
    is_inside = folder.resolve() in (place, *place.parents)
    free = ""
    with contextlib.suppress(OSError):
        free = f", {shutil.disk_usage(_existing(Path(file))).free / 2**20:.0f} MiB free"
    return f"{folder if is_inside else file}: cannot be written ({error.strerror}{free})"


def _existing(path: Path) -> Path:
    """Returns the path itself, or the nearest folder above it that exists."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def check_writable(
    path: str | os.PathLike, is_folder: bool = False, replaced: bool = False
) -> None:
    """Raises `UserError` if a file or folder cannot be written, before the work that ends in it.

    For a path that does not exist yet, the nearest existing folder above it counts. Faults that
    only the write itself can show, such as a disk that fills up, are left to `report_write_errors`.
    Remote paths such as `gs://bucket/name` are not checked.

    Args:
      path: a file or a folder.
      is_folder: refuse an existing file too.
      replaced: a folder that is built beside its final name, as `stage_folder` does.
    """
    if "://" in os.fspath(path):
        return
    path = place = Path(path)
    try:
        if replaced:
            place = path.resolve().parent
        place = _existing(place)
        if place != path and not place.is_dir():
            raise UserError(f"{path}: cannot be written ({place} is not a folder)")
        if is_folder and path.exists() and not path.is_dir():
            raise UserError(f"{path}: cannot be written (a file, not a folder); name another one")
        if place.is_file():
            # An existing file is replaced, for which its folder must be writable.
            place = place.absolute().parent
        # Permissions do not tell whether a file system is read-only or full, so a file is tried.
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        reason = f"{error.strerror} for {place}" if place != path else error.strerror
        raise UserError(f"{path}: cannot be written ({reason}); name another one") from None


def check_output(
    path: str | os.PathLike,
    overwrite: bool,
    inputs: Iterable[str | os.PathLike] = (),
    others: Iterable[str | os.PathLike] = (),
) -> None:
    """Checks the name of a file that will be written, before the work that ends in it.

    Args:
      path: the file.
      overwrite: whether an existing file may be replaced.
      inputs: files that are read; they are never replaced, whatever name or link leads to them.
      others: the other files that are written.

    Raises:
      UserError: the path is empty, remote, a folder, a device, a pipe, or one of `inputs` or
        `others`; the file exists and `overwrite` is false; or it cannot be written.
    """
    name = os.fspath(path)
    if not name or not Path(name).name:
        raise UserError(f"{name!r}: no name for a file to write; name one")
    if "://" in name:
        raise UserError(f"{name}: only local files are written; name one, and copy it there")
    for other in others:
        if os.path.realpath(name) == os.path.realpath(other):
            raise UserError(f"{name}: is given for two outputs; choose two different files")
    try:
        status = os.stat(name)
    except FileNotFoundError:
        status = None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{name}: cannot be written ({reason}); name another one") from None
    if status is not None:
        if stat.S_ISDIR(status.st_mode):
            raise UserError(f"{name}: a folder; name a file in it to write")
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{name}: not a regular file, which is not replaced; name another one")
        for source in inputs:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(source), status):
                    raise UserError(
                        f"{name}: is also an input ({source}), which is never overwritten; name"
                        " another file to write"
                    )
    if os.path.lexists(name) and not overwrite:
        raise UserError(f"{name}: exists already; pass --overwrite or name another file to write")
    check_writable(name)


def output_folder(
    path: str | os.PathLike,
    overwrite: bool,
    is_ours: Callable[[Path], bool],
    own: str,
    what: str = "export",
    flag: str = "export_dir",
) -> Path:
    """Returns the absolute path of a folder that will be written, perhaps in place of an older one.

    Args:
      path: the folder.
      overwrite: whether an older one may be replaced.
      is_ours: whether a folder holds an older one.
      own: see `check_own`.
      what, flag: the kind of content, and the flag that names the folder (empty where no flag
        does), for messages.

    Raises:
      UserError: if the folder holds anything else, or an older one without `overwrite`.
    """
    try:
        output = Path(os.path.expanduser(path)).resolve()
    except RuntimeError:
        raise UserError(f"{path!s:.200}: a loop of symbolic links; name another folder") from None
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        if not is_ours(output):
            place = f"--{flag}" if flag else "folder"
            raise UserError(f"{output}: exists and holds no {what}; name another {place}")
        if not overwrite:
            article = "an" if what[0] in "aeiou" else "a"
            allow = "--overwrite" if flag else "overwrite=True"
            raise UserError(
                f"{output}: holds {article} {what} already; pass {allow} or another name"
            )
        check_own(output, own)
    return output


def check_own(folder: Path, own: str) -> None:
    """Raises `UserError` if a folder that is to be replaced holds files of somebody else.

    READMEs, licences and notices are allowed, as `replace_folder` keeps hand-written ones; `own`
    is a regular expression of the relative paths that this program writes there.
    """
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    names = sorted(path.relative_to(folder).as_posix() for path in paths)
    foreign = [name for name in names if not re.fullmatch(f"{own}|{_HANDWRITTEN}", name)]
    if foreign:
        raise UserError(
            f"{folder}: holds {', '.join(foreign[:5])}, which this program has not written; move "
            "that away, or name another folder"
        )


def join_inside(folder: str | os.PathLike, name: str, source: str | os.PathLike) -> Path:
    """Returns the path of `name`, which must lie in a folder; the file `source` contains the name.

    Raises:
      UserError: for absolute paths and paths that lead out of the folder.
    """
    try:
        parts = name.replace("\\", "/").split("/")
        longest = max(len(os.fsencode(part)) for part in parts)
        fits = name and "\0" not in name and ".." not in parts and longest <= _LONGEST_NAME
    except (AttributeError, TypeError, UnicodeEncodeError):
        # The file `source` may have a number in place of a name.
        fits = False
    if not fits or os.path.isabs(name):
        raise UserError(
            f"{source}: names {str(name)[:200]!r}, which is not a file inside {folder}; only files "
            "of that folder are read or removed"
        )
    return Path(folder) / name


def read_text(path: str | os.PathLike, advice: str = "check the path") -> str:
    """Reads a small text file in UTF-8, such as a configuration.

    Raises:
      UserError: as `read_bytes`; or it is not UTF-8.
    """
    try:
        return read_bytes(path, advice).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}; {advice}") from None


def read_bytes(path: str | os.PathLike, advice: str = "check the path") -> bytes:
    """Reads a small file.

    Args:
      path: the file, local or with a scheme such as gs://; at most 256 MiB.
      advice: what to do about a fault, for messages.

    Raises:
      UserError: if it is missing, a folder, too large or not a regular file (reading a pipe or a
        device might never end).
    """
    try:
        if "://" in os.fspath(path):
            return _read_remote(os.fspath(path), advice)
        path = Path(path)
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise UserError(f"{path}: a folder, not a file; {advice}")
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path}: not a regular file; {advice}")
        if status.st_size > _MOST_BYTES:
            size = f"{status.st_size / 2**20:.0f} MiB, at most {_MOST_BYTES // 2**20} are read"
            raise UserError(f"{path}: too large ({size}); {advice}")
        return path.read_bytes()
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {advice}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{str(path)[:200]!r}: cannot be read ({reason}); {advice}") from None


def split_lines(text: str) -> list[str]:
    r"""Returns the lines of a text in memory, which end with \n, \r\n or \r alone.

    Form feeds and U+2028, at which `str.splitlines` splits too, may occur inside a sentence.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def _read_remote(path: str, advice: str) -> bytes:
    import tensorflow as tf

    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()
    except tf.errors.NotFoundError:
        raise UserError(f"{path}: no such file; {advice}") from None
    except tf.errors.OpError as error:
        raise UserError(f"{path}: cannot be read ({error.message[:200]}); {advice}") from None


def read_json(path: str | os.PathLike, advice: str = "write it again") -> Any:
    """Reads a JSON file; arguments and errors are those of `read_text`.

    Raises:
      UserError: also if it is not valid JSON, or nested too deeply.
    """
    text = read_text(path, advice)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        fault = "nested too deeply" if isinstance(error, RecursionError) else error
        raise UserError(f"{path}: not valid JSON ({fault}); {advice}") from None


def read_object(path: str | os.PathLike, advice: str = "write it again") -> dict[str, Any]:
    """Reads a JSON object; arguments and errors are those of `read_json`."""
    values = read_json(path, advice)
    if not isinstance(values, dict):
        raise UserError(f"{path}: must hold an object; {advice}")
    return values


@contextlib.contextmanager
def hold_lock(path: str | os.PathLike, refusal: str) -> Iterator[None]:
    """Holds a lock file while the block runs; the system releases it however the process ends.

    The lock holds between processes of one machine on every local file system, and between machines
    on those network file systems that pass it to their server (NFS since version 4 on Linux, CIFS,
    Lustre mounted with `flock`). Where the file system has no locks, such as some FUSE mounts, the
    block runs without one.

    Args:
      path: the lock file; it holds the host and the process, and is removed at the end.
      refusal: the message if another process holds it, to which that process is added.

    Raises:
      UserError: another process holds it.
    """
    import filelock

    path = Path(path)
    # A soft lock, which is a file alone, would outlive a process that is killed.
    lock = filelock.FileLock(path, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        holder = ""
        with contextlib.suppress(OSError):
            holder = path.read_text(encoding="utf-8", errors="replace")[:200].strip()
        raise UserError(f"{refusal} ({holder or 'holder unknown'})") from None
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise UserError(
                f"{path}: cannot be locked ({error.strerror}); if nothing else is running there,"
                " delete it"
            ) from None
        yield
        return
    try:
        # The content is for messages only. A full disk is ignored, as nobody would report it here.
        with contextlib.suppress(OSError):
            path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def is_locked(path: str | os.PathLike) -> bool:
    """Returns whether a process holds a lock file, see `hold_lock`; False without locks."""
    try:
        import fcntl

        with open(path, "rb") as file:
            # The shared lock ends with the file; it lets other processes ask at the same time.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        pass
    return False


def replace_folder(partial: Path, final: Path) -> None:
    """Renames `partial` to `final`; an existing folder of that name is removed after that.

    Whenever the process is killed, one of the two folders is complete under one of the names.
    `README.md`, licences and notices of the existing folder are kept, unless `partial` has a file
    of that name; a `README.md` that was not `GENERATED` is kept in any case.
    """
    if not os.path.lexists(final):
        partial.rename(final)
        return
    # The name is unique, as a folder named `….old` could belong to the user.
    old = Path(tempfile.mkdtemp(prefix=f"{final.name}.old-", dir=final.parent))
    moved = old / final.name
    final.rename(moved)
    try:
        rename_new(partial, final)
    except UserError as error:
        raise UserError(f"{error}; the earlier content is in {moved}") from None
    for path in moved.iterdir() if moved.is_dir() else ():
        if _is_handwritten(path, final / path.name):
            path.replace(final / path.name)
    shutil.rmtree(old, ignore_errors=True)


def _is_handwritten(path: Path, written: Path) -> bool:
    if not re.fullmatch(_HANDWRITTEN, path.name):
        return False
    if not written.exists():
        return True
    is_text = path.is_file() and path.stat().st_size <= _MOST_BYTES
    return path.name == README and is_text and GENERATED.encode() not in path.read_bytes()


@contextlib.contextmanager
def stage_folder(final: Path) -> Iterator[Path]:
    """Yields a folder to fill, renamed to `final` when the block ends without an error.

    After an error nothing is left of it, and the old content of `final` is still there. A file or
    folder that takes a free name while the block runs is not replaced, but causes a `UserError`.
    Hand-written files of the old content are kept as `replace_folder` says.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    place_folder = replace_folder if os.path.lexists(final) else rename_new
    root = Path(tempfile.mkdtemp(prefix=f"{final.name}.partial-", dir=final.parent))
    try:
        partial = root / final.name
        partial.mkdir()
        yield partial
        place_folder(partial, final)
    finally:
        shutil.rmtree(root, ignore_errors=True)
