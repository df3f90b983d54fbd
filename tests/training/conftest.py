"""Records for every objective."""

import pytest

from tests.training.all_objectives import write_folders


@pytest.fixture(scope="session")
def folders(tmp_path_factory, vocabulary):
    """Documents, long documents, bitext and inference pairs, a folder each."""
    return write_folders(tmp_path_factory.mktemp("all_records"), vocabulary)
