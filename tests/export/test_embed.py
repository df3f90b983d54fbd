"""`export.embedding.embed`: rows in order, parts, resuming after a kill, what is refused."""

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from export.embedding import rows, run, worker
from export.embedding.rows import read_texts
from official_cmlm.checkpoints.encoder_directory import (
    EncodingSettings,
    encoder_digest,
    write_settings,
)
from official_cmlm.common.errors import UserError
from official_cmlm.common.text_files import Reading
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.search import Index
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
def loaded_encoder(monkeypatch, encoder):
    """Each run in this process gets an encoder that is loaded already, with its own ranges."""

    def load(settings):
        encoder.ranges = read_ranges(Path(settings.model_dir))
        return encoder

    monkeypatch.setattr(worker.Settings, "load_encoder", load)


@pytest.fixture
def embed(model_dir, loaded_encoder):
    """Returns a function that embeds files in this process; its settings are those of `request`."""

    def embed(paths, out, overwrite=False, target=None, **settings):
        return run.run(request_for(model_dir, paths, **settings), out, 0, overwrite, target)

    return embed


def write_lines(path, texts=TEXTS):
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def request_for(model_dir, paths, reading=None, shard_rows=5, **settings):
    return run.Request(
        [str(path) for path in paths],
        reading or Reading(),
        worker.Settings(str(model_dir), **settings),
        encoder_digest(model_dir, with_ranges=True),
        shard_rows,
    )


def vectors_of(folder):
    """Returns all rows, as the manifest says where they are."""
    arrays = []
    for shard in json.loads((folder / "manifest.json").read_text())["shards"]:
        data = (folder / shard["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == shard["sha256"]
        assert shard["first_row"] == sum(map(len, arrays))
        arrays.append(np.load(folder / shard["file"], allow_pickle=False))
        assert len(arrays[-1]) == shard["rows"]
    return np.concatenate(arrays)


def write_records(path):
    """Writes the texts as JSON lines, with their numbers as ids."""
    path.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(TEXTS)))
    return path


@pytest.fixture
def finished_run(tmp_path, embed):
    """Returns an input and the folder of a finished run on it."""
    file, out = write_lines(tmp_path / "a.txt"), tmp_path / "out"
    assert embed([file], out).computed == 23
    return file, out


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_row_i_is_the_vector_of_text_i(tmp_path, encoder, embed):
    """Over shards and files; empty lines are rows, and other ends of lines are ends."""
    first = write_lines(tmp_path / "a.txt")
    second = tmp_path / "b.txt"
    second.write_bytes(b"\xef\xbb\xbfone cat\r\n\r\ntwo dogs")
    outcome = embed([first, second], tmp_path / "out")
    texts = [*TEXTS, "one cat", "", "two dogs"]
    vectors = vectors_of(tmp_path / "out")
    np.testing.assert_allclose(vectors, encoder.encode(texts, on_long="ignore"), atol=1e-6)
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
def test_records_keep_their_ids(tmp_path, encoder, embed, form, output_format):
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
        vectors = vectors_of(tmp_path / "out")
        texts = [(tmp_path / "out" / shard["ids"]).read_text("utf-8") for shard in shards]
        stored_ids = [json.loads(line) for text in texts for line in text.splitlines()]
    else:
        table = pa.concat_tables([pq.read_table(tmp_path / "out" / s["file"]) for s in shards])
        vectors = np.array(table["embedding"].to_pylist(), np.float32)
        stored_ids = table["id"].to_pylist()
    assert stored_ids == ids and done.manifest["columns"] == 6
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_codes_of_eight_bits_have_the_ranges_of_the_input(tmp_path, encoder, embed):
    """All shards have the same ranges, stored beside them; prompts are part of the texts."""
    file = write_lines(tmp_path / "a.txt")
    settings = {"precision": "int8", "prompt_name": "query", "on_long": "windows"}
    done = embed([file], tmp_path / "out", **settings)
    codes = vectors_of(tmp_path / "out")
    plain = encoder.encode_long(TEXTS, prompt_name="query")
    stored = json.loads((tmp_path / "out" / "embedding_ranges.json").read_text())
    np.testing.assert_allclose(stored["low"], plain.min(axis=0), atol=1e-6)
    steps = (plain.max(axis=0) - plain.min(axis=0)) / 255
    np.testing.assert_allclose((codes + 128.5) * steps + stored["low"], plain, atol=steps.max())
    assert done.manifest["dtype"] == "int8"


