"""Docstrings, comments, names and documents in plain English: no riddles.

A function's docstring begins with a verb in the third person, and nothing begins with a relative
pronoun or a preposition that leaves the reader to find the subject. A function's name says an
action or a thing, not a state: `join`, not `joined`. A variable's name is not `found`.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# First words that leave out the subject.
WITHOUT_SUBJECT = {"What", "Of", "That", "Those", "Whose", "Which", "By"}
# First words of a function's docstring beside verbs that end in "s".
ALSO_VERBS = {"Is", "See", "True", "Like", "Deprecated"}
EMPTY = {
    *("Defines the flags of the binary.", "Options of the suite.", "Settings."),
    *("Runs the benchmark.", "Starts the clock."),
}
# Phrases of no standard English, or that need a second reading.
_NO = "longer|more than|less than|fewer|better|worse|need|effect|way|doubt"
PHRASES = [
    rf"(?:is|are|be|was) no (?!{_NO})[a-z]+",
    "for want of",
    "to the bit",
    "gives? out",
    "that which",
    "by itself",
    "stands? (?:in|there|behind|before|beside)",
    "what (?:it|there) (?:is|are) of",
    "of what",
    "what is (?:said|asked|read) of",
]
PHRASE = re.compile(r"\b(?:" + "|".join(PHRASES) + r")\b")
# First words of names that say a state; then verbs that end like participles, and terms.
_IRREGULAR = (
    "begun bought brought chosen dealt done drawn fed found given gone held hidden kept known laid "
    "left lost made meant met paid said seen sent shown sold spent spoken struck taken taught told "
    "torn unread won written"
)
PARTICIPLE = re.compile(rf"_*(?:[a-z]+ed|{'|'.join(_IRREGULAR.split())})(?:_|$)")
NO_PARTICIPLE = re.compile(
    r"_*(?:(?:embed|exceed|feed|need|proceed|seed|speed)(?:_|$)|masked_(?:cross_entropy|lm|softmax)"
    r"|weighted_sum)"
)
# Tests are sentences: a relative pronoun leaves out their subject.
RIDDLE = re.compile(r"test_(?:that|those|what|which|whose)_")
# Decorators of functions that are read like attributes, whose docstrings may begin with a noun.
ATTRIBUTES = {"property", "cached_property", "functools.cached_property", "pytest.fixture"}


def _lacks_subject(text: str) -> bool:
    first = re.findall(r"\w+", text)[:2]
    is_question = re.match(r"\w+ is\b.*\?", text) is not None
    return bool(first) and (
        (first[0] in WITHOUT_SUBJECT and text.startswith(first[0]) and not is_question)
        or (first == ["As", "of"] and text.startswith("As of"))
    )


def _begins_with_a_verb(text: str) -> bool:
    first = re.match(r"[A-Z][a-z]+\b", text)
    return text.startswith("`") or (
        first is not None and (first[0] in ALSO_VERBS or re.fullmatch(r"\w{2,}s", first[0]))
    )


def _sentence_faults(text: str) -> Iterator[str]:
    if _lacks_subject(text.partition("\n")[0]):
        yield "no subject"
    if match := PHRASE.search(text):
        yield f"phrase {match[0]!r}"


def _is_plain_function(node: ast.AST) -> bool:
    return (
        isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and not node.name.startswith("test_")
        and not ATTRIBUTES & {ast.unparse(d).partition("(")[0] for d in node.decorator_list}
    )


def _name_faults(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields (line, fault) of the name that a function or an assignment gives."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        is_state = PARTICIPLE.match(node.name) and not NO_PARTICIPLE.match(node.name)
        if RIDDLE.match(node.name) or (is_state and _is_plain_function(node)):
            yield node.lineno, f"name {node.name}"
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "found":
        yield node.lineno, "name found"


def python_faults(source: str) -> Iterator[tuple[int, str]]:
    """Yields (line, fault) of the docstrings, comments and names of a file."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        yield from _name_faults(node)
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            faults = list(_sentence_faults(text))
            if "no subject" not in faults:
                if _is_plain_function(node) and not _begins_with_a_verb(text):
                    faults.append("no verb")
                elif text.partition("\n")[0] in EMPTY:
                    faults.append("says nothing")
            yield from ((node.body[0].lineno, f"{fault}: {text[:80]!r}") for fault in faults)
    # To split a file into tokens takes long: only where something after a # may be at fault.
    parts = (line.partition("#")[2].lstrip("#:! ") for line in source.splitlines() if "#" in line)
    if not any(fault for part in parts for fault in _sentence_faults(part.strip())):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#:! ").strip()
            yield from ((token.start[0], f"{f}: {text[:80]!r}") for f in _sentence_faults(text))


def document_faults(source: str) -> Iterator[tuple[int, str]]:
    """Yields (line, fault) of the text of a Markdown file, code blocks left out."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and (match := PHRASE.search(line)):
            yield number, f"phrase {match[0]!r}: {line.strip()[:80]!r}"


def _list_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("needs a git checkout, whose files it reads")
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def test_everything_is_in_plain_english():
    """Code, tests and documents; each fault with its file and line."""
    report = []
    for path in _list_files():
        name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        faults = python_faults(text) if path.suffix == ".py" else document_faults(text)
        report += [f"{name}:{line}: {fault}" for line, fault in faults]
    assert not report, "\n".join([f"{len(report)} faults", *report[:200]])


FAULTS = """\
\"\"\"Those of the suite.\"\"\"
class A:
    \"\"\"Settings.\"\"\"
def f():
    \"\"\"The number of rows.\"\"\"
    return 0  # Of the first.
@property
def g():
    \"\"\"Whose rows these are.\"\"\"
# By rows.
# There is no row, for want of data.
def _joined_rows():
    found = 0
def test_what_is_saved_is_loaded():
    pass
"""
PLAIN = """\
\"\"\"Numbers of rows.\"\"\"
def f():
    \"\"\"Returns the number of rows, of which none is empty.\"\"\"
    return 0  # The first row is enough.
@property
def g():
    \"\"\"The rows.\"\"\"
def test_rows():
    \"\"\"All rows are there.\"\"\"
# What is a row? There is no longer any.
def embed(masked_softmax, found=0):
    pass
@property
def kept():
    return 0
"""


def test_faults_are_seen():
    """The check above sees each fault once and blames nothing else."""
    assert [line for line, _ in python_faults(FAULTS)] == [1, 3, 5, 9, 12, 14, 13, 6, 10, 11]
    assert list(python_faults(PLAIN)) == []
    text = "It stands beside it.\n```\nof what\n```\n"
    assert [line for line, _ in document_faults(text)] == [1]
