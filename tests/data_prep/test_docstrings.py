"""The docstring corpus: what counts as prose, what is dropped, and the binary."""

from collections import Counter
from pathlib import Path

import pytest

from data_prep import docstrings
from data_prep.docstrings import extract
from data_prep.readers.docstrings import prose
from official_cmlm.common.errors import UserError
from tests.data_prep.binaries import run_binary

PROSE = "This sentence is the first of two. This one is the second, and it says a little more."


def _package(root: Path, name: str, source: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)


def _extract(root, **arguments):
    counters = Counter()
    return list(extract([root], counters, **arguments)), counters


@pytest.mark.parametrize(
    ("text", "paragraphs"),
    [
        ("Calls :func:`~a.b.run` on ``x``, *not* on `the list <#anchor>`_ of **all** values.",
         ["Calls a.b.run on x, not on the list of all values."]),
        ("It spans\nthree lines\nof text.\n\nAnd then another one.",
         ["It spans three lines of text.", "And then another one."]),
        ("Args:\n  x: The values to use.\n\nThe text goes on after it.",
         ["The text goes on after it."]),
        ("Parameters\n----------\nx : int\n    Number.\n\nNotes\n-----\n\nThe text goes on here.",
         ["The text goes on here."]),
    ],
)  # fmt: skip
def test_prose_is_found_in_markup(text, paragraphs):
    assert prose(text) == paragraphs


@pytest.mark.parametrize(
    "dropped",
    [
        ">>> run(1)\nThe result is shown here.",
        "    An indented block of example code.",
        "```\nA fence holds this text here.\n\nAnd this text as well.\n```",
        "Parameters\n----------\nx\nThe values that are to be used.",
        "See Also\n--------\nother : The function that does the rest.",
        "Args:\n  x: The values that are to be used.\n\n    More about the very same values.",
        "Args:\nx: The values.\n",
        ":param x: The values that are to be used.\n:returns: Something of no importance.",
        ".. note:: The directive has a text.\n   It goes on here.",
        "- The list has an item.\n- The list has another one.",
        "| A table | has some cells. |",
        "https://example.org/a/b/c/d.",
        "run(first, second) -> This is a signature.",
        "too few words.",
        "there is no full stop at the end",
        "1 2 3 4 5 are numbers.",
        "été où ça garçon déjà à côté là même.",
        "The code follows as usual::\n\n    x = 1",
        "A title is no paragraph.\n========================",
    ],
)
def test_markup_and_code_are_not_prose(dropped):
    assert prose(dropped) == []
    before = "The paragraph above it is kept."
    assert prose(f"{before}\n\n{dropped}") == [before]


def test_documents_of_a_package(tmp_path):
    source = f'"""{PROSE} In the module."""\nclass A:\n  def f(self):\n    """Short one. So."""\n'
    source += "if True:\n  class B:\n    async def g(self):\n"
    words = "The text of the method differs much. It has other words in every one of its places."
    source += f'      """{words}"""\n'
    _package(tmp_path, "pkg/__init__.py", source)
    documents, counters = _extract(tmp_path)
    assert [document.id for document in documents] == ["pkg", "pkg:B.g"]
    assert documents[0].paragraphs == [f"{PROSE} In the module."]
    assert (counters["documents"], counters["sentences"]) == (2, 5)


def test_near_identical_docstrings_are_dropped(tmp_path):
    long = " ".join(f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(60))
    for name, text in (
        ("a", f"{long}. The end."),
        ("b", f"{long.upper()}! The 'end'."),
        ("c", f"{long}. And not the end."),
        ("d", f"{' '.join(reversed(long.split()))}. The end."),
    ):
        _package(tmp_path, f"{name}.py", f'"""{text}"""\n')
    documents, counters = _extract(tmp_path)
    assert [document.id for document in documents] == ["a", "d"]
    assert counters["near_identical"] == 2


def test_files_left_out(tmp_path):
    other = "Here is another module with quite different words. Nothing of it was seen before."
    _package(tmp_path, "good.py", f'"""{PROSE}"""')
    for name in ("x_pb2.py", "test_x.py", "tests/x.py", "big.py", "no.txt"):
        _package(tmp_path, name, f'"""{other}"""')
    _package(tmp_path, "big.py", f'"""{other}"""\n' + "#" * 2_000_000)
    _package(tmp_path, "broken.py", f'"""{other}"""\nprint "x"')
    (tmp_path / "bytes.py").write_bytes(b'"""\xff\xfe"""\0')
    documents, counters = _extract(tmp_path)
    assert [document.id for document in documents] == ["good"]
    assert counters["unparsable"] == 2


def test_packages_take_turns_under_a_cap(tmp_path):
    for package in "ab":
        for number in range(5):
            word = package * 3 + "xyzuv"[number]
            text = " ".join(word + chr(97 + n) for n in range(16)) + ". And the end."
            _package(tmp_path, f"{package}/m{number}.py", f'"""{text}"""')
    whole, counters = _extract(tmp_path)
    assert [document.id for document in whole[:4]] == ["a.m0", "b.m0", "a.m1", "b.m1"]
    half, _ = _extract(tmp_path, max_parse_mb=counters["bytes_total"] / 2e6)
    assert [document.id for document in half] == ["a.m0", "b.m0", "a.m1", "b.m1", "a.m2"]


def test_root_that_is_not_a_directory(tmp_path):
    with pytest.raises(UserError, match="none: not a directory of Python packages; check --roots"):
        _extract(tmp_path / "none")


def test_binary_without_prose_writes_nothing(tmp_path):
    with pytest.raises(UserError, match="no docstring holds enough prose"):
        run_binary(docstrings, roots=tmp_path, output=tmp_path / "x.jsonl")
    assert list(tmp_path.iterdir()) == []
