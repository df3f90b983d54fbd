"""Apache Beam as the engine: the same bytes as of a loop, and errors as plain."""

import re
import sys

import pytest

from data_prep.pipeline.beam import BeamRunner
from data_prep.pipeline.run import Work
from official_cmlm.common.errors import UserError
from tests.data_prep.pipeline.runs import contents

pytest.importorskip("apache_beam", reason="an optional extra: requirements-beam.txt")


def test_in_this_process(start, tmp_path):
    start(deduplicate="near")
    start(runner="InProcess", deduplicate="near", output_dir=tmp_path / "beam")
    assert contents(tmp_path / "beam") == contents(tmp_path / "out")


def test_faults(start, tmp_path):
    """A fault is one plain line, however Beam wraps it; --on_error=skip skips it."""
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
    with pytest.raises(UserError, match=r'pip install "\.\[beam\]"'):
        BeamRunner("InProcess")


def test_unknown_runner():
    with pytest.raises(UserError, match="--runner=abacus"):
        BeamRunner("Abacus")


def test_direct_runner_is_in_process():
    """Beam's own would download a binary."""
    for name in ("DirectRunner", "direct", "InProcess"):
        assert type(BeamRunner(name)._runner()).__name__ == "BundleBasedDirectRunner"


@pytest.mark.parametrize(
    ("runner", "argument", "message"),
    [
        ("Dask", "--dask_client_adress=tcp://h:1", "did you mean --dask_client_address?"),
        ("InProcess", "--abacus=1", "--abacus=1: Apache Beam has no such flag; "),
        ("InProcess", "stray", "stray: Apache Beam has no such flag"),
    ],
)
def test_misspelt_flags(runner, argument, message):
    """Beam would pass over them, and Dask start workers here."""
    with pytest.raises(UserError, match=re.escape(message)):
        BeamRunner(runner, [argument])
    BeamRunner("Dask", ["--dask_client_address=tcp://h:1"])


def _of_dask(name, text):
    """Returns an error with the name of one of Dask's own."""
    return type(name, (Exception,), {})(text)


def _deserialization():
    error = RuntimeError("Error during deserialization of the task graph")
    error.__cause__ = ModuleNotFoundError("No module named 'data_prep'")
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (_of_dask("KilledWorker", "Attempted it 3 times"), "out: several workers have died"),
        (_deserialization(), "out: scheduler or workers cannot load .* install this project"),
        (_of_dask("FutureCancelledError", "lost"), "out: the scheduler was lost"),
        (FileNotFoundError(2, "No such file", "/x/prepare.json"), "out: a worker does not see a"),
        (ValueError("a mistake in the program"), None),
    ],
)
def test_trouble_of_a_cluster(tmp_path, monkeypatch, error, message):
    """One line says what to do; unexpected errors keep their trace."""
    import apache_beam

    runner = BeamRunner("Dask")

    def fail(*arguments):
        raise error

    monkeypatch.setattr(apache_beam, "Pipeline", fail)
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError if message else type(error), match=message):
        runner(Work("read", str(tmp_path / "out"), ""), [0], lambda count: None)
