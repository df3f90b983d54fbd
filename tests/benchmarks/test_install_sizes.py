"""Packages and sizes of extras, as `benchmarks.install_sizes` counts them."""

from pathlib import Path

import absl

from benchmarks import install_sizes


def test_parquet_adds_one_package():
    base = install_sizes.find_packages("official-cmlm")
    assert {"official-cmlm", "onnxruntime", "huggingface-hub"} <= base
    assert not {"tensorflow", "pyarrow", "pytest"} & base
    assert install_sizes.find_packages("official-cmlm", ["parquet"]) - base == {"pyarrow"}
    # An extra may name extras of the project.
    assert "pyarrow" in install_sizes.find_packages("official-cmlm", ["data"])


def test_a_package_has_the_size_of_its_files():
    (folder,) = map(Path, absl.__path__)
    modules = sum(path.stat().st_size for path in folder.rglob("*.py"))
    # Compiled files and metadata come on top.
    assert modules < install_sizes.measure("absl-py") < 4 * modules
