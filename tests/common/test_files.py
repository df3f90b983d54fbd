"""Files: written completely or not at all, locked, inside their folder, read with clear errors."""

import errno
import gzip
import os
import subprocess
import sys

import numpy as np
import pytest

from official_cmlm.common import files
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import (
    atomic_write,
    atomic_write_text,
    check_writable,
    hold_lock,
    join_inside,
    make_unfinished_path,
    read_json,
    read_object,
    read_text,
    remove_unfinished,
    report_write_errors,
    write_array,
)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_old_content_stays_until_the_end(tmp_path):
    """Until the block ends the path holds the old content; then the new one and nothing else."""
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    atomic_write_text(path, "é\r\n")
    assert path.read_bytes() == "é\r\n".encode()
    # The later one of two writers wins, and neither sees the other's half.
    with atomic_write(path) as one, atomic_write(path) as other:
        one.write(b"one")
        other.write(b"other")
    assert path.read_bytes() == b"one"
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "second") as file:
        file.write(b"half")
        raise ZeroDivisionError
    # A killed process leaves such a file.
    make_unfinished_path(path).write_text("half")
    remove_unfinished(tmp_path)
    assert names_in(tmp_path) == ["file"]


def test_write_array(tmp_path):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    with atomic_write(tmp_path / "a.npy") as file:
        write_array(file, array)
    loaded = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert loaded.dtype == array.dtype and (loaded == array).all()


_FULL = "No space left on device"


def _by_tensorflow(path):
    import tensorflow as tf

    text = f"{{{{function_node x}}}} {path}; {_FULL} [Op:SaveV2]"
    return tf.errors.ResourceExhaustedError(None, None, text)


def _by_the_system(path):
    return OSError(errno.ENOSPC, _FULL, str(path))


@pytest.mark.parametrize("error", [_by_tensorflow, _by_the_system])
def test_a_path_that_cannot_be_written_is_named(tmp_path, error):
    """The message names the folder for its files, and a file elsewhere by its own name."""
    model, other = tmp_path / "model", tmp_path / "model2"
    model.mkdir()
    other.mkdir()

    def message(path):
        with pytest.raises(UserError) as caught, report_write_errors(model, lambda: "buy one"):
            raise error(path)
        assert f"cannot be written ({_FULL}, " in str(caught.value)
        assert " MiB free); buy one" in str(caught.value)
        return str(caught.value)

    assert message(model / "ckpt-4_temp" / "part-0").startswith(f"{model}: ")
    assert message(other / "part-0").startswith(f"{other}/part-0: ")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS])
def test_errors_of_writing(tmp_path, number):
    """Without a name there are two suspects; what `atomic_write` could not write has one."""
    with pytest.raises(UserError, match="x, or a temporary folder: cannot be written"):
        with report_write_errors(tmp_path / "x"):
            raise OSError(number, os.strerror(number))
    with pytest.raises(UserError, match=f"^{tmp_path}: cannot be written"):
        with report_write_errors(tmp_path), atomic_write(tmp_path / "y"):
            raise OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    "error",
    [
        gzip.BadGzipFile("Not a gzipped file"),
        OSError(errno.EIO, "failed"),
        PermissionError(errno.EACCES, "no"),
        ZeroDivisionError(f"; {_FULL}"),
    ],
)
def test_other_errors_pass(tmp_path, error):
    """Such as that of a damaged input that is copied inside the block."""
    with pytest.raises(type(error)) as caught:
        with report_write_errors(tmp_path), atomic_write(tmp_path / "y"):
            raise error
    assert caught.value is error and getattr(error, "filename", None) is None


