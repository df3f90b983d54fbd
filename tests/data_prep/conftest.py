"""Runs of `data_prep.prepare` on a few files, and runs that are stopped."""

import pytest

from data_prep.pipeline import phases
from official_cmlm.common.errors import UserError
from tests.data_prep.pipeline.runs import run, write_text


@pytest.fixture
def start(tmp_path, vocabulary):
    """Runs with defaults: tmp_path/text to tmp_path/out, one file an element."""
    vocabulary.save(tmp_path)
    write_text(tmp_path / "text")

    def start(*arguments, **values):
        defaults = {
            "input": tmp_path / "text",
            "vocab_file": tmp_path / "vocab.txt",
            "output_dir": tmp_path / "out",
            "element_mb": 0.000001,
            "normalise": True,
            "deduplicate": "normalised",
        }
        return run(*arguments, **(defaults | values))

    return start


@pytest.fixture
def stop(start, monkeypatch):
    """Starts a run that stops before the third element is written."""

    def stop(**values):
        write = phases.PHASES["write"]

        def fail(context, element):
            if element == 2:
                raise UserError("stop")
            return write(context, element)

        with monkeypatch.context() as patch:
            patch.setitem(phases.PHASES, "write", fail)
            with pytest.raises(UserError, match="^stop$"):
                start(**values)

    return stop