def test_codes_of_eight_bits_have_the_ranges_of_the_encoder(
    tmp_path, model_dir, encoder, loaded_encoder, capsys
):
    """Ranges of the first dimensions are taken, as in `encode`, unless they do not fit."""
    own = tmp_path / "model"
    shutil.copytree(model_dir, own)
    low = np.linspace(-3, -1, encoder.dimension, dtype=np.float32)
    Ranges(low, -low).save(own)
    file = write_lines(tmp_path / "a.txt")
    run.run(request_for(own, [file], precision="int8", dim=6), tmp_path / "out", 0)
    encoder.ranges = Ranges(low, -low)
    expected = encoder.encode(TEXTS, truncate_dim=6, precision="int8", on_long="ignore")
    codes = vectors_of(tmp_path / "out")
    assert "warning" not in capsys.readouterr().err
    # Other batches have other last bits.
    assert np.abs(codes.astype(int) - expected).max() <= 1
    settings = {"precision": "int8", "dim": 6, "normalize": True}
    run.run(request_for(own, [file], **settings), tmp_path / "scaled", 0)
    codes = vectors_of(tmp_path / "scaled")
    assert (codes.min(axis=0) < -126).all() and (codes.max(axis=0) > 125).all()
    warning = "warning: the stored ranges are of 16 dimensions, normalize=False; here are 6"
    assert warning in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["embeddings-00001.npy", "ids-00002.jsonl", "embedding_ranges.json"]
)
@pytest.mark.parametrize("content", [None, b"short"])
def test_lost_shards_of_a_finished_run_are_counted(tmp_path, embed, name, content):
    """Sizes are compared, and the ranges of all shards with those of 8-bit codes."""
    file, out = write_records(tmp_path / "a.jsonl"), tmp_path / "out"
    settings = {"reading": Reading(id_column="id"), "precision": "int8"}
    embed([file], out, **settings)
    assert embed([file], out, **settings).computed == 0
    (out / name).unlink()
    if content:
        (out / name).write_bytes(content)
    count = 5 if "ranges" in name else 1
    with pytest.raises(UserError, match=f"out: {count} of 5 shards are gone or damaged; delete"):
        embed([file], out, **settings)


@pytest.fixture
def stopped_run(tmp_path, embed, monkeypatch):
    """Returns an input and the folder of a run of codes that was stopped at its fourth part."""
    file, out = write_lines(tmp_path / "a.txt"), tmp_path / "out"
    encode = worker.Settings.encode

    def stop(settings, encoder, texts, *more):
        if texts == TEXTS[15:20]:
            raise UserError("stop")
        return encode(settings, encoder, texts, *more)

    with monkeypatch.context() as patch:
        patch.setattr(worker.Settings, "encode", stop)
        with pytest.raises(UserError, match="rows 15 to 19: stop"):
            embed([file], out, precision="int8")
    return file, out


def test_a_stopped_run_goes_on_with_the_shards_that_are_left(tmp_path, embed, stopped_run):
    """A shard that was lost meanwhile is one of them."""
    file, out = stopped_run
    embed([file], tmp_path / "whole", precision="int8")
    (out / "embeddings-00001.npy").unlink()
    damaged = out / "embeddings-00000.npy"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert embed([file], out, precision="int8").computed == 18
    assert files_of(out) == files_of(tmp_path / "whole")


@pytest.mark.parametrize("content", [None, "other"])
def test_codes_without_their_ranges_are_computed_again(embed, stopped_run, content):
    file, out = stopped_run
    ranges = out / "embedding_ranges.json"
    values = json.loads(ranges.read_text())
    ranges.unlink()
    if content:
        ranges.write_text(json.dumps(values | {"high": [high + 1 for high in values["high"]]}))
    # Ranges that are found again are the same, so that the codes of three parts stay.
    assert embed([file], out, precision="int8").computed == (23 if content else 8)
    digests = {
        shard["ranges_sha256"]
        for shard in json.loads((out / "manifest.json").read_text())["shards"]
    }
    assert digests == {hashlib.sha256(ranges.read_bytes()).hexdigest()}


