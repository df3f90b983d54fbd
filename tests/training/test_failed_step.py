"""The records of a step that was not finite, of several groups and several workers."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs import hashing
from official_cmlm.records.manifest import load_manifest
from official_cmlm.training import non_finite as module
from official_cmlm.training.non_finite import Failure, failed_step
from tests.conftest import make_documents, write_records
from tests.training.helpers import data


@pytest.fixture(scope="module")
def two_folders(tmp_path_factory, vocabulary):
    """Group -> settings, both with the default seed; the second folder has more records."""
    folder = tmp_path_factory.mktemp("two")
    found = {}
    for group, count in (("cmlm", 20), ("mlm", 60)):
        documents = [
            dataclasses.replace(document, id=f"{group}-{number}")
            for number, document in enumerate(make_documents(count, seed=count))
        ]
        write_records(folder / group, documents, vocabulary)
        found[group] = data(folder / group)
    return found


def _trainer(epochs, resolver=None, chief=True):
    """What `failed_step` looks at of a trainer."""
    extended = SimpleNamespace(
        should_checkpoint=chief, _in_multi_worker_mode=lambda: resolver is not None
    )
    return SimpleNamespace(
        optimizer=SimpleNamespace(learning_rate=0.5),
        model=SimpleNamespace(data_positions=SimpleNamespace(epochs=lambda: epochs)),
        strategy=SimpleNamespace(extended=extended, cluster_resolver=resolver),
    )


def _keys(epoch, numbers):
    """The keys of example 1 of records, read with seed 0."""
    epoch_key = hashing.fold(tf.constant(0, tf.int64), epoch)
    return hashing.fold(hashing.fold(epoch_key, tf.constant(numbers)), 1).numpy()


def _ids(lines):
    return [line.rsplit("(", 1)[1].rstrip(")") for line in lines]


def test_each_group_is_looked_up_in_its_own_records(two_folders, tmp_path, capsys):
    """Equal seeds give equal keys in both folders: only the group tells them apart."""
    numbers = {"cmlm": [4, 9], "mlm": [4, 45, 9]}
    epochs = {"cmlm": 7_000, "mlm": 0}
    keys = {group: _keys(epochs[group], each) for group, each in numbers.items()}
    failure = Failure(3, float("nan"), 1.0, keys, 0)
    error = failed_step(failure, _trainer(epochs), two_folders, str(tmp_path))
    found = json.loads((tmp_path / "failed_step.json").read_text())
    for group, each in numbers.items():
        # Records are written in the order of the documents.
        folder, start = two_folders[group].input_path, 0
        expected = {}
        for shard in load_manifest(folder).shards:
            for number in range(shard.records):
                expected[start + number] = f"{folder}/{shard.name}#{number}"
            start += shard.records
        lines = found["records"][group]
        assert [line.split(" (")[0] for line in lines] == [expected[n] for n in each]
        assert _ids(lines) == [f"{group}-{n}" for n in each]
        assert found["keys"][group] == keys[group].tolist()
    first = found["records"]["cmlm"][0]
    assert f"its batch is {first}, " in str(error) and "and 2 more" in str(error)
    assert f"({tmp_path}/failed_step.json lists all)" in str(error)
    assert capsys.readouterr().err.startswith("step 3: loss nan, ")


def test_the_line_comes_before_the_search(two_folders, tmp_path, capsys, monkeypatch):
    """Reading ids can take minutes; nobody should wait for them to learn what happened."""
    printed = []

    def slow(*args):
        printed.append(capsys.readouterr().err)
        return [None] * len(args[0])

    monkeypatch.setattr(module, "record_names", slow)
    failure = Failure(5, float("inf"), 2.0, {"mlm": np.array([17])}, 0)
    error = failed_step(failure, _trainer({"mlm": 0}), two_folders, str(tmp_path))
    assert printed[0].startswith("step 5: loss inf, gradient norm 2, learning rate 0.5; the step ")
    assert "its batch is key 17 (" in str(error)


@pytest.mark.parametrize(
    ("task_id", "jobs", "chief", "name"),
    [
        (0, ["worker"], True, "failed_step.json"),
        (1, ["worker"], False, "failed_step.worker1.json"),
        (0, ["chief", "worker"], False, "failed_step.worker1.json"),
    ],
)
def test_workers_write_files_of_their_own(two_folders, tmp_path, task_id, jobs, chief, name):
    """Each knows its own share only, and says so; also when it does not remember all of it."""
    resolver = SimpleNamespace(task_id=task_id, cluster_spec=lambda: SimpleNamespace(jobs=jobs))
    failure = Failure(3, float("nan"), 1.0, {"mlm": _keys(0, [2])}, 40)
    trainer = _trainer({"mlm": 0}, resolver, chief)
    message = str(failed_step(failure, trainer, two_folders, str(tmp_path)))
    assert [path.name for path in tmp_path.glob("failed_step*")] == [name]
    found = json.loads((tmp_path / name).read_text())
    worker = 0 if chief else 1
    assert (found["worker"], found["examples_left_out"]) == (worker, 40)
    assert f"worker {worker}'s share of its batch is {found['records']['mlm'][0]} (" in message
    assert "lists these, but not the records of 40 more examples)" in message
