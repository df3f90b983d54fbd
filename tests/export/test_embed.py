"""`export.embedding.embed`: rows in order, parts, resuming after a kill, what is refused."""

import csv
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from export.embedding import rows, run, worker
from official_cmlm.checkpoints.encoder_directory import (
    EncodingSettings,
    encoder_digest,
    write_settings,
)
from official_cmlm.common.errors import UserError
from official_cmlm.common.text_files import Reading
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.vectors.embeddings import Ranges, read_ranges
from tests import binaries
from tests.conftest import write_encoder

ROOT = Path(__file__).parents[2]
TEXTS = [f"the cat {'sat on the mat ' * (i % 7)}{'a dog ' * (i % 3)}" for i in range(23)]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory, vocabulary):
    tf.random.set_seed(2)
    folder = write_encoder(tmp_path_factory.mktemp("model"), vocabulary)
    write_settings(folder, EncodingSettings({"query": "the bird "}))
    return folder


@pytest.fixture(scope="module")
def encoder(model_dir):
    return SentenceEncoder.load(model_dir)


@pytest.fixture
def in_process(monkeypatch, encoder):
    """Parts are computed in this process, by an encoder that is loaded already."""

    def pool(job, folder, workers, shares=None):
        encoder.ranges = read_ranges(folder) or read_ranges(Path(job.settings.model_dir))
        worker._state.clear()
        worker._state.update(settings=job.settings, folder=folder, encoder=encoder)
        return ThreadPoolExecutor(1)

    monkeypatch.setattr(run, "_pool", pool)


@pytest.fixture
def embed(model_dir, in_process):
    """Returns a function that embeds files; its settings are those of `job`."""

    def embed(paths, out, overwrite=False, **settings):
        return run.run(job(model_dir, paths, **settings), out, 1, overwrite)

    return embed


def written(path, texts=TEXTS):
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def job(model_dir, paths, reading=None, shard_rows=5, **settings):
    return run.Job(
        [str(path) for path in paths],
        reading or Reading(),
        worker.Settings(str(model_dir), **settings),
        encoder_digest(model_dir, with_ranges=True),
        shard_rows,
    )


def vectors_of(folder):
    """Returns all rows, as the manifest says where they are."""
    found = []
    for shard in json.loads((folder / "manifest.json").read_text())["shards"]:
        data = (folder / shard["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == shard["sha256"]
        assert shard["first_row"] == sum(map(len, found))
        found.append(np.load(folder / shard["file"], allow_pickle=False))
        assert len(found[-1]) == shard["rows"]
    return np.concatenate(found)


def records_of(path):
    """Writes the texts as JSON lines, with their numbers as ids."""
    path.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(TEXTS)))
    return path


@pytest.fixture
def finished(tmp_path, embed):
    """Returns an input and the folder of a finished run on it."""
    file, out = written(tmp_path / "a.txt"), tmp_path / "out"
    assert embed([file], out).computed == 23
    return file, out


def unfinish(out, parts=None):
    """Makes a finished run one that was stopped before its manifest, with parts of these numbers.

    Default: all of them.
    """
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").unlink()
    (out / "unfinished").mkdir()
    for number, shard in enumerate(manifest["shards"]):
        if parts is None or number in parts:
            entry = shard | {"shape": [shard["rows"], 16], "dtype": manifest["dtype"]}
            worker.done_path(out, number).write_text(json.dumps(entry))


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_row_i_is_the_vector_of_text_i(tmp_path, encoder, embed):
    """Over shards and files; empty lines are rows, and other ends of lines are ends."""
    first = written(tmp_path / "a.txt")
    second = tmp_path / "b.txt"
    second.write_bytes(b"\xef\xbb\xbfone cat\r\n\r\ntwo dogs")
    outcome = embed([first, second], tmp_path / "out")
    texts = [*TEXTS, "one cat", "", "two dogs"]
    found = vectors_of(tmp_path / "out")
    np.testing.assert_allclose(found, encoder.encode(texts, on_long="ignore"), atol=1e-6)
    shards = outcome.manifest["shards"]
    assert [shard["rows"] for shard in shards] == [5, 5, 5, 5, 5, 1]
    too_long = np.maximum(encoder.count_tokens(texts) - 24, 0)
    assert sum(shard["cut_texts"] for shard in shards) == np.count_nonzero(too_long) > 0
    assert sum(shard["cut_tokens"] for shard in shards) == too_long.sum()
    assert outcome.manifest["rows"] == outcome.computed == 26
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        *(f"embeddings-{i:05d}.npy" for i in range(6)),
        *("manifest.json", "plan.json"),
    ]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("output_format", ["npy", "parquet"])
