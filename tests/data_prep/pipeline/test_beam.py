"""Apache Beam as the engine: the same bytes as of a loop."""

import pytest

from tests.data_prep.pipeline.runs import contents

pytest.importorskip("apache_beam", reason="an optional extra: requirements-beam.txt")


def test_records_made_in_this_process_have_the_same_bytes(start, tmp_path):
    start(deduplicate="near")
    start(runner="InProcess", deduplicate="near", output_dir=tmp_path / "beam")
    assert contents(tmp_path / "beam") == contents(tmp_path / "out")


@pytest.mark.long
def test_records_made_on_dask_have_the_same_bytes(start, tmp_path):
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
