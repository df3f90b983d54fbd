"""Packages of extras: which they are, and what is said where one is missing."""

import ast
import re
import sys
import tomllib
from collections import Counter
from importlib import metadata

import pytest

from data_prep.readers import Counts, ReadOptions, read_documents
from data_prep.sentences import split_paragraphs
from data_prep.stages.language_id import identify
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import BEFORE_PYTHON_3_14, check_extra
from tests.binaries import ROOT
from tests.source_files import files, imports_of, name_of, tree_of

FOLDERS = ("official_cmlm", "data_prep", "experiments", "export")
PROVIDERS = metadata.packages_distributions()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Imported where they are present, and neither asked for nor needed by anything of the project.
OTHERS = {"langchain_core", "llama_index", "mteb", "sentence_transformers", "torch"}
READING = ReadOptions(), Counts()


def distribution(requirement):
    """`tf_keras>=2` -> `tf-keras`."""
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def packages_of(extra):
    """Distributions of an extra, those of extras that it includes among them."""
    packages = set()
    for requirement in PROJECT["optional-dependencies"][extra]:
        if own := re.fullmatch(r"official-cmlm\[(.+)\]", requirement):
            packages |= {name for part in own[1].split(",") for name in packages_of(part)}
        else:
            packages.add(distribution(requirement))
    return packages


def test_a_missing_package_is_a_line_that_says_what_to_install(monkeypatch):
    check_extra("data", "json", "pytest")
    monkeypatch.setitem(sys.modules, "pycld2", None)
    with pytest.raises(UserError, match=r'^the package pycld2 is .*checkout.*"\.\[data\]"$'):
        check_extra("data", "json", "pycld2")
    monkeypatch.setattr(sys, "version_info", (3, 14))
    with pytest.raises(UserError, match="pycld2 is not installed; it needs Python 3.13"):
        check_extra("data", "pycld2")


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("sentencex", "data", lambda: split_paragraphs(["A."], "en", Counter())),
        ("pycld2", "data", lambda: identify("A.")),
        ("tensorflow_datasets", "data", lambda: list(read_documents(["tfds:x"], *READING))),
    ],
)
def test_a_missing_package_is_named_where_it_is_needed(monkeypatch, package, extra, use):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"{package} is not installed.*\[{extra}\]"):
        use()


def brings(package, distributions):
    """Returns whether one of some distributions brings a package, by the name that is imported."""
    names = PROVIDERS.get(package, [package])
    return not {name.lower().replace("_", "-") for name in names}.isdisjoint(distributions)


def test_every_import_is_of_a_dependency_or_an_extra():
    """Nothing is imported that only some other package happens to bring."""
    declared = {distribution(requirement) for requirement in PROJECT["dependencies"]}
    declared |= set().union(*map(packages_of, PROJECT["optional-dependencies"]))
    known = {*sys.stdlib_module_names, *OTHERS, *FOLDERS}
    used = {
        (name.partition(".")[0], name_of(path))
        for path in files(*FOLDERS)
        for name in imports_of(path)
    }
    assert [row for row in used if row[0] not in known and not brings(row[0], declared)] == []


def test_checked_packages_belong_to_the_extra_that_is_named():
    named = {
        (node.args[0].value, argument.value)
        for path in files(*FOLDERS)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check_extra"
        for argument in node.args[1:]
    }
    assert {
        "beam",
        "data",
        "demo",
        "documents",
        "evaluate",
        "parquet",
        "report",
        "serve",
        "train",
    } == {extra for extra, _ in named}
    for extra, package in named:
        assert brings(package, packages_of(extra)), (extra, package)
    lines = {line for extra in PROJECT["optional-dependencies"].values() for line in extra}
    left_out = {distribution(line) for line in lines if "python_version < '3.14'" in line}
    assert {name for _, name in named if brings(name, left_out)} == BEFORE_PYTHON_3_14


def test_all_brings_every_extra():
    assert packages_of("all") == set().union(
        *(packages_of(e) for e in PROJECT["optional-dependencies"] if e != "all")
    )