def test_records_with_ids(tmp_path, encoder, embed, form, output_format):
    ids, file = [f"doc {i}\u00e4" for i in range(23)], tmp_path / f"in.{form}"
    if form == "jsonl":
        lines = [json.dumps({"id": i, "body": t, "more": 1}) for i, t in zip(ids, TEXTS)]
        file.write_text("\n\n".join(lines), encoding="utf-8")
    else:
        pq.write_table(pa.table({"id": ids, "body": TEXTS, "x": [0] * 23}), file, row_group_size=4)
    settings = {"output_format": output_format, "dim": 6, "normalize": True}
    settings["reading"] = Reading(column="body", id_column="id")
    done = embed([file], tmp_path / "out", **settings)
    expected = encoder.encode(TEXTS, truncate_dim=6, normalize_embeddings=True, on_long="ignore")
    shards = done.manifest["shards"]
    if output_format == "npy":
        found = vectors_of(tmp_path / "out")
        texts = [(tmp_path / "out" / shard["ids"]).read_text("utf-8") for shard in shards]
        found_ids = [json.loads(line) for text in texts for line in text.splitlines()]
    else:
        table = pa.concat_tables([pq.read_table(tmp_path / "out" / s["file"]) for s in shards])
        found = np.array(table["embedding"].to_pylist(), np.float32)
        found_ids = table["id"].to_pylist()
    assert found_ids == ids and done.manifest["columns"] == 6
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_eight_bits_by_the_ranges_of_the_input(tmp_path, encoder, embed):
    """All shards have the same ranges, stored beside them; prompts are part of the texts."""
    file = written(tmp_path / "a.txt")
    settings = {"precision": "int8", "prompt_name": "query", "on_long": "windows"}
    done = embed([file], tmp_path / "out", **settings)
    found = vectors_of(tmp_path / "out")
    plain = encoder.encode_long(TEXTS, prompt_name="query")
    stored = json.loads((tmp_path / "out" / "embedding_ranges.json").read_text())
    np.testing.assert_allclose(stored["low"], plain.min(axis=0), atol=1e-6)
    steps = (plain.max(axis=0) - plain.min(axis=0)) / 255
    np.testing.assert_allclose((found + 128.5) * steps + stored["low"], plain, atol=steps.max())
    assert done.manifest["dtype"] == "int8"


def test_eight_bits_by_the_ranges_of_the_encoder(tmp_path, model_dir, encoder, in_process, capsys):
    """Ranges of the first dimensions are taken, as in `encode`, unless they do not fit."""
    own = tmp_path / "model"
    shutil.copytree(model_dir, own)
    low = np.linspace(-3, -1, encoder.dimension, dtype=np.float32)
    Ranges(low, -low).save(own)
    file = written(tmp_path / "a.txt")
    run.run(job(own, [file], precision="int8", dim=6), tmp_path / "out", 1, False)
    encoder.ranges = Ranges(low, -low)
    expected = encoder.encode(TEXTS, truncate_dim=6, precision="int8", on_long="ignore")
    found = vectors_of(tmp_path / "out")
    assert "warning" not in capsys.readouterr().err
    # Other batches have other last bits.
    assert np.abs(found.astype(int) - expected).max() <= 1
    settings = {"precision": "int8", "dim": 6, "normalize": True}
    run.run(job(own, [file], **settings), tmp_path / "scaled", 1, False)
    found = vectors_of(tmp_path / "scaled")
    assert (found.min(axis=0) < -126).all() and (found.max(axis=0) > 125).all()
    said = "warning: the stored ranges are of 16 dimensions, normalize=False; here are 6"
    assert said in capsys.readouterr().err


