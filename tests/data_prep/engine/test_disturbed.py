"""Runs on a disk, in a folder or in company that is not as it should be."""

import contextlib
import errno
import json
import resource

import numpy as np
import pytest

from data_prep.engine import phases
from data_prep.engine.atomic import write_array
from data_prep.engine.plan import Plan
from data_prep.sharding import OutputFolder
from official_cmlm.errors import UserError
from tests.data_prep.engine.runs import contents


def test_a_full_disk_below_a_shard(start, tmp_path, monkeypatch):
    """As TensorFlow tells of it: /dev/full takes nothing."""

    class Full(phases.ShardWriter):
        def __init__(self, folder, prefix, *others):
            super().__init__(folder, prefix, *others)
            for language in ("en", "de", "fr"):
                (folder / f"{prefix}-{language}-00000.tfrecord").symlink_to("/dev/full")

    with monkeypatch.context() as patch:
        patch.setattr(phases, "ShardWriter", Full)
        with pytest.raises(UserError, match=r"out\.partial: the disk is full; make room and give"):
            start()
    assert not list((tmp_path / "out.partial" / "work").glob("shards-*"))
    start()


def test_a_full_disk_below_an_array(tmp_path):
    """NumPy alone would say how many bytes it could not write, and not why."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # Room for what stands before the numbers; a file too large fails as a full disk does.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
        with pytest.raises(OSError) as caught, (tmp_path / "a.npy").open("wb") as file:
            write_array(file, np.zeros(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG


def test_killed_while_the_plan_was_written(start, stopped, tmp_path, monkeypatch):
    """What that leaves does not reach the output; an unchanged plan is not written again."""
    stopped()
    (tmp_path / "out.partial" / "prepare.json.7-ab.tmp").write_text("{")
    monkeypatch.setattr(Plan, "save", lambda *arguments: 1 / 0)
    start()
    assert not list((tmp_path / "out").glob("*.tmp"))


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["options"].update(abacus=1),
        lambda values: values.pop("vocabulary"),
        lambda values: values.pop("format"),
        lambda values: values.update(inputs=[1]),
        lambda values: values["options"].update(reading=None),
    ],
    ids=["option", "field", "format", "inputs", "type"],
)
def test_begun_by_another_release(start, stopped, tmp_path, change):
    """One line says so."""
    stopped()
    path = tmp_path / "out.partial" / "prepare.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"prepare\.json: is not of this release .*delete .*out\."):
        start()


def test_create_documents_leaves_an_unfinished_run_alone(stopped, start, tmp_path):
    """And is refused."""
    stopped()
    before = contents(tmp_path / "out.partial" / "work")
    with pytest.raises(UserError, match=r"out\.partial: holds what a run of data_prep\.prepare"):
        with OutputFolder(tmp_path / "out", overwrite=False):
            pass
    assert contents(tmp_path / "out.partial" / "work") == before
    start()


def test_an_output_within_the_input(start, stopped, tmp_path, monkeypatch):
    """What the runs write there is not read, whole or not; the same command goes on."""
    start(output_dir=tmp_path / "whole")
    output = tmp_path / "text" / "records"
    stopped(output_dir=output)
    monkeypatch.chdir(tmp_path / "text")
    assert start(output_dir="records") == 0
    assert contents(output) == contents(tmp_path / "whole")
    start(output_dir=output, overwrite=True)
    assert contents(output) == contents(tmp_path / "whole")


def test_workers_that_start_elsewhere(start, tmp_path, monkeypatch):
    """Relative paths are those of the command; names of documents are as they were given."""
    monkeypatch.chdir(tmp_path)
    run_phase = phases.run_phase

    def elsewhere(*arguments):
        with contextlib.chdir("/"):
            run_phase(*arguments)

    monkeypatch.setattr("data_prep.engine.local.run_phase", elsewhere)
    start(input="text", sample_dropped=100, quality_rules=True)
    lines = (tmp_path / "out" / "dropped.jsonl").read_text().splitlines()
    ids = {json.loads(line)["id"] for line in lines}
    assert ids and all(name.startswith("text/part-") for name in ids)
