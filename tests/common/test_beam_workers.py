"""Parts of a job computed by Apache Beam: results as of processes, errors as plain."""

import re
import sys

import pytest

from official_cmlm.common.beam_workers import BeamWorkers
from official_cmlm.common.errors import UserError
from official_cmlm.common.job import Job, Part
from official_cmlm.common.progress import bar

pytest.importorskip("apache_beam", reason="an optional extra: requirements-beam.txt")


def add(tool, number):
    """Adds the tool's number to a number."""
    if number == 3:
        raise UserError("3 is not a number to add to")
    return {"sum": tool["to"] + number}


def test_parts_are_computed_in_this_process(tmp_path):
    """Parts that are done are not computed again, and a fault is the line of the function."""
    parts = [Part(f"{number}", number) for number in range(3)]
    options = {"make": dict, "arguments": {"to": 10}}
    with Job(tmp_path / "out", {}) as job, bar(3, "part", "x") as progress:
        job.store("1", {"sum": 0})
        results = BeamWorkers("InProcess").compute(job, add, parts, progress, **options)
        assert results == {"0": {"sum": 10}, "1": {"sum": 0}, "2": {"sum": 12}}
        assert list(results) == ["0", "1", "2"] and progress.n == 3
        with pytest.raises(UserError, match="^3 is not a number to add to$"):
            BeamWorkers("InProcess").compute(job, add, [Part("3", 3)], progress, **options)


def test_a_missing_beam_is_named(monkeypatch):
    """One line says how to get it."""
    monkeypatch.setitem(sys.modules, "apache_beam.runners.direct.direct_runner", None)
    with pytest.raises(UserError, match=r'pip install "\.\[beam\]"'):
        BeamWorkers("InProcess")


def test_an_unknown_runner_is_named():
    with pytest.raises(UserError, match="--runner=abacus"):
        BeamWorkers("Abacus")


def test_direct_runner_is_in_process():
    """Beam's own would download a binary."""
    for name in ("DirectRunner", "direct", "InProcess"):
        assert type(BeamWorkers(name)._make_runner()).__name__ == "BundleBasedDirectRunner"


@pytest.mark.parametrize(
    ("runner", "argument", "message"),
    [
        ("Dask", "--dask_client_adress=tcp://h:1", "did you mean --dask_client_address?"),
        ("InProcess", "--abacus=1", "--abacus=1: Apache Beam has no such flag; "),
        ("InProcess", "stray", "stray: Apache Beam has no such flag"),
    ],
)
def test_misspelt_flags_are_refused(runner, argument, message):
    """Beam would pass over them, and Dask start workers here."""
    with pytest.raises(UserError, match=re.escape(message)):
        BeamWorkers(runner, [argument])
    BeamWorkers("Dask", ["--dask_client_address=tcp://h:1"])


def make_error_of_dask(name, text):
    """Returns an error with the name of one of Dask's own."""
    return type(name, (Exception,), {})(text)


def make_deserialization_error():
    error = RuntimeError("Error during deserialization of the task graph")
    error.__cause__ = ModuleNotFoundError("No module named 'data_prep'")
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            make_error_of_dask("KilledWorker", "Attempted it 3 times"),
            "out: several workers have died",
        ),
        (
            make_deserialization_error(),
            "out: scheduler or workers cannot load .* install this project",
        ),
        (make_error_of_dask("FutureCancelledError", "lost"), "out: the scheduler was lost"),
        (FileNotFoundError(2, "No such file", "/x/prepare.json"), "out: a worker does not see a"),
        (ValueError("a mistake in the program"), None),
    ],
)
def test_trouble_of_a_cluster_is_one_line(tmp_path, monkeypatch, error, message):
    """It says what to do; unexpected errors keep their trace."""
    import apache_beam

    def fail(*arguments):
        raise error

    monkeypatch.setattr(apache_beam, "Pipeline", fail)
    workers = BeamWorkers("Dask")
    with Job(tmp_path / "out", {}) as job, bar(1, "part", "x") as progress:
        with pytest.raises(UserError if message else type(error), match=message):
            workers.compute(job, add, [Part("a", 1)], progress, make=dict, arguments={})