def test_what_is_there_is_not_computed_again(finished, embed):
    """A finished run does nothing; one that was stopped between two shards goes on."""
    file, out = finished
    before = files_of(out)
    assert embed([file], out).computed == 0
    assert files_of(out) == before
    unfinish(out, parts=(0, 2))
    (out / "embeddings-00003.npy.1-ab.tmp").write_bytes(b"half")
    assert embed([file], out).computed == 13
    assert files_of(out) == before


def test_shards_that_are_gone_or_damaged_are_computed_again(tmp_path, embed, capsys):
    """A finished run compares sizes, a stopped run bytes too."""
    file, out = records_of(tmp_path / "a.jsonl"), tmp_path / "out"
    reading = Reading(id_column="id")
    embed([file], out, reading=reading)
    before = files_of(out)
    (out / "embeddings-00001.npy").write_bytes(b"short")
    (out / "embeddings-00004.npy").unlink()
    (out / "ids-00002.jsonl").unlink()
    assert embed([file], out, reading=reading).computed == 13
    assert files_of(out) == before
    assert "3 of 5 shards are gone or damaged" in capsys.readouterr().err
    name = "embeddings-00001.npy"
    (out / name).write_bytes(before[name][:-4] + b"\1\2\3\4")
    # The least that makes it unfinished.
    (out / "embeddings-00000.npy").unlink()
    assert embed([file], out, reading=reading).computed == 10
    assert files_of(out) == before


def test_what_changes_during_a_run_is_an_error(tmp_path, model_dir, embed, monkeypatch):
    """The input at the end, the encoder when a process has loaded it."""
    file = written(tmp_path / "a.txt")
    unchanged = worker.embed

    def changing(part):
        written(file, [*TEXTS, "more"])
        return unchanged(part)

    monkeypatch.setattr(worker, "embed", changing)
    with pytest.raises(UserError, match=r"a.txt: has changed since the run began"):
        embed([file], tmp_path / "out")
    monkeypatch.setattr(worker, "prepare_worker", lambda workers: None)
    worker.start(worker.Settings(str(model_dir)), str(tmp_path), 1, "0" * 16)
    with pytest.raises(UserError, match="has changed since the run began; pass --overwrite"):
        worker.backend_name()
    digest = encoder_digest(model_dir, with_ranges=True)
    worker.start(worker.Settings(str(model_dir)), str(tmp_path), 1, digest)
    assert worker.backend_name() == "tensorflow"


def test_the_backend_is_chosen_once(tmp_path, embed, monkeypatch):
    """A run that goes on keeps the plan's backend, and the processes get its name."""
    file, out = written(tmp_path / "a.txt"), tmp_path / "out"
    asked = []

    def measured():
        asked.append(worker._state["settings"].backend)
        return "tensorflow"

    monkeypatch.setattr(worker, "backend_name", measured)
    done = embed([file], out, backend="auto")
    assert done.manifest["settings"]["backend"] == "tensorflow"
    assert worker._state["settings"].backend == "tensorflow"
    assert embed([file], out, backend="auto").computed == embed([file], out).computed == 0
    assert asked == ["auto"]
    done = embed([file], tmp_path / "int8", backend="onnx", arithmetic="int8")
    assert done.manifest["settings"]["arithmetic"] in ("qint8_avx2", "qint8_avx512_vnni")


def test_another_encoder_has_another_digest(model_dir, tmp_path):
    """The weights of a checkpoint and the graphs and settings of an export count, not a path."""
    copied = shutil.copytree(model_dir, tmp_path / "copied")
    assert encoder_digest(copied) == encoder_digest(model_dir, with_ranges=True)
    data = next(copied.glob("ckpt-1.data-*"))
    data.write_bytes(data.read_bytes()[:-1] + b"\0\1")
    seen = {encoder_digest(model_dir), encoder_digest(copied)}
    (tmp_path / "onnx").mkdir()
    (tmp_path / "vocab.txt").write_text("a")
    for content in (b"1", b"2"):
        (tmp_path / "onnx" / "model.onnx").write_bytes(content)
        seen.add(encoder_digest(tmp_path))
    (tmp_path / "config_sentence_transformers.json").write_text("{}")
    assert len(seen | {encoder_digest(tmp_path)}) == 5