def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    """A temporary name that exists is never opened, whatever it leads to."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr(os, "urandom", lambda n: b"\0" * n)
    make_unfinished_path(tmp_path / "file").symlink_to(victim)
    with pytest.raises(FileExistsError), atomic_write(tmp_path / "file") as file:
        file.write(b"new")
    assert victim.read_text() == "mine"


def test_check_writable(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for good in (tmp_path / "new" / "below", "gs://bucket/whatever", file):
        check_writable(good)
    # Folders of the system: even root cannot write there.
    for path, options, says in (
        (file / "below", {}, "file is not a folder"),
        (tmp_path / ("x" * 300), {}, "^/.*xxx: cannot be written .File name too long"),
        (file, {"is_folder": True}, "file: cannot be written .a file, not a folder"),
        ("/proc/1", {"replaced": True}, "^/proc/1: cannot be written .* for /proc.; name another"),
        ("/proc/1/x", {}, "^/proc/1/x: cannot be written"),
    ):
        with pytest.raises(UserError, match=says):
            check_writable(path, **options)


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "/etc/passwd", "", "a\0b", "..", "..\\x", None, 3, "x" * 256, "\ud800"],
)
def test_names_that_leave_the_folder(tmp_path, name):
    with pytest.raises(UserError, match="list: names .* only files of that folder"):
        join_inside(tmp_path, name, "list")
    for good in ("x.tfrecord", "a/b", "...", "a..b"):
        assert join_inside(tmp_path, good, "list") == tmp_path / good


def test_read_text(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfa\r\n")
    assert read_text(path) == "a\r\n"
    path.write_bytes(b"ab\xff")
    with (tmp_path / "large").open("wb") as file:
        file.truncate((1 << 28) + 1)
    os.mkfifo(tmp_path / "pipe")
    for name, what in (
        ("file", "not UTF-8 at byte 2"),
        ("missing", "no such file"),
        (".", "a folder, not a file"),
        ("large", "too large .*"),
        ("pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
    ):
        with pytest.raises(UserError, match=f"^{tmp_path / name}: {what}; look$"):
            read_text(tmp_path / name, "look")
    with pytest.raises(UserError, match="cannot be read"):
        read_text("a\0b")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("1" * 5000, "not valid JSON"),
        ("[]", "must hold an object"),
    ],
)
def test_read_object(tmp_path, text, what):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"file.json: .*{what}.*; again"):
        read_object(path, "again")
    path.write_text("[1]")
    assert read_json(path) == [1]


def test_json_of_numbers_that_are_not_finite_is_not_written(tmp_path):
    path = tmp_path / "new" / "values.json"
    files.write_json(path, {"rate": 0.5, "name": "ü"})
    assert files.read_object(path) == {"rate": 0.5, "name": "ü"}
    with pytest.raises(ValueError):
        files.write_json(path, {"rate": float("nan")})
    assert files.read_object(path)["rate"] == 0.5


def test_a_lock_has_one_holder(tmp_path):
    """A second one is told who has it; the file goes with the lock."""
    path = tmp_path / "lock"
    with hold_lock(path, "taken"):
        with pytest.raises(UserError, match=rf"^taken \(process {os.getpid()} on "):
            with hold_lock(path, "taken"):
                pass
    assert not path.exists()
    path.write_text("left by a crash")
    with hold_lock(path, "taken"):
        assert str(os.getpid()) in path.read_text()
    (tmp_path / "victim").write_text("mine")
    path.symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match="lock: cannot be locked .Too many levels of symbolic"):
        with hold_lock(path, "taken"):
            pass
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_lock_ends_with_a_killed_process(tmp_path):
    code = (
        "import os, sys; from official_cmlm.common.files import hold_lock\n"
        "with hold_lock(sys.argv[1], 'taken'): os.kill(os.getpid(), 9)"
    )
    path = tmp_path / "lock"
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == -9
    assert path.exists()
    with hold_lock(path, "taken"):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_without_locks_does_not_stop_the_work(tmp_path, monkeypatch, number):
    import fcntl

    def fail(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    with hold_lock(tmp_path / "lock", "taken"):
        pass


def test_a_rename_never_replaces(tmp_path):
    """Files and folders; a link to nothing counts too."""
    (tmp_path / "file").write_text("new")
    (tmp_path / "taken").write_text("mine")
    for folder, content in (("folder", "new"), ("full", "mine")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text(content)
    (tmp_path / "link").symlink_to("nothing")
    for source in ("file", "folder"):
        for target in ("taken", "full", "link"):
            with pytest.raises(UserError, match=f"{target}: was created by another process"):
                files.rename_new(tmp_path / source, tmp_path / target)
        files.rename_new(tmp_path / source, tmp_path / f"{source}2")
    assert (tmp_path / "file2").read_text() == (tmp_path / "folder2" / "a").read_text() == "new"
    assert (tmp_path / "taken").read_text() == (tmp_path / "full" / "a").read_text() == "mine"
    assert not (tmp_path / "file").exists() and not (tmp_path / "folder").exists()


def test_a_folder_that_takes_the_name_meanwhile_is_kept(tmp_path):
    final = tmp_path / "out"
    with pytest.raises(UserError, match="out: was created by another process"):
        with files.stage_folder(final) as partial:
            (partial / "a").write_text("new")
            final.mkdir()
            (final / "mine").write_text("mine")
    assert names_in(tmp_path) == ["out"] and (final / "mine").read_text() == "mine"


def test_a_folder_is_replaced_but_for_handwritten_files(tmp_path):
    """Licences; a README, unless the last export has written it."""
    final = tmp_path / "out"
    for round in range(3):
        with files.stage_folder(final) as partial:
            (partial / "README.md").write_text(f"card {round}\n{files.GENERATED}\n")
            (partial / f"{round}.bin").write_text("new")
        if round == 0:
            (final / "LICENSE").write_text("mine")
        if round == 1:
            assert (final / "README.md").read_text().startswith("card 1")
            (final / "README.md").write_text("my words")
    assert names_in(final) == ["2.bin", "LICENSE", "README.md"]
    assert (final / "README.md").read_text() == "my words"
    assert (final / "LICENSE").read_text() == "mine"
    assert names_in(tmp_path) == ["out"]


@pytest.mark.parametrize("content", [b"PK\3\4" + b"x" * 40, b"\x93NUMPY\1\0\4\0(((\n", b""])
def test_a_damaged_array_is_one_line(tmp_path, content):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(UserError, match="a.npy: damaged .*; make it again"):
        files.read_array(tmp_path / "a.npy", "make it again")


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="later versions do not follow a loop")
def test_a_loop_of_links_is_one_line(tmp_path):
    (tmp_path / "out").symlink_to("out")
    with pytest.raises(UserError, match="a loop of symbolic links"):
        files.output_folder(tmp_path / "out", False, lambda path: True, "")
