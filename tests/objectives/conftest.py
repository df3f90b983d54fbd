"""Records of every kind, once for all objectives."""

import pytest

from tests.conftest import shared_folder
from tests.training.all_objectives import write_folders


@pytest.fixture(scope="session")
def folders(tmp_path_factory, vocabulary):
    """Writes documents, long documents, bitext and inference pairs, a folder each."""
    return shared_folder(
        tmp_path_factory, "all_records", lambda folder: write_folders(folder, vocabulary)
    )
