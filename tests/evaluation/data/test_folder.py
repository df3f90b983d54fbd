"""The data folder: line ends, encodings, missing files, and files that are not as published."""

import hashlib

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data import folder as data_module
from official_cmlm.evaluation.data.folder import DataFolder


def _lines(tmp_path, content, **options):
    (tmp_path / "file.txt").write_bytes(content)
    return DataFolder(tmp_path).lines(tmp_path / "file.txt", "a hint", **options)


BOTH = {"encodings": ("utf-8", "latin-1")}


@pytest.mark.parametrize(
    ("content", "options", "lines"),
    [
        # Other ends of lines may stand inside of a sentence.
        ("a\x0bb\u2028c\x85\rd\r\n\ne\n".encode(), {}, ["a\x0bb\u2028c\x85", "d", "", "e"]),
        # A byte order mark at the start goes, whatever follows it; one inside stays.
        ("\ufeffa\ufeff\nb".encode(), {}, ["a\ufeff", "b"]),
        (b"\xef\xbb\xbfcaf\xe9\n", BOTH, ["café"]),
        # UTF-8 comes first.
        ("é".encode("latin-1"), BOTH, ["é"]),
        ("é".encode(), BOTH, ["é"]),
        # A line of headings does not count; another first line stays.
        (b"id\tx\na\nb\n", {"header": "id\t"}, ["a", "b"]),
        (b"a\nb\n", {"header": "id\t"}, ["a", "b"]),
        (b"", {"header": "id\t"}, []),
    ],
)
def test_marks_encodings_and_headers(tmp_path, content, options, lines):
    assert _lines(tmp_path, content, **options) == lines


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_wrong_encoding(tmp_path, end):
    """The error has the file, the line and what was tried."""
    with pytest.raises(UserError, match=r"file\.txt: line 3 is not utf-8; download"):
        _lines(tmp_path, end.join([b"a", b"b", b"c\xe9", b""]))


def test_missing(tmp_path):
    """A missing file, a folder in its place and a file in the place of its folder."""
    data = DataFolder(tmp_path)
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none.txt", tmp_path, tmp_path / "file" / "x"):
        with pytest.raises(UserError, match="missing; a hint"):
            data.lines(path, "a hint")


def test_folders(tmp_path):
    """The first that exists; `.` is the root; an error names the first and the hint."""
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    (tmp_path / "a").write_text("a file is not a folder")
    data = DataFolder(tmp_path)
    assert data.folder("a", "b", "c", hint="h") == tmp_path / "b"
    assert data.folder("z", ".", hint="h").samefile(tmp_path)
    with pytest.raises(UserError, match=r"a: missing; the hint"):
        data.folder("a", "z", hint="the hint")
    with pytest.raises(UserError, match="--data_dir"):
        DataFolder(tmp_path / "none")


@pytest.fixture
def table(monkeypatch):
    """A table of known files with one entry and one pattern."""
    checksum = hashlib.sha256(b"a\nb\n").hexdigest()
    files = {"set/file.txt": {"rows": 2, "sha256": [checksum]}}
    table = {"files": files, "rows": {"set/dev-*.txt": 3}}
    monkeypatch.setattr(data_module, "_table", lambda: table)
    return checksum


def test_checksum(tmp_path, table):
    """A known file is told by its path; another content is warned of, or an error.

    Nothing is said of a file that is not known.
    """
    path = tmp_path / "senteval/downstream/set/file.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"a\nb\n")
    data = DataFolder(tmp_path)
    data.lines(path, "h")
    assert data.files == {"senteval/downstream/set/file.txt": table} and not data.warnings
    path.write_bytes(b"a\nx\n")
    changed = DataFolder(tmp_path)
    assert changed.lines(path, "h") == ["a", "x"]
    assert len(changed.warnings) == 1 and "checksum" in changed.warnings[0]
    strict = DataFolder(tmp_path, strict=True)
    (tmp_path / "other.txt").write_bytes(b"z")
    strict.lines(tmp_path / "other.txt", "h")
    assert strict.files == {"other.txt": hashlib.sha256(b"z").hexdigest()} and not strict.warnings
    # Also for the second that reads the file.
    for _ in range(2):
        with pytest.raises(UserError, match="checksum"):
            strict.lines(path, "h")


def test_patterns_of_names(tmp_path, table):
    """Files of a kind have a known number of rows; a translation's file is nobody's."""
    for name in ("set/dev-ja.txt", "xeval/de/set/file.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"z\n")
    data = DataFolder(tmp_path)
    data.lines(tmp_path / "xeval/de/set/file.txt", "h")
    assert not data.warnings
    for _ in range(2):
        data.lines(tmp_path / "set/dev-ja.txt", "h")
    assert len(data.warnings) == 1 and "1 rows, published with 3" in data.warnings[0]
    with pytest.raises(UserError, match="1 rows, published with 3"):
        DataFolder(tmp_path, strict=True).lines(tmp_path / "set/dev-ja.txt", "h")


def test_published_files():
    """The table that is shipped: relative paths, row counts, SHA-256."""
    table = data_module._table()
    entries = table["files"]
    assert entries and all(rows > 0 for rows in table["rows"].values())
    for name, entry in entries.items():
        assert not name.startswith("/") and entry.keys() <= {"rows", "sha256"}
        assert entry.get("rows", 0) >= 0
        for checksum in entry.get("sha256", []):
            assert len(checksum) == 64 and int(checksum, 16) >= 0


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("pawsx/fr/test_2k.tsv", 2000),
        ("pawsx/x-final/fr/dev_2k.tsv", 2000),
        ("x-final/de/translated_train.tsv", 49401),
        ("multi_simlex/translation.csv", 1888),
        ("multisimlex/ENG.csv", 1888),
        ("multi_simlex/ENG-SimLex.csv", 1888),
        ("multi_simlex/ENG-FRA.csv", None),
        ("pawsx/en/train.tsv", 49401),
        # Patterns of one folder are not those of others.
        ("pawsx/translate-train-de.tsv", None),
        ("amazon/en/train.tsv", None),
        ("xnli/test-sw.tsv", 5010),
        ("XNLI-1.0/xnli.dev.tsv", 37350),
        ("multinli_translated/multinli.train.en.tsv", None),
        ("simlex/SimLex-999.txt", 999),
    ],
)
def test_published_rows_of_tables(tmp_path, name, rows):
    """Under the publishers' names and folders; the line of headings is not a row."""
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text("id\ta\n1\tb\n")
    data = DataFolder(tmp_path)
    assert data.table(path, "", lambda line: line.startswith("id")) == ("id\ta", ["1\tb"])
    assert data.warnings == (
        [] if rows is None else [f"{path}: 1 rows, published with {rows}; download it again"]
    )
