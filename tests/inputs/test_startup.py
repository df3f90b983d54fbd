"""A training of very many shards begins at once: what is not needed yet is not touched."""

import contextlib
import ctypes
import dataclasses
import os
import shutil
import struct

import pytest
import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_text
from official_cmlm.configs.data import DataConfig, SourceConfig
from official_cmlm.inputs.checks import unusable_records
from official_cmlm.inputs.document_spans import Spans
from official_cmlm.inputs.plan import num_streams, shard_repetitions
from official_cmlm.inputs.reader import resume_interleave
from official_cmlm.inputs.views import SpecialIds
from official_cmlm.objectives.quick_thought import QuickThoughtConfig
from official_cmlm.records.manifest import load_folders, load_manifest, load_records_vocabulary
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import make_documents, write_records
from tests.inputs.pipelines import blocks_of
from tests.training.helpers import data, task_config

SHARDS = 100_000
# Shards that are read at a time.
OPEN = 16


class _Opened:
    """Counts the openings of files in a folder, by whom ever: Linux's inotify."""

    _IN_OPEN, _IN_NONBLOCK, _EVENT = 0x20, 0o4000, struct.Struct("iIII")

    def __init__(self, folder) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(self._IN_NONBLOCK)
        if libc.inotify_add_watch(self._descriptor, os.fsencode(folder), self._IN_OPEN) < 0:
            pytest.skip("no inotify here")

    def names(self) -> list[str]:
        """Lists the files that were opened since the last call."""
        names = []
        with contextlib.suppress(BlockingIOError):
            while True:
                events = os.read(self._descriptor, 1 << 16)
                while events:
                    length = self._EVENT.unpack_from(events)[3]
                    names.append(events[self._EVENT.size :][:length].rstrip(b"\0").decode())
                    events = events[self._EVENT.size + length :]
        return names


@pytest.fixture(scope="module")
def many(tmp_path_factory, vocabulary):
    """Makes a folder whose manifest names 100,000 shards that are not there, and one shard."""
    folder = tmp_path_factory.mktemp("many")
    written = write_records(folder, make_documents(80), vocabulary, 1 << 30)
    (shard,) = written.shards
    shards = [dataclasses.replace(shard, name=f"{i:06d}.tfrecord") for i in range(SHARDS)]
    names = ("documents", "records", "sentences", "tokens")
    totals = {name: getattr(written, name) * SHARDS for name in names}
    file = (folder / shard.name).rename(folder.with_name(f"{folder.name}.tfrecord"))
    dataclasses.replace(written, shards=shards, **totals).save(folder)
    return folder, file


@pytest.mark.long
def test_the_first_batch_of_very_many_shards(many, monkeypatch):
    """Only what is read first exists; it is opened, and no file is asked for anything else."""
    folder, file = many
    config = task_config(folder, {"quick_thought": QuickThoughtConfig()})
    manifest = load_folders([str(folder)])
    config.train_data.streams = 4
    repetitions = shard_repetitions(config.train_data, manifest)
    streams = num_streams(config.train_data, manifest, repetitions)
    assert streams == 4
    blocks = blocks_of(config.train_data, manifest)
    parts = blocks_of(config.train_data, manifest, None, streams)
    orders = [blocks._order(0), *(parts._order(0, i) for i in range(streams))]
    sampled = (SHARDS * i // 64 for i in range(64))
    needed = {*range(OPEN), *sampled}.union(*(o.numpy()[:OPEN].tolist() for o, _ in orders))
    for number in needed:
        os.link(file, folder / manifest.shards[number].name)
    opened, asked, stat = _Opened(folder), [], os.stat
    monkeypatch.setattr(os, "stat", lambda path, *a, **k: asked.append(path) or stat(path, *a, **k))
    task = SentenceEncoderTask(config)
    task.check_inputs(is_training=True)
    task.notes()
    next(iter(task.build_inputs(config.train_data)))
    monkeypatch.undo()
    names = opened.names()
    # Notes read a sample; the check, the sample for the schedule and each stream read in turn.
    assert names.count("dataset.json") == 1
    assert OPEN * 2 < len(names) < 64 + (3 + streams) * OPEN + 10
    assert not [path for path in asked if str(path).endswith(".tfrecord")]


def test_a_resumed_epoch_of_very_many_shards():
    """The place where reading resumes is computed without visiting the shards already read."""
    sizes, calls = _Counting([400] * SHARDS), SHARDS * 399
    opened, remainder = resume_interleave(sizes, OPEN, 8, calls)
    assert len(opened) <= OPEN + SHARDS // 100 and remainder < 8 * OPEN * 400
    assert sizes.asked < 40 * SHARDS


class _Counting(list):
    """A list that counts how often an element was asked for."""

    asked = 0

    def __getitem__(self, index):
        self.asked += 1
        return super().__getitem__(index)


def test_files_of_few_shards_are_checked_at_once(records_dir, tmp_path):
    """As they always were; those of many are found missing when they are read."""
    folder = shutil.copytree(records_dir, tmp_path / "records")
    (folder / "documents-00001.tfrecord").unlink()
    with pytest.raises(UserError, match="00001.tfrecord: listed in dataset.json but missing"):
        load_folders([str(folder)])
    assert load_manifest(folder, most_checked=1).records > 0


def test_records_on_another_file_system(records_dir, vocabulary):
    """TensorFlow's file system in memory, as an object store would be."""
    remote = "ram://sources/records"
    tf.io.gfile.makedirs(remote)
    for path in records_dir.iterdir():
        tf.io.gfile.copy(str(path), f"{remote}/{path.name}")
    local, manifest = load_manifest(records_dir), load_folders([remote])
    assert manifest == local == load_manifest(remote)
    assert load_records_vocabulary(remote, manifest).hash == vocabulary.hash
    config = DataConfig(sources=[SourceConfig(path=remote)])
    read, expected = (
        {key for _, _, keys in blocks_of(c, manifest).epoch(1).as_numpy_iterator() for key in keys}
        for c in (config, data(records_dir))
    )
    assert read == expected and len(read) > 100
    view = Spans(1, 1, 3, 10, "all", SpecialIds.of(vocabulary))
    lines = [unusable_records(c, manifest, view, "data") for c in (config, data(records_dir))]
    assert lines[0] == lines[1] != []
    tf.io.gfile.remove(f"{remote}/{manifest.shards[0].name}")
    load_folders([remote])
    with pytest.raises(UserError, match="^ram://sources/records/.*listed in dataset.json but"):
        load_manifest(remote)
    with pytest.raises(UserError, match="^ram://sources/none: no dataset.json"):
        load_manifest("ram://sources/none")
    with pytest.raises(UserError, match="^ram://sources/none/x: no such file; look"):
        read_text("ram://sources/none/x", "look")
