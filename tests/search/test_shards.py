"""`Index.from_embeddings`: what `export.embedding.embed` writes, read as it says, or refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.search import Index
from official_cmlm.vectors.embeddings import Ranges, quantize
from tests.conftest import change_json
from tests.search.toy_encoder import WIDTH, Words

TEXTS = [f"sentence number {i} about thing {i * i}" for i in range(50)]


def _write_embeddings(folder, precision="float32", form="npy", ids=None):
    """Writes the folder as `export.embedding.embed` describes it in docs/encoding.md."""
    folder.mkdir()
    vectors = Words().encode(TEXTS).astype(np.float32)
    ranges = Ranges.of(vectors)
    codes = quantize(vectors, precision, ranges)
    if precision in ("int8", "uint8"):
        ranges.save(folder)
    shards = []
    for number, start in enumerate(range(0, len(TEXTS), 20)):
        numbers = list(map(str, range(len(TEXTS))))
        part = slice(start, start + 20)
        rows, names, texts = codes[part], (ids or numbers)[part], TEXTS[part]
        entry = {"file": f"embeddings-{number:05d}.{form}", "rows": len(rows)}
        if form == "parquet":
            entry["text"] = "body"
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
            topics = [f"t{i}" for i in range(len(names))]
            columns = {"id": names, "body": texts, "topic": topics, "embedding": vectors}
            pq.write_table(pa.table(columns), folder / entry["file"])
        else:
            np.save(folder / entry["file"], rows)
            if ids:
                entry["ids"] = f"ids-{number:05d}.jsonl"
                lines = "".join(json.dumps(name) + "\n" for name in names)
                (folder / entry["ids"]).write_text(lines)
        shards.append(entry)
    manifest = {"rows": len(TEXTS), "columns": codes.shape[1], "precision": precision}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"shards": shards}))
    return folder


@pytest.mark.parametrize("form", ["npy", "parquet"])
@pytest.mark.parametrize("precision", ["float32", "int8", "uint8", "binary", "ubinary"])
def test_embeddings_become_an_index(tmp_path, precision, form):
    names = [f"n{i}" for i in range(len(TEXTS))]
    folder = _write_embeddings(tmp_path / "vectors", precision, form, names)
    of_index = "bits" if "binary" in precision else "float32"
    index = Index.from_embeddings(folder, Words(), of_index)
    built = Index.build(Words(), TEXTS, of_index, ids=names)
    assert index.ids == names
    # The codes are half of one of 255 steps off.
    np.testing.assert_allclose(index.vectors(), built.vectors(), atol=0.02)
    assert [hit.id for hit in index.search(TEXTS[7], 3)] == [
        hit.id for hit in built.search(TEXTS[7], 3)
    ]
    if form == "parquet":
        hit = index.search(TEXTS[7], 1)[0]
        assert (hit.text, hit.metadata) == (TEXTS[7], {"topic": "t7"})


def test_ids_are_numbers_or_all_different(tmp_path):
    index = Index.from_embeddings(_write_embeddings(tmp_path / "vectors"), Words(), "int8", True)
    assert index.ids == [str(i) for i in range(len(TEXTS))]
    assert index.search(TEXTS[33], 1)[0].id == "33"
    folder = _write_embeddings(tmp_path / "equal", ids=["same"] * len(TEXTS))
    with pytest.raises(UserError, match="'same' is there twice"):
        Index.from_embeddings(folder, Words())


def _change_manifest(**values):
    return lambda folder: change_json(folder / "manifest.json", **values)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "no finished embeddings"),
        (lambda folder: (folder / "embeddings-00001.npy").unlink(), "00001.npy: cannot be read"),
        (lambda folder: np.save(folder / "embeddings-00001.npy", np.ones([20, 3])), "20 rows of"),
        (
            lambda folder: np.save(folder / "embeddings-00001.npy", np.full([20, WIDTH], np.nan)),
            r"embeddings-00001.npy: damaged \(it holds NaN or infinity\)",
        ),
        (
            lambda folder: np.save(folder / "embeddings-00001.npy", np.full([20, WIDTH], "a")),
            "embeddings-00001.npy: damaged",
        ),
        (_change_manifest(rows=0, shards=[]), "has no rows; embed at least one text"),
        (_change_manifest(rows=51), "do not have its 51 rows"),
        (_change_manifest(shards=[{}]), "damaged"),
        (_change_manifest(shards=[{"file": "../x.npy", "rows": 50}]), "not a file inside"),
        (_change_manifest(precision="int8"), "no ranges"),
        (_change_manifest(precision="ubinary"), "precision='bits'"),
        (_change_manifest(columns=WIDTH - 1), "dimensions"),
    ],
)
def test_damaged_embeddings_are_one_line(tmp_path, damage, message):
    folder = _write_embeddings(tmp_path / "vectors")
    damage(folder)
    with pytest.raises(UserError, match=message) as caught:
        Index.from_embeddings(folder, Words())
    assert "\n" not in str(caught.value)