def test_an_input_or_encoder_that_changes_during_a_run_is_an_error(
    tmp_path, model_dir, embed, monkeypatch
):
    """The input at the end, the encoder when a process has loaded it."""
    file = write_lines(tmp_path / "a.txt")
    with pytest.raises(UserError, match="has changed since the run began; pass --overwrite"):
        worker.Embedder(worker.Settings(str(model_dir)), tmp_path, "0" * 16)
    encode = worker.Settings.encode

    def change(settings, encoder, texts, *more):
        write_lines(file, [*TEXTS, "more"])
        return encode(settings, encoder, texts, *more)

    monkeypatch.setattr(worker.Settings, "encode", change)
    with pytest.raises(UserError, match=r"a.txt: has changed since the run began"):
        embed([file], tmp_path / "out")


def test_the_backend_is_chosen_once(tmp_path, embed, monkeypatch):
    """A run that goes on keeps the plan's backend, and the processes get its name."""
    file, out = write_lines(tmp_path / "a.txt"), tmp_path / "out"
    asked = []

    def get_backend(embedder):
        asked.append(embedder._settings.backend)
        return "tensorflow"

    monkeypatch.setattr(worker.Embedder, "get_backend", get_backend)
    done = embed([file], out, backend="auto")
    assert done.manifest["settings"]["backend"] == "tensorflow"
    assert embed([file], out, backend="auto").computed == embed([file], out).computed == 0
    assert asked == ["auto"]
    done = embed([file], tmp_path / "int8", backend="onnx", arithmetic="int8")
    assert done.manifest["settings"]["arithmetic"] in ("qint8_avx2", "qint8_avx512_vnni")


def test_another_encoder_has_another_digest(model_dir, tmp_path):
    """The weights and the graphs and settings of an export count, not a path."""
    copied = shutil.copytree(model_dir, tmp_path / "copied")
    assert encoder_digest(copied) == encoder_digest(model_dir, with_ranges=True)
    weights = copied / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    seen = {encoder_digest(model_dir), encoder_digest(copied)}
    (tmp_path / "onnx").mkdir()
    (tmp_path / "vocab.txt").write_text("a")
    for content in (b"1", b"2"):
        (tmp_path / "onnx" / "model.onnx").write_bytes(content)
        seen.add(encoder_digest(tmp_path))
    (tmp_path / "config_sentence_transformers.json").write_text("{}")
    assert len(seen | {encoder_digest(tmp_path)}) == 5


def test_a_fault_is_met_before_the_work(tmp_path, finished_run, embed, monkeypatch):
    """The last row of the last file, and nothing is embedded or removed."""
    file, out = finished_run
    before, other = files_of(out), tmp_path / "b.txt"
    other.write_bytes(b"a\nb\xff")
    monkeypatch.setattr(worker.Embedder, "embed", None)
    with pytest.raises(UserError, match="b.txt:2: not UTF-8"):
        embed([file, other], out, overwrite=True)
    assert files_of(out) == before
    other.write_bytes(b"")
    with pytest.raises(UserError, match="no text"):
        embed([other], tmp_path / "empty")


def test_an_id_that_occurs_twice_is_met_before_the_work(tmp_path, embed, monkeypatch):
    """Also in another file; ids are compared, not their hashes alone."""
    first, second = tmp_path / "a.jsonl", tmp_path / "b.csv"
    first.write_text('{"text": "x", "id": 1}\n{"text": "y", "id": "2"}\n')
    second.write_text("id,text\n3,x\n02,x\n1,z\n")
    paths, reading = [str(first), str(second)], Reading(id_column="id")
    with pytest.raises(UserError, match=r"b.csv:4: the id '1' of .*a.jsonl:1 again; .*id_column"):
        embed(paths, tmp_path / "out", reading=reading)
    second.write_text("id,text\n3,x\n02,x\n")
    monkeypatch.setattr(rows, "hash", lambda name: 7, raising=False)
    assert rows.measure(paths, reading).rows == 4
    # Without a column of ids the same texts may come again.
    assert rows.measure([str(first), str(first)], Reading()).rows == 4


def test_parts_of_long_texts_have_fewer(tmp_path, monkeypatch):
    """So memory does not grow with the length of texts."""
    monkeypatch.setattr(rows, "MOST_CHARACTERS", 100)
    file = write_lines(tmp_path / "a.txt", ["x" * 60, "y" * 60, "z" * 300, "", "b"])
    parts = list(rows.read_texts([str(file)], Reading(), 3))
    assert [(p.number, p.first_row, len(p.texts)) for p in parts] == [
        (0, 0, 2),
        (1, 2, 1),
        (2, 3, 2),
    ]