def test_another_job_in_the_same_folder_is_refused(finished, embed):
    file, out = finished
    with pytest.raises(UserError, match="was begun with another settings; pass --overwrite"):
        embed([file], out, dim=3)
    embed([file], out, overwrite=True, dim=3, shard_rows=9)
    assert vectors_of(out).shape == (23, 3)
    assert len(list(out.glob("*.npy"))) == 3


def test_a_fault_is_met_before_the_work(tmp_path, finished, embed, monkeypatch):
    """The last row of the last file, and nothing is embedded or removed."""
    file, out = finished
    before, other = files_of(out), tmp_path / "b.txt"
    other.write_bytes(b"a\nb\xff")
    monkeypatch.setattr(worker, "embed", None)
    with pytest.raises(UserError, match="b.txt:2: not UTF-8"):
        embed([file, other], out, overwrite=True)
    assert files_of(out) == before
    other.write_bytes(b"")
    with pytest.raises(UserError, match="no text"):
        embed([other], tmp_path / "empty")


def test_an_id_twice_is_met_before_the_work(tmp_path, embed, monkeypatch):
    """Also in another file; ids are compared, not their hashes alone."""
    first, second = tmp_path / "a.jsonl", tmp_path / "b.csv"
    first.write_text('{"text": "x", "id": 1}\n{"text": "y", "id": "2"}\n')
    second.write_text("id,text\n3,x\n02,x\n1,z\n")
    paths, reading = [str(first), str(second)], Reading(id_column="id")
    with pytest.raises(UserError, match=r"b.csv:4: the id '1' of .*a.jsonl:1 again; .*id_column"):
        embed(paths, tmp_path / "out", reading=reading)
    second.write_text("id,text\n3,x\n02,x\n")
    monkeypatch.setattr(rows, "hash", lambda one: 7, raising=False)
    assert rows.extent(paths, reading).rows == 4
    # Without a column of ids the same texts may come again.
    assert rows.extent([str(first), str(first)], Reading()).rows == 4


def test_parts_of_long_texts_have_fewer(tmp_path, monkeypatch):
    """So memory does not grow with the length of texts."""
    monkeypatch.setattr(rows, "MOST_CHARACTERS", 100)
    file = written(tmp_path / "a.txt", ["x" * 60, "y" * 60, "z" * 300, "", "b"])
    found = list(rows.parts([str(file)], Reading(), 3))
    assert [(p.number, p.first_row, len(p.texts)) for p in found] == [
        (0, 0, 2),
        (1, 2, 1),
        (2, 3, 2),
    ]


