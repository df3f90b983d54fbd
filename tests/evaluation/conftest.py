"""Fixtures of the evaluation's tests."""

import pytest

from tests.evaluation import toy


@pytest.fixture(scope="session")
def senteval_data(tmp_path_factory):
    """Returns a folder of SentEval's toy tasks, which no test changes."""
    root = tmp_path_factory.mktemp("senteval")
    toy.write_senteval(root / "senteval/downstream")
    return root
