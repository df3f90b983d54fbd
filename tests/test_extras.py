"""Packages of extras: which they are, and what is said where one is missing."""

import ast
import re
import sys
import tomllib
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest

from data_prep.readers import Counts, ReadOptions, read_documents
from data_prep.sentences import split_paragraphs
from data_prep.stages.language_id import identify
from official_cmlm.errors import UserError
from official_cmlm.extras import check_extra
from official_cmlm.tokenization import BytePairVocabulary

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Imported where they are present, and neither asked for nor needed by anything of the project.
OTHERS = {"langchain_core", "llama_index", "mteb", "sentence_transformers", "torch"}
READING = ReadOptions(), Counts()


def distribution(requirement):
    """`tf_keras>=2` -> `tf-keras`."""
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def brought(extra):
    """Distributions of an extra, those of extras that it includes among them."""
    found = set()
    for requirement in PROJECT["optional-dependencies"][extra]:
        if own := re.fullmatch(r"official-cmlm\[(.+)\]", requirement):
            found |= {name for part in own[1].split(",") for name in brought(part)}
        else:
            found.add(distribution(requirement))
    return found


def test_a_missing_package_is_a_line_that_says_what_to_install(monkeypatch):
    check_extra("data", "json", "pytest")
    monkeypatch.setitem(sys.modules, "pycld2", None)
    with pytest.raises(UserError, match=r'^the package pycld2 is .*checkout.*"\.\[data\]"$'):
        check_extra("data", "json", "pycld2")


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("sentencex", "data", lambda: split_paragraphs(["A."], "en", Counter())),
        ("pycld2", "data", lambda: identify("A.")),
        ("tensorflow_datasets", "data", lambda: list(read_documents(["tfds:x"], *READING))),
        ("keras_hub", "export", lambda: BytePairVocabulary(["a"], []).graph_tokenizer()),
    ],
)
def test_a_missing_package_is_named_where_it_is_needed(monkeypatch, package, extra, use):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"{package} is not installed.*\[{extra}\]"):
        use()


def _imports_and_checks():
    """Yields (file, imported top-level package, packages and extras checked in that function)."""
    for folder in ("official_cmlm", "data_prep", "experiments", "export"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for function in ast.walk(tree):
                if not isinstance(function, ast.FunctionDef | ast.Module):
                    continue
                nodes = list(ast.walk(function))
                checked = {
                    (node.args[0].value, argument.value)
                    for node in nodes
                    if isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id == "check_extra"
                    for argument in node.args[1:]
                }
                for node in nodes:
                    if isinstance(node, ast.Import):
                        names = [alias.name for alias in node.names]
                    elif isinstance(node, ast.ImportFrom) and not node.level:
                        names = [node.module]
                    else:
                        continue
                    for name in names:
                        yield path.relative_to(ROOT).as_posix(), name.partition(".")[0], checked


def test_every_import_is_of_a_dependency_or_an_extra():
    """Nothing is imported that only some other package happens to bring."""
    providers = metadata.packages_distributions()
    core = {distribution(requirement) for requirement in PROJECT["dependencies"]}
    extras = set().union(*(brought(e) for e in PROJECT["optional-dependencies"] if e != "dev"))
    declared = core | extras
    missing = set()
    for path, package, _ in _imports_and_checks():
        if package in sys.stdlib_module_names or package in OTHERS or package == "official_cmlm":
            continue
        found = providers.get(package, [package])
        names = {name.lower().replace("_", "-") for name in found}
        if not names & declared:
            missing.add((path, package))
    assert sorted(missing) == []


def test_checked_packages_belong_to_the_extra_that_is_named():
    providers = metadata.packages_distributions()
    named = {check for _, _, checked in _imports_and_checks() for check in checked}
    assert {"beam", "data", "demo", "evaluate", "export", "report", "serve", "train"} == {
        extra for extra, _ in named
    }
    for extra, package in named:
        found = providers.get(package, [package])
        names = {name.lower().replace("_", "-") for name in found}
        assert names & brought(extra), (extra, package)


def test_all_brings_every_extra_but_the_developers():
    assert brought("all") == set().union(
        *(brought(e) for e in PROJECT["optional-dependencies"] if e not in ("all", "dev"))
    )
