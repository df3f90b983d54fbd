"""Apache Beam as the engine: the same bytes as of a loop, and errors as plain."""

import sys

import pytest

from data_prep.engine.beam import BeamRunner
from official_cmlm.errors import UserError
from tests.data_prep.engine.runs import contents, run, write_text

pytest.importorskip("apache_beam", reason="an optional extra: requirements-beam.txt")


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
        }
        run(*arguments, **(defaults | values))

    return start


def test_in_this_process(start, tmp_path):
    start(deduplicate="near")
    start(runner="InProcess", deduplicate="near", output_dir=tmp_path / "beam")
    assert contents(tmp_path / "beam") == contents(tmp_path / "out")


def test_faults(start, tmp_path):
    """One plain line, however Beam wraps it; skipped where that is asked."""
    (tmp_path / "text" / "part-3.jsonl").write_text("{")
    with pytest.raises(UserError, match=r"^\S*part-3\.jsonl:1: not valid JSON"):
        start(runner="InProcess")
    # It goes on, on another runner.
    start(on_error="skip")


@pytest.mark.long
def test_dask(start, tmp_path):
    """On a scheduler and two worker processes of Dask, which the test starts on loopback."""
    distributed = pytest.importorskip("distributed")
    start(deduplicate="near")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        local_directory=str(tmp_path / "dask"),
    ) as cluster:
        address = f"--dask_client_address={cluster.scheduler_address}"
        start(address, runner="Dask", deduplicate="near", output_dir=tmp_path / "dask-out")
    assert contents(tmp_path / "dask-out") == contents(tmp_path / "out")


def test_without_beam(monkeypatch):
    """One line says how to get it."""
    monkeypatch.setitem(sys.modules, "apache_beam.runners.direct.direct_runner", None)
    with pytest.raises(UserError, match=r"pip install -r requirements-beam\.txt"):
        BeamRunner("InProcess")


def test_unknown_runner():
    with pytest.raises(UserError, match="--runner=abacus"):
        BeamRunner("Abacus")


def test_arguments_are_for_beam_alone(start):
    with pytest.raises(UserError, match="unexpected argument '--x=1'"):
        start("--x=1")
