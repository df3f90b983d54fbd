"""Readers of pairs: aligned files of lines and tables, and what is said of broken ones."""

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.readers import ReadOptions, ReadReport
from data_prep.readers.pairs import PairSource, sources
from official_cmlm.errors import UserError

_LIMIT = ReadOptions(max_line_bytes=1000)
_FEW = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
# Separators that Python, but no file of lines, would end a line at.
_LINE = st.text("ab \u00a0\u2028\u0085\x0b漢😀", max_size=8)


def _read(source, header=False):
    report = ReadReport()
    return list(source.read(report, header, _LIMIT)), report


def _table(path, text, languages="en", header=False):
    path.write_text(text, encoding="utf-8")
    (source,) = sources([str(path)], [languages], "tsv")
    return _read(source, header)[0]


@_FEW
@given(pairs=st.lists(st.tuples(_LINE, _LINE), min_size=1, max_size=8), crlf=st.booleans())
def test_aligned_lines(tmp_path, pairs, crlf):
    """Line i of one file goes with line i of the other, whatever white space stands in them."""
    for side, name in enumerate(("a", "b")):
        end = "\r\n" if crlf else "\n"
        data = "".join(pair[side] + end for pair in pairs)
        (tmp_path / name).write_bytes(data.encode())
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    result, report = _read(*sources(paths, ["en", "zh-Hans"], "lines"))
    assert [pair.texts for pair in result] == [
        tuple(" ".join(text.split()) for text in pair) for pair in pairs
    ]
    assert {pair.languages for pair in result} == {("en", "zh-Hans")}
    assert [pair.where for pair in result] == [f"{paths[0]}:{i + 1}" for i in range(len(pairs))]
    assert all(pair.label is None for pair in result)
    assert report.files == 2 and report.lines == 2 * len(pairs)


def test_the_last_line_needs_no_end(tmp_path):
    """A file that ends without a newline has the same lines; gzip is read as it is."""
    (tmp_path / "a").write_text("one\ntwo")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"eins\nzwei\n"))
    result, _ = _read(PairSource((f"{tmp_path}/a", f"{tmp_path}/b.gz"), ("en", "de")))
    assert [pair.texts for pair in result] == [("one", "eins"), ("two", "zwei")]


@pytest.mark.parametrize("longer", [0, 1])
def test_files_of_different_length(tmp_path, longer):
    """The shorter file is named with the line that it lacks; what is there is yielded before."""
    paths = [f"{tmp_path}/a", f"{tmp_path}/b"]
    for i, path in enumerate(paths):
        with open(path, "w") as file:
            file.write("x\n" * (5 if i == longer else 3))
    pairs = PairSource(tuple(paths), ("en", "de")).read(ReadReport(), False, _LIMIT)
    assert [next(pairs).texts for _ in range(3)] == [("x", "x")] * 3
    with pytest.raises(UserError) as caught:
        next(pairs)
    message = str(caught.value)
    assert message.startswith(f"{paths[1 - longer]}: ends before line 4, ") and "\n" not in message
    assert all(path in message for path in paths)


def test_table(tmp_path):
    """Two texts and a label in each line, or no label; white space is made one space."""
    labelled = "A  cat\tan\u00a0animal \t neutral \nx\ty\tentailment\n"
    first, second = _table(tmp_path / "t", labelled, "de")
    assert first.texts == ("A cat", "an animal") and first.label == "neutral"
    assert first.languages == ("de", "de") and first.where == f"{tmp_path}/t:1"
    assert (second.texts, second.label) == (("x", "y"), "entailment")
    (plain,) = _table(tmp_path / "t", "x\t y\n", "en-de")
    assert plain.texts == ("x", "y") and plain.label is None
    assert plain.languages == ("en", "de")


def test_header(tmp_path):
    """The first line is left out if it names the columns; line numbers are those of the file."""
    text = "premise\thypo\tlabel\textra\na\tb\tneutral\n"
    (pair,) = _table(tmp_path / "t", text, header=True)
    assert (pair.texts, pair.where) == (("a", "b"), f"{tmp_path}/t:2")
    assert [p.texts for p in _table(tmp_path / "t", "a\tb\nc\td")] == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("line", "columns"), [("a", 1), ("", 1), ("a\tb\tneutral\tx", 4), ("a\tb\tneutral\t", 4)]
)
def test_numbers_of_columns(tmp_path, line, columns):
    """Two or three; anything else is named with file, line and what was found."""
    with pytest.raises(UserError) as caught:
        _table(tmp_path / "t", f"a\tb\tneutral\n{line}\n")
    assert str(caught.value) == (
        f"{tmp_path}/t:2: {columns} columns; a table of pairs has two texts and, if there is one, "
        "a label, with tabs between"
    )


def test_long_lines(tmp_path):
    """They are an error with file and line, in either format."""
    (tmp_path / "t").write_text("a\tb\n" + "c" * 2000)
    for paths in ((f"{tmp_path}/t",), (f"{tmp_path}/t",) * 2):
        with pytest.raises(UserError, match=f"{tmp_path}/t:2: the line is longer than 1000 bytes"):
            _read(PairSource(paths, ("en", "en")))


def test_sources():
    """Two files a source for lines, one for tables; a table may have a language for each text."""
    lines = sources(["a", "b", "c", "d"], ["en", "de", "en", "fr"], "lines")
    assert lines == [PairSource(("a", "b"), ("en", "de")), PairSource(("c", "d"), ("en", "fr"))]
    tables = sources(["a", "b"], ["en", "de-fr"], "tsv")
    assert tables == [PairSource(("a",), ("en", "en")), PairSource(("b",), ("de", "fr"))]


@pytest.mark.parametrize("form", ["lines", "tsv"])
@pytest.mark.parametrize("languages", [["en"], ["en", "de", "fr"]])
def test_numbers_of_files_and_languages(form, languages):
    """They must be the same; both are named."""
    message = f"--languages names {len(languages)} languages for 2 files of --input"
    with pytest.raises(UserError, match=message):
        sources(["a", "b"], languages, form)


def test_lines_need_two_files():
    """An odd number of files cannot be paired."""
    with pytest.raises(UserError, match="--input names 3 files; .* every two belong together"):
        sources(["a", "b", "c"], ["en", "de", "fr"], "lines")
