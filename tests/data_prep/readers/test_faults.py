"""One broken file among many, of each kind: named, counted, and fatal or skipped as was asked."""

import gzip
import json

import pytest

from data_prep import create_pairs
from data_prep.counts import guard_faults
from data_prep.readers import Counts, ReadOptions, read_documents
from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.records.manifest import load_manifest
from tests.data_prep.binaries import run_binary
from tests.data_prep.readers.crawl_pages import record

_WET = record("conversion", b"Text of a page.", "http://a/1")
_OPTIONS = {"max_line_bytes": 100_000, "max_expanded_bytes": 200_000}
# Name of the file -> (what is in it, part of the message, documents that are read before).
FAULTS = {
    "missing.txt": (None, "no such file", 0),
    # A link to itself, which not even an administrator can open.
    "itself.txt": ("itself.txt", "cannot be opened .*; check its permissions", 0),
    "cut.txt.gz": (gzip.compress(b"First.\n\nSecond.\n\nThird.")[:-4], "gzip stream ends early", 2),
    "long.txt": (b"First.\n\n" + b"x" * 100_001, "longer than 100000 bytes", 1),
    "utf16.txt": ("Text.".encode("utf-16"), "UTF-16", 0),
    "broken.jsonl": (b'{"text": "A."}\n{"text": \n{"text": "B."}\n', "jsonl:2: not valid JSON", 1),
    "cut.wet.gz": (
        gzip.compress(_WET) * 2 + gzip.compress(_WET)[:-20],
        "the gzip stream ends early after record 2; fetch the file again",
        2,
    ),
    "source.py": (b'"""Doc."""\nclass\n', "is not Python source", 0),
}


@pytest.fixture
def files(tmp_path):
    """Writes the broken file of that name between two good ones."""

    def files(name):
        content = FAULTS[name][0]
        for good in ("a.txt", "z.txt"):
            (tmp_path / good).write_text(f"Good {good[0]}.")
        if isinstance(content, str):
            (tmp_path / name).symlink_to(content)
        elif content is not None:
            (tmp_path / name).write_bytes(content)
        return [f"{tmp_path}/a.txt", f"{tmp_path}/{name}", f"{tmp_path}/z.txt"]

    return files


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_file(files, name):
    """It is named, and what was read before it yielded; with skip it is left out and counted."""
    paths, read = files(name), []
    with pytest.raises(UserError, match=FAULTS[name][1]) as caught:
        for document in read_documents(paths, ReadOptions(**_OPTIONS), Counts()):
            read.append(document)
    assert str(caught.value).startswith(paths[1]) and "\n" not in str(caught.value)
    assert read[0].paragraphs == ["Good a."] and len(read) == 1 + FAULTS[name][2]
    report = Counts()
    read = list(read_documents(paths, ReadOptions(**_OPTIONS, on_error="skip"), report))
    assert [read[0].paragraphs, read[-1].paragraphs] == [["Good a."], ["Good z."]]
    assert len(read) == 2 + FAULTS[name][2]
    assert report.counters == {"read/unreadable_file": 1}
    assert report.warnings() == [f"skipped: {caught.value}"]
    assert report.describe_skipped(3) == ", 1 of 3 file(s) skipped"


def test_nothing_but_faults(files):
    """Only faults are an error in either case; a good file is enough, or text before a fault."""
    options = ReadOptions(**_OPTIONS, on_error="skip")
    bad = [files(name)[1] for name in ("utf16.txt", "missing.txt")]
    with pytest.raises(
        UserError, match=r"none of 2 file\(s\) could be read to its end; the first: "
    ):
        list(read_documents(bad, options, Counts()))
    assert len(list(read_documents([*bad, files("long.txt")[0]], options, Counts()))) == 1
    bad = [files(name)[1] for name in ("long.txt", "broken.jsonl")]
    assert len(list(read_documents(bad, options, Counts()))) == 2


def test_errors_of_the_consumer_are_not_swallowed():
    """Only errors of a reader are faults of its file."""
    items = guard_faults("a", iter([1, 2]), "skip", report := Counts())
    with pytest.raises(UserError, match="mine"):
        for _ in items:
            raise UserError("mine")
    assert report.files_failed == {}


def test_pairs_of_the_rest(tmp_path, vocabulary, capsys):
    """A source of pairs is skipped whole; row-aligned tables are one source."""
    vocabulary.save(tmp_path)
    (tmp_path / "a.tsv").write_text("the cat\tthe dog\nthe cat\ta bird\n")
    (tmp_path / "b.tsv").write_text("the cat\tthe dog\nthe cat\n")

    def run(names, **values):
        values["input"] = ",".join(f"{tmp_path}/{name}" for name in names)
        values |= {"vocab_file": tmp_path / "vocab.txt", "output_dir": tmp_path / "out"}
        status = run_binary(create_pairs, "--format=tsv", "--overwrite", **values)
        manifest = load_manifest(tmp_path / "out", "pairs")
        assert status == (cli.EXIT_SKIPPED if manifest.counters else 0)
        return manifest

    two = ["b.tsv", "a.tsv"]
    with pytest.raises(UserError, match="b.tsv:2: 1 columns"):
        run(two, languages="en,de")
    manifest = run(two, languages="en,de", on_error="skip")
    assert manifest.documents == 3 and manifest.counters == {"read/unreadable_file": 1}
    output = capsys.readouterr()
    assert "read/unreadable_file 1" in output.out and "warning: skipped: " in output.err
    manifest = run(two, languages="en,de", on_error="skip", row_aligned=True)
    assert manifest.documents == 1 and manifest.counters == {"read/unreadable_file": 1}
    assert run(["a.tsv"], languages="en").counters == {}
    (tmp_path / "b.tsv").write_text("the cat\n")
    for names, values in ((two, {"row_aligned": True}), (two[:1], {})):
        with pytest.raises(UserError, match=r"none of 1 file\(s\) .*b.tsv:1: 1 columns"):
            run(names, languages="en,de"[: 3 * len(names) - 1], on_error="skip", **values)


def test_reports_of_several_workers():
    """Merged counts, through JSON too, are those of one worker that read all files."""
    parts, whole = [], Counts()
    for name in "ab":
        part = Counts(files=1, lines=2, bytes=3, documents_read=4, sentences=5)
        for report in (part, whole):
            report.empty_files.append(name)
            report.add_not_utf8("shared", 6)
            report.file_fault(name, "broken")
            report.lengths[7] += 1
            report.record_fault("shared", f"record of {name}", "skip")
            report.counters["read/other"] += 7
            report.add_exclusion_faults([name])
            report.counters.drop("read/x", "deu")
        parts.append(Counts.from_json(json.loads(json.dumps(part.to_json()))))
    parts[0].merge(parts[1])
    whole.files, whole.lines, whole.bytes, whole.documents_read, whole.sentences = 2, 4, 6, 8, 10
    assert parts[0] == whole and parts[0].counters.languages == {"read/x": {"de": 2}}
    assert "skipped a record: record of a (and 1 more of this file)" in whole.warnings()
