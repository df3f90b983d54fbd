"""The binary that makes records: what it writes, and what it leaves behind when it fails."""

import pytest

from data_prep import create_documents
from official_cmlm.common.errors import UserError
from official_cmlm.records.manifest import load_manifest, load_records_vocabulary
from tests.conftest import make_documents
from tests.data_prep.binaries import names_in, run_binary
from tests.inputs.pipelines import read_by_hand


@pytest.fixture
def run(tmp_path, vocabulary):
    """Runs the binary in this process: writes tmp_path/out from tmp_path/text.txt."""
    vocabulary.save(tmp_path)
    text = "\n\n".join(document.paragraphs[0] for document in make_documents(30))
    (tmp_path / "text.txt").write_text(text)

    def run(**values):
        defaults = {
            "input": tmp_path / "text.txt",
            "vocab_file": tmp_path / "vocab.txt",
            "output_dir": tmp_path / "out",
        }
        run_binary(create_documents, **(defaults | values))

    return run


def test_files_that_are_written(run, tmp_path, vocabulary, capsys):
    """Shards, vocabulary and a manifest that names them; one line of summary."""
    run(shard_mb=0.004, max_sentences=4, keep_text=True)
    folder = tmp_path / "out"
    manifest = load_manifest(folder, "documents")
    assert load_records_vocabulary(folder, manifest) == vocabulary
    assert manifest.keep_text and manifest.counters == {} and manifest.languages.keys() == {"en"}
    assert max(len(sentences) for sentences, _ in read_by_hand(folder)) == 4
    shards = [f"documents-{i:05d}.tfrecord" for i in range(len(manifest.shards))]
    assert len(shards) > 1
    others = ["prepare.json", "vocab.json", "vocab.txt"]
    assert names_in(folder) == ["balance.md", "dataset.json", *shards, *others]
    assert [shard.name for shard in manifest.shards] == shards
    assert f"30 documents, {manifest.sentences} sentences" in capsys.readouterr().out


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else(run, tmp_path, overwrite):
    """It is never touched; an empty folder may be used."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious").write_text("x")
    with pytest.raises(UserError, match="out: exists and holds no records"):
        run(overwrite=overwrite)
    assert names_in(out) == ["precious"]
    (out / "precious").unlink()
    run(overwrite=overwrite)
    assert load_manifest(out, "documents").documents == 30


def test_a_link_to_a_folder_of_records(run, tmp_path):
    """Records that a symbolic link leads to are replaced; the link stays."""
    run(output_dir=tmp_path / "elsewhere")
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    run(overwrite=True, max_sentences=4)
    manifest = load_manifest(tmp_path / "elsewhere", "documents")
    assert (tmp_path / "out").is_symlink() and manifest.records > 30
    assert not any(name.endswith(".partial") for name in names_in(tmp_path))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_sentences": 50}, r"no usable sentence in 1 file\(s\)"),
        ({"input": "none"}, "none: no such file"),
        ({"max_line_mb": 0.00001}, "text.txt"),
    ],
)
def test_nothing_is_left_after_a_failure(run, tmp_path, values, message):
    """Nothing exists under the final name or beside it."""
    with pytest.raises(UserError, match=message):
        run(**values)
    assert names_in(tmp_path) == ["text.txt", "vocab.json", "vocab.txt"]


def test_languages_of_files(run, tmp_path):
    """A language before a pattern is that of the documents that do not name their own."""
    for name in ("en", "de"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("A cat sat.\n\nA dog ran.")
    (tmp_path / "de" / "b.jsonl").write_text('{"text": "A. B.", "lang": "fr"}\n{"text": "C."}')
    run(input=f"en:{tmp_path}/en/*.txt,de:{tmp_path}/de")
    assert load_manifest(tmp_path / "out").languages == {"en": 2, "de": 3, "fr": 1}


def test_exclude(run, tmp_path, capsys):
    """Evaluation sentences are left out and counted; a binary file stops the run, or warns."""
    (tmp_path / "text.txt").write_text("The cat sat. A dog ran! A bird flew.\n\nThe tree was old.")
    (tmp_path / "sts.tsv").write_text("4.5\ta dog ran\tno such dog\n")
    (tmp_path / "a.zip").write_bytes(b"PK\0\0")
    run(exclude=tmp_path / "sts.tsv", keep_text=True)
    manifest = load_manifest(tmp_path / "out", "documents")
    assert (manifest.sentences, manifest.counters) == (3, {"exclude/sentence": 1})
    assert manifest.counters_by_language == {"exclude/sentence": {"en": 1}}
    assert len(read_by_hand(tmp_path / "out")) == 3
    both = f"{tmp_path}/sts.tsv,{tmp_path}/a.zip"
    with pytest.raises(UserError, match=r"none: no such file.*check --exclude"):
        run(exclude=f"{tmp_path}/none", overwrite=True)
    capsys.readouterr()
    run(exclude=both, overwrite=True, on_error="skip")
    manifest = load_manifest(tmp_path / "out", "documents")
    assert manifest.counters == {"exclude/sentence": 1, "exclude/unread_file": 1}
    assert f"warning: not excluded: {tmp_path}/a.zip: looks like" in capsys.readouterr().err


def test_documents_without_text(run, tmp_path, capsys):
    """The summary and the manifest say how many there were."""
    (tmp_path / "a.jsonl").write_text('{"text": " "}\n{"text": "A cat sat."}\n{"text": []}\n')
    run(input=tmp_path / "a.jsonl")
    assert load_manifest(tmp_path / "out", "documents").counters == {"read/without_text": 2}
    assert ", 2 document(s) without text left out" in capsys.readouterr().out
