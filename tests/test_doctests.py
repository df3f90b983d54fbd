"""The examples in docstrings print what they say."""

import doctest
import importlib

import pytest

from tests.source_files import files, name_of

NAMES = [
    name_of(path)
    for path in files("official_cmlm", "data_prep", "experiments", "export")
    if ">>>" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", NAMES)
def test_examples(name):
    module = importlib.import_module(name.removesuffix(".py").replace("/", "."))
    assert not doctest.testmod(module).failed