def table_of(path, records):
    """Writes a CSV file with a column of texts."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]))
        writer.writeheader()
        writer.writerows(records)
    return path


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_one_file_with_the_columns(tmp_path, encoder, embed, form):
    """The rows of all shards, in order, and the columns beside them; the folder is gone."""
    records = [{"id": f"n{i}", "body": text, "stars": i} for i, text in enumerate(TEXTS)]
    file, target = tmp_path / f"a.{form}", tmp_path / "v.parquet"
    if form == "csv":
        table_of(file, records)
    else:
        records[3] |= {"stars": 0.5, "tags": ["x"]}
        file.write_text("\n".join(map(json.dumps, records)))
    settings = {"output_format": "parquet", "text_name": "body", "precision": "int8"}
    settings["reading"] = Reading(column="body", id_column="id", keep=True)
    out = tmp_path / "v.parquet.unfinished"
    done = embed([file], out, **settings)
    # `Index.from_embeddings` finds the texts by it.
    assert {shard["text"] for shard in done.manifest["shards"]} == {"body"}
    ranges = read_ranges(out)
    run.gather(out, done.manifest, target, False)
    table = pq.read_table(target)
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, "v.parquet"]
    assert table["id"].to_pylist() == [record["id"] for record in records]
    assert table["body"].to_pylist() == TEXTS
    stars = [str(r["stars"]) if form == "csv" else float(r["stars"]) for r in records]
    assert table["stars"].to_pylist() == stars
    if form == "jsonl":
        assert table["tags"].to_pylist() == [None] * 3 + ['["x"]'] + [None] * 19
    encoder.ranges = ranges
    expected = encoder.encode(TEXTS, precision="int8", on_long="ignore")
    found = np.array(table["embedding"].to_pylist())
    assert np.abs(found - expected.astype(int)).max() <= 1
    about = json.loads(table.schema.metadata[b"official_cmlm"])
    assert about["rows"] == 23 and about["ranges"]["low"] == pytest.approx(ranges.low.tolist())


def test_one_array(tmp_path, encoder, embed):
    """An array that has appeared meanwhile is not replaced, and the shards stay."""
    file, target = written(tmp_path / "a.txt"), tmp_path / "v.npy"
    out = tmp_path / "v.npy.unfinished"
    done = embed([file], out)
    target.write_bytes(b"mine")
    shard = out / "embeddings-00002.npy"
    good = shard.read_bytes()
    shard.write_bytes(bytes(len(good)))
    with pytest.raises(UserError, match="embeddings-00002.npy: damaged; delete it"):
        run.gather(out, done.manifest, target, False)
    shard.write_bytes(good)
    with pytest.raises(UserError, match="v.npy: has appeared meanwhile"):
        run.gather(out, done.manifest, target, False)
    assert target.read_bytes() == b"mine"
    assert embed([file], out).computed == 0
    run.gather(out, done.manifest, target, True)
    np.testing.assert_allclose(np.load(target), encoder.encode(TEXTS, on_long="ignore"), atol=1e-6)
    assert not out.exists()


@pytest.mark.parametrize(
    "name, content",
    [
        ("precious.txt", "mine"),
        ("modules/main.tf", "mine"),
        ("unfinished/notes.json", "{}"),
        ("embeddings-1.npy", "mine"),
    ],
)
def test_nobodys_files_are_replaced(finished, embed, name, content):
    file, out = finished
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text(content)
    before = files_of(out)
    with pytest.raises(UserError, match=f"out: holds {name.split('/m')[0]}.* has not written"):
        embed([file], out, overwrite=True, dim=3)
    assert files_of(out) == before


@pytest.mark.parametrize(
    "name, says", [("thesis.txt", "holds other files"), ("plan.json", "not a plan of embeddings")]
)
def test_a_folder_of_another_program_is_not_replaced(tmp_path, embed, name, says):
    (tmp_path / "own" / "modules").mkdir(parents=True)
    (tmp_path / "own" / name).write_text('{"terraform": 1}')
    before = files_of(tmp_path)
    with pytest.raises(UserError, match=says):
        embed([written(tmp_path / "a.txt")], tmp_path / "own", overwrite=True)
    assert files_of(tmp_path / "own") == before


def test_an_input_in_the_output_is_refused(tmp_path, embed):
    (tmp_path / "sub").mkdir()
    file = written(tmp_path / "sub" / "a.txt")
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (tmp_path, tmp_path / "link"):
        with pytest.raises(UserError, match="an input inside of"):
            embed([file], folder, overwrite=True)
    assert file.exists()


def test_a_linked_folder_of_parts_is_refused(tmp_path, finished, embed):
    file, out = finished
    (tmp_path / "elsewhere").mkdir()
    (out / "unfinished").symlink_to(tmp_path / "elsewhere")
    (out / "manifest.json").unlink()
    for overwrite in (False, True):
        with pytest.raises(UserError, match="unfinished: a link"):
            embed([file], out, overwrite)


@pytest.mark.parametrize(
    "change",
    [
        *[{name: None} for name in ("file", "first_row", "rows", "bytes", "sha256", "ids")],
        *[{name: None} for name in ("shape", "dtype", "cut_texts", "mended_texts", "ids_sha256")],
        {"rows": "5"},
        {"rows": True},
        {"shape": []},
        {"file": "../x"},
        {"file": "embeddings-00001.npy"},
        {"first_row": 7},
        {"bytes": -1},
        [],
    ],
)
def test_a_damaged_description_is_written_again(tmp_path, embed, change, capsys):
    """And with it its rows; the result is that of a run without damage."""
    file, out = records_of(tmp_path / "a.jsonl"), tmp_path / "out"
    settings = {"reading": Reading(id_column="id")}
    embed([file], out, **settings)
    expected = files_of(out)
    unfinish(out)
    path = worker.done_path(out, 2)
    damaged = json.loads(path.read_text()) | change if change else change
    path.write_text(json.dumps(damaged))
    # Neither a stray description nor the copy of another one counts.
    worker.done_path(out, 99).write_text(worker.done_path(out, 1).read_text())
    shutil.copy(worker.done_path(out, 1), worker.done_path(out, 3))
    assert embed([file], out, **settings).computed == 10
    assert files_of(out) == expected
    assert capsys.readouterr().err.count("damaged; its rows are embedded again") == 2


def test_ids_are_hashed_and_ranges_are_checked(tmp_path, embed):
    file, out = records_of(tmp_path / "a.jsonl"), tmp_path / "out"
    settings = {"reading": Reading(id_column="id"), "precision": "int8"}
    embed([file], out, **settings)
    expected = files_of(out)
    unfinish(out)
    ids = out / "ids-00003.jsonl"
    ids.write_bytes(ids.read_bytes().replace(b"1", b"7"))
    assert embed([file], out, **settings).computed == 5
    assert files_of(out) == expected
    ranges = out / "embedding_ranges.json"
    for content in (b"{}", expected[ranges.name].replace(b"0.", b"1.", 1)):
        ranges.write_bytes(content)
        with pytest.raises(UserError, match=r"embedding_ranges.json: not "):
            embed([file], out, **settings)
    assert embed([file], out, overwrite=True, **settings).computed == 23
    assert files_of(out) == expected


@pytest.mark.parametrize(
    "change, at",
    [
        ({"shards": None}, "shards"),
        ({"shards": []}, "rows"),
        ({"shards": {}}, "shards"),
        ({"shards": [1]}, "entry"),
        ({"columns": "x"}, "columns"),
        ({"columns": 17}, "columns or dtype"),
        ({"dtype": "int8"}, "columns or dtype"),
        ({"rows": 22}, "rows"),
        ({"encoder": {}}, "encoder"),
        ({"settings": []}, "settings"),
    ],
)
def test_a_damaged_manifest_is_refused(finished, embed, change, at):
    file, out = finished
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | change))
    with pytest.raises(UserError, match=f"manifest.json: damaged at {at}; pass --overwrite"):
        embed([file], out)
    assert embed([file], out, overwrite=True).computed == 23


def test_a_damaged_array_is_refused(finished, embed):
    file, out = finished
    shard = out / "embeddings-00000.npy"
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(UserError, match="embeddings-00000.npy: damaged"):
        embed([file], out)


@pytest.mark.parametrize("form", worker.OUTPUTS)
def test_half_surrogates_of_ids_are_counted(tmp_path, embed, form):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a", "id": "x\\ud800y"}\n{"text": "b\\udfff", "id": "z"}\n')
    done = embed([file], tmp_path / "out", reading=Reading(id_column="id"), output_format=form)
    assert done.manifest["shards"][0]["mended_texts"] == 2


def test_columns_with_the_names_of_the_output_are_refused(tmp_path, embed):
    file = table_of(tmp_path / "a.csv", [{"text": "a", "embedding": "b"}])
    with pytest.raises(UserError, match="a column 'embedding' of its own"):
        embed([file], tmp_path / "out", reading=Reading(keep=True))


@pytest.mark.parametrize(
    "flags, says",
    [
        (["--to=v.csv"], "--to=v.csv: name a .parquet or .npy file"),
        ([], "either by --to or by --output_dir"),
        (["--to=v.npy", "--keep_columns"], "--keep_columns: .npy files have no columns"),
        (["--to=v.npy", "--id_column=id"], "--id_column: one .npy file has no place"),
        (["--to=data.csv.parquet"], "data.csv.parquet: exists already; pass --overwrite"),
        (["--to=data.csv.parquet", "--overwrite", "--input=data.csv.parquet"], "is also an input"),
    ],
)
def test_outputs_that_cannot_be(tmp_path, monkeypatch, model_dir, capsys, flags, says):
    table_of(tmp_path / "data.csv", [{"text": "a", "id": "1"}])
    (tmp_path / "data.csv.parquet").write_bytes(b"mine")
    monkeypatch.chdir(tmp_path)
    status = binaries.call(
        "export.embedding.embed", f"--model_dir={model_dir}", "--input=data.csv", *flags
    )
    assert status == 1 and says in capsys.readouterr().err


@pytest.mark.long
def test_a_pipeline_writes_the_same_files(tmp_path, model_dir, in_process):
    """Shards and manifest, over several files; what is there is not computed again."""
    reading = Reading(column="text", id_column="id")
    paths = []
    for name, texts in (("a", TEXTS[:8]), ("b", []), ("c", TEXTS[8:])):
        paths.append(tmp_path / f"{name}.csv")
        lines = "".join(f"{name}{i},{text}\n" for i, text in enumerate(texts))
        paths[-1].write_text(f"id,text\n{lines}")
    begun = job(model_dir, paths, reading)
    run.run(begun, tmp_path / "processes", 1, False)
    by_beam = dataclasses.replace(begun, beam=["--runner=DirectRunner"])
    expected = vectors_of(tmp_path / "processes")
    for computed in (23, 10):
        assert run.run(by_beam, tmp_path / "beam", 1, False).computed == computed
        # Another process may have other last bits.
        np.testing.assert_allclose(vectors_of(tmp_path / "beam"), expected, atol=1e-5)
        for number in (1, 3):
            (tmp_path / "beam" / f"embeddings-{number:05d}.npy").unlink()
    wrong = dataclasses.replace(by_beam, encoder_digest="0" * 16)
    with pytest.raises(UserError, match="the pipeline has failed .*has changed since the run"):
        run.run(wrong, tmp_path / "other", 1, False)


def called(command):
    """Runs a command to its end."""
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)


def command(model_dir, file, out, *more):
    flags = (f"--model_dir={model_dir}", f"--input={file}", f"--output_dir={out}")
    # ONNX Runtime's last bits may differ from run to run.
    flags += ("--shard_rows=40", "--backend=tensorflow")
    return [sys.executable, "-m", "export.embedding.embed", *flags, *more]


@pytest.mark.long
def test_killed_and_begun_again_it_writes_the_same_bytes(tmp_path, model_dir):
    """`kill -9` of the main process after some shards; its processes end too. Two workers."""
    file = written(tmp_path / "a.txt", [f"{text} {i}" for i in range(300) for text in TEXTS])
    # The same name, as the manifest holds no name of the output.
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = called(command(model_dir, file, whole))
    assert "6900 rows of 16 float32 in 173 shards" in done.stdout
    kills = 0
    for least in (1, 30, 60):
        process = subprocess.Popen(
            command(model_dir, file, killed, "--workers=2"),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and len(list(killed.glob("unfinished/*.json"))) < least:
            time.sleep(0.01)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills == 3 and not (killed / "manifest.json").exists()
    done = called(command(model_dir, file, killed, "--workers=2"))
    assert "6900 rows" in done.stdout and " 6900 rows embedded now" not in done.stdout
    assert files_of(killed) == files_of(whole)


@pytest.mark.long
def test_mistakes_that_only_a_process_sees_are_one_line(tmp_path, model_dir):
    file = written(tmp_path / "a.txt")
    for flag, says in (
        ("--prompt_name=none", "no prompt 'none'"),
        ("--dim=17", "truncate_dim must be 1 to 16"),
    ):
        done = called(command(model_dir, file, tmp_path / flag, flag))
        assert done.returncode == 1 and says in done.stderr.splitlines()[-1], done.stderr
        assert "Traceback" not in done.stderr