def start_here(request, workers, folder):
    """Returns what embeds in this process, whatever the number of workers."""
    return run.Processes(0, worker.Embedder, request.embedder_arguments(folder), "")


def write_table(path, records):
    """Writes a CSV file with a column of texts."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]))
        writer.writeheader()
        writer.writerows(records)
    return path


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_shards_become_one_file_with_the_columns(tmp_path, encoder, embed, form):
    """The rows of all shards, in order, and the columns beside them; the folder is gone."""
    records = [{"id": f"n{i}", "body": text, "stars": i} for i, text in enumerate(TEXTS)]
    file, target = tmp_path / f"a.{form}", tmp_path / "v.parquet"
    if form == "csv":
        write_table(file, records)
    else:
        records[3] |= {"stars": 0.5, "tags": ["x"]}
        file.write_text("\n".join(map(json.dumps, records)))
    settings = {"output_format": "parquet", "text_name": "body", "precision": "int8"}
    settings["reading"] = Reading(column="body", id_column="id", keep=True)
    done = embed([file], tmp_path / "v.parquet.unfinished", target=target, **settings)
    # `Index.from_embeddings` finds the texts by it.
    assert {shard["text"] for shard in done.manifest["shards"]} == {"body"}
    table = pq.read_table(target)
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, "v.parquet"]
    assert table["id"].to_pylist() == [record["id"] for record in records]
    assert table["body"].to_pylist() == TEXTS
    stars = [str(r["stars"]) if form == "csv" else float(r["stars"]) for r in records]
    assert table["stars"].to_pylist() == stars
    if form == "jsonl":
        assert table["tags"].to_pylist() == [None] * 3 + ['["x"]'] + [None] * 19
    about = json.loads(table.schema.metadata[b"official_cmlm"])
    ranges = {name: np.array(about["ranges"][name], np.float32) for name in ("low", "high")}
    encoder.ranges = Ranges(**ranges)
    expected = encoder.encode(TEXTS, precision="int8", on_long="ignore")
    codes = np.array(table["embedding"].to_pylist())
    assert np.abs(codes - expected.astype(int)).max() <= 1 and about["rows"] == 23


def test_shards_become_one_array(tmp_path, encoder, embed):
    """An array that appears while it runs is not replaced, and the shards stay."""
    file, target = write_lines(tmp_path / "a.txt"), tmp_path / "v.npy"
    out = tmp_path / "v.npy.unfinished"
    embed([file], out)
    target.write_bytes(b"mine")
    shard = out / "embeddings-00002.npy"
    good = shard.read_bytes()
    shard.write_bytes(bytes(len(good)))
    with pytest.raises(UserError, match="embeddings-00002.npy: damaged; delete .*unfinished to"):
        embed([file], out, target=target)
    shard.write_bytes(good)
    with pytest.raises(UserError, match="v.npy: was created by another process"):
        embed([file], out, target=target)
    assert target.read_bytes() == b"mine"
    assert embed([file], out, overwrite=True, target=target).computed == 0
    np.testing.assert_allclose(np.load(target), encoder.encode(TEXTS, on_long="ignore"), atol=1e-6)
    assert not out.exists()


@pytest.mark.parametrize("on_missing", ["skip", "empty"])
@pytest.mark.parametrize("suffix", ["npy", "jsonl", "parquet"])
def test_rows_without_a_text_are_left_out_or_empty(tmp_path, encoder, embed, suffix, on_missing):
    """They are counted; without a column of ids, ids are the numbers of rows in the input."""
    texts = [None, *TEXTS[:3], None, None, *TEXTS[3:7], None]
    first, second = tmp_path / "a.jsonl", tmp_path / "b.txt"
    first.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    write_lines(second, ["", TEXTS[7], "", TEXTS[8]])
    texts += [None, TEXTS[7], None, TEXTS[8]]
    target, reading = tmp_path / f"v.{suffix}", Reading(on_missing=on_missing)
    settings = {"text_name": "text"} if suffix == "jsonl" else {}
    done = embed(
        [first, second],
        tmp_path / "out",
        target=target,
        reading=reading,
        output_format=suffix,
        shard_rows=3,
        **settings,
    )
    kept = [(i, t or "") for i, t in enumerate(texts) if t or on_missing == "empty"]
    assert done.manifest["missing_texts"] == 6 and done.manifest["rows"] == len(kept)
    if suffix == "npy":
        vectors, ids_file = np.load(target), tmp_path / "v.ids.jsonl"
        assert ids_file.exists() == (on_missing == "skip")
        if on_missing == "skip":
            assert [*map(json.loads, ids_file.open())] == [number for number, _ in kept]
    elif suffix == "parquet":
        table = pq.read_table(target)
        vectors = np.array(table["embedding"].to_pylist())
        assert table["id"].to_pylist() == [number for number, _ in kept]
    else:
        rows = [json.loads(line) for line in target.open()]
        assert [(row["id"], row["text"]) for row in rows] == kept
        vectors = np.array([row["vector"] for row in rows])
    expected = encoder.encode([text for _, text in kept], on_long="ignore")
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    # A worker that begins anywhere counts the rows that were left out before.
    parts = list(read_texts([str(first), str(second)], reading, 3))
    for part in parts:
        again = read_texts([str(first), str(second)], reading, 3, start=part)
        assert next(again) == part


def test_json_lines_hold_id_text_columns_and_vector(tmp_path, encoder, embed):
    """`Index.from_embeddings` reads shards of them."""
    file, target, out = tmp_path / "a.csv", tmp_path / "v.jsonl", tmp_path / "out"
    write_table(file, [{"key": f"ä{i}", "body": text, "n": i} for i, text in enumerate(TEXTS)])
    settings = {"output_format": "jsonl", "text_name": "text"}
    settings["reading"] = Reading(column="body", id_column="key", keep=True)
    embed([file], out, **settings)
    index = Index.from_embeddings(out, encoder)
    embed([file], out, target=target, **settings)
    rows = [json.loads(line) for line in target.open(encoding="utf-8")]
    assert [list(row) for row in rows] == [["id", "text", "n", "vector"]] * 23
    assert [(row["id"], row["text"], row["n"]) for row in rows] == [
        (f"ä{i}", text, str(i)) for i, text in enumerate(TEXTS)
    ]
    vectors = np.array([row["vector"] for row in rows], np.float32)
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS, on_long="ignore"), atol=1e-6)
    (hit,) = index.read_hits([3], [1.0])
    assert (hit.id, hit.text, hit.metadata) == ("ä3", TEXTS[3], {"n": "3"})
    write_table(file, [{"body": "a", "vector": "b"}])
    reading = Reading(column="body", keep=True)
    with pytest.raises(UserError, match="a column 'vector' of its own"):
        embed([file], tmp_path / "more", **settings | {"reading": reading})


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_json_lines_hold_exactly_the_numbers(tmp_path, dtype):
    numbers = np.random.default_rng(0).normal(size=[50, 8]) * 10.0 ** np.arange(-36, 36, 9)
    vectors = numbers.astype(np.float32) if dtype == np.float32 else np.sign(numbers).astype(dtype)
    texts = rows.Texts(0, 7, texts=["\u2028"] * 50)
    worker._write_json_lines(tmp_path / "a.jsonl", vectors, texts, "text")
    read = [json.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().split(b"\n")[:-1]]
    assert [row["id"] for row in read] == [*range(7, 57)] and read[0]["text"] == "\u2028"
    assert np.array_equal(np.array([row["vector"] for row in read], dtype), vectors)


def test_standard_input_is_read(tmp_path, monkeypatch, model_dir, loaded_encoder, capsys):
    """A table by its --format; the file that keeps it is gone at the end."""
    monkeypatch.setattr(worker.Embedder, "get_backend", lambda embedder: "tensorflow")
    monkeypatch.setattr(run.Request, "start_processes", start_here)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    stream = io.TextIOWrapper(io.BytesIO(b"id,text\n1,a cat\n2,\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    flags = ("--input=-", "--format=csv", "--on_missing=empty", f"--to={tmp_path}/v.npy")
    status = binaries.call("export.embedding.embed", f"--model={model_dir}", *flags)
    shown = capsys.readouterr()
    assert status == 0 and "v.npy: 2 rows of 16 float32" in shown.out, shown.err
    assert "warning: 1 rows without a text have the vector of an empty one" in shown.err
    assert np.load(tmp_path / "v.npy").shape == (2, 16)
    assert not list((tmp_path / "temporary").iterdir())


def test_standard_input_is_known_again_by_its_content(tmp_path, embed):
    (tmp_path / "other").mkdir()
    first, again = (folder / run.STANDARD_INPUT for folder in (tmp_path, tmp_path / "other"))
    assert embed([write_lines(first)], tmp_path / "out").computed == 23
    assert embed([write_lines(again)], tmp_path / "out").computed == 0
    with pytest.raises(UserError, match="out: was begun with files"):
        embed([write_lines(again, ["a"])], tmp_path / "out")


def test_ids_of_other_vectors_do_not_stay(tmp_path, embed):
    table, target = write_table(tmp_path / "a.csv", [{"id": "x", "text": "a"}]), tmp_path / "v.npy"
    for column in ("id", ""):
        reading = Reading(id_column=column)
        embed([table], tmp_path / "out", overwrite=True, target=target, reading=reading)
        assert run.name_ids(target).exists() == bool(column)


@pytest.mark.parametrize("name", ["precious.txt", "embeddings-1.npy"])
def test_files_of_others_are_not_removed(finished_run, embed, name):
    file, out = finished_run
    (out / name).write_text("mine")
    before = files_of(out)
    with pytest.raises(UserError, match=f"out: holds {name}, which this program has not written"):
        embed([file], out, overwrite=True, dim=3)
    assert files_of(out) == before


def test_an_input_in_the_output_is_refused(tmp_path, embed):
    (tmp_path / "sub").mkdir()
    file = write_lines(tmp_path / "sub" / "a.txt")
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (tmp_path, tmp_path / "link"):
        with pytest.raises(UserError, match="an input inside of"):
            embed([file], folder, overwrite=True)
    assert file.exists()


@pytest.mark.parametrize("change", [{"shards": None}, {"columns": None}])
def test_a_damaged_manifest_is_refused(finished_run, embed, change):
    file, out = finished_run
    manifest = json.loads((out / "manifest.json").read_text()) | change
    manifest = {name: value for name, value in manifest.items() if value is not None}
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="manifest.json: damaged; delete .*out to start again"):
        embed([file], out)
    shutil.rmtree(out)
    assert embed([file], out).computed == 23


@pytest.mark.parametrize("form", ["npy", "parquet"])
def test_half_surrogates_of_ids_are_counted(tmp_path, embed, form):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a", "id": "x\\ud800y"}\n{"text": "b\\udfff", "id": "z"}\n')
    done = embed([file], tmp_path / "out", reading=Reading(id_column="id"), output_format=form)
    assert done.manifest["shards"][0]["mended_texts"] == 2


def test_columns_with_the_names_of_the_output_are_refused(tmp_path, embed):
    file = write_table(tmp_path / "a.csv", [{"text": "a", "embedding": "b"}])
    with pytest.raises(UserError, match="a column 'embedding' of its own"):
        embed([file], tmp_path / "out", reading=Reading(keep=True))


@pytest.mark.parametrize(
    "flags, says",
    [
        (["--to=v.csv"], "--to=v.csv: name a .parquet, .npy or .jsonl file"),
        ([], "either by --to or by --output_dir"),
        (["--to=v.npy", "--keep_columns"], "--keep_columns: .npy files have no columns"),
        (["--to=v.jsonl", "--embedding_precision=int8"], "one .jsonl file has no place for its"),
        (["--to=taken.npy", "--id_column=id"], "taken.ids.jsonl: exists already"),
        (["--to=data.csv.parquet"], "data.csv.parquet: exists already; pass --overwrite"),
        (["--to=data.csv.parquet", "--overwrite"], "is also an input"),
    ],
)
def test_impossible_outputs_are_refused(tmp_path, monkeypatch, model_dir, capsys, flags, says):
    write_table(tmp_path / "data.csv", [{"text": "a", "id": "1"}])
    for name in ("data.csv.parquet", "taken.ids.jsonl"):
        (tmp_path / name).write_bytes(b"mine")
    monkeypatch.chdir(tmp_path)
    file = "data.csv.parquet" if says == "is also an input" else "data.csv"
    status = binaries.call(
        "export.embedding.embed", f"--model_dir={model_dir}", f"--input={file}", *flags
    )
    assert status == 1 and says in capsys.readouterr().err


def test_without_a_model_the_english_one_that_ships_embeds(tmp_path, capsys):
    write_table(tmp_path / "data.csv", [{"text": "a"}])
    (tmp_path / "v.npy").write_bytes(b"mine")
    arguments = [f"--input={tmp_path}/data.csv", f"--to={tmp_path}/v.npy"]
    assert binaries.call("export.embedding.embed", *arguments) == 1
    taken, refused = capsys.readouterr().err.splitlines()
    assert taken.startswith("taking mini-en, an encoder for English; --model names another")
    assert "v.npy: exists already" in refused


@pytest.mark.long
def test_a_pipeline_of_beam_writes_the_same_files(tmp_path, model_dir, loaded_encoder):
    """Shards and manifest, over several files; parts that are there are not computed again."""
    pytest.importorskip("apache_beam", reason="an optional extra: requirements-beam.txt")
    reading = Reading(column="text", id_column="id")
    paths = []
    for name, texts in (("a", TEXTS[:8]), ("b", []), ("c", TEXTS[8:])):
        paths.append(tmp_path / f"{name}.csv")
        lines = "".join(f"{name}{i},{text}\n" for i, text in enumerate(texts))
        paths[-1].write_text(f"id,text\n{lines}")
    request = request_for(model_dir, paths, reading)
    run.run(request, tmp_path / "processes", 0)
    expected = vectors_of(tmp_path / "processes")
    flags = ["--runner=DirectRunner"]
    for computed in (23, 0):
        assert run.run(request, tmp_path / "beam", 0, beam=flags).computed == computed
        # Another process may have other last bits.
        np.testing.assert_allclose(vectors_of(tmp_path / "beam"), expected, atol=1e-5)
    wrong = dataclasses.replace(request, encoder_digest="0" * 16)
    with pytest.raises(UserError, match="has changed since the run"):
        run.run(wrong, tmp_path / "other", 0, beam=flags)


def call(command):
    """Runs a command to its end."""
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)


def command(model_dir, file, out, *more):
    flags = (f"--model_dir={model_dir}", f"--input={file}", f"--output_dir={out}")
    # ONNX Runtime's last bits may differ from run to run.
    flags += ("--shard_rows=40", "--backend=tensorflow")
    return [sys.executable, "-m", "export.embedding.embed", *flags, *more]


def test_ctrl_c_ends_it_in_the_midst_of_a_shard(tmp_path):
    """The bar has then moved by batches, and shows rate and time left."""
    file = write_lines(tmp_path / "a.txt", [f"Sentence {i} of many." for i in range(20_000)])
    terminal, end = os.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    flags = [f"--input={file}", "--model=mini-en", "--backend=onnx", "--shard_rows=20000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "export.embedding.embed", *flags, f"--to={tmp_path}/v.npy"],
        **{"cwd": ROOT, "stdout": subprocess.DEVNULL, "stderr": end, "start_new_session": True},
    )
    os.close(end)
    printed = b""
    while not re.search(rb"embedding:.* [1-9]\d*/20000 \[\d+:\d+<\d+:\d+, .*text/s", printed):
        printed += os.read(terminal, 1000)
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(OSError):
        # The end of the input: no process writes there any more.
        while more := os.read(terminal, 1000):
            printed += more
    os.close(terminal)
    assert process.wait() == 130
    assert b"interrupted; give the same command again" in printed and b"Traceback" not in printed
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.long
def test_killed_and_begun_again_it_writes_the_same_bytes(tmp_path, model_dir):
    """`kill -9` of the main process after some shards; its processes end too. Two workers."""
    file = write_lines(tmp_path / "a.txt", [f"{text} {i}" for i in range(300) for text in TEXTS])
    # The same name, as the manifest holds no name of the output.
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = call(command(model_dir, file, whole))
    assert "6900 rows of 16 float32 in 173 shards" in done.stdout
    kills = 0
    for least in (1, 30, 60):
        process = subprocess.Popen(
            command(model_dir, file, killed, "--workers=2"),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and len(list(killed.glob("parts/*.json"))) < least:
            time.sleep(0.01)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills == 3 and not (killed / "manifest.json").exists()
    done = call(command(model_dir, file, killed, "--workers=2"))
    assert "6900 rows" in done.stdout and " 6900 rows embedded now" not in done.stdout
    assert files_of(killed) == files_of(whole)


@pytest.mark.long
def test_a_mistake_that_only_a_process_sees_is_one_line(tmp_path, model_dir):
    file = write_lines(tmp_path / "a.txt")
    for flag, says in (
        ("--prompt_name=none", "no prompt 'none'"),
        ("--dim=17", "truncate_dim must be 1 to 16"),
    ):
        done = call(command(model_dir, file, tmp_path / flag, flag))
        assert done.returncode == 1 and says in done.stderr.splitlines()[-1], done.stderr
        assert "Traceback" not in done.stderr
