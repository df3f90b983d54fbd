"""The folder that is written is never its own input."""

import pytest

from data_prep.output.folder import leave_out_own
from official_cmlm.common.errors import UserError


def test_own_files_are_not_input(tmp_path, monkeypatch):
    """Finished, unfinished, locked or about to be replaced; by whatever path they are named."""
    (tmp_path / "crawl" / "rec").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "crawl")
    monkeypatch.chdir(tmp_path)
    own = ["rec/a", "rec/b/c", "rec.partial/work/x", "rec.lock", "rec.old-x1/rec/a"]
    own += ["rec.partial-x1/rec/a"]
    others = ["a", "rec.txt", "record/a", "b/rec/a", "rec.partially"]
    remote = ["gs://bucket/crawl/rec/a", "tfds:rec"]
    for output in ("crawl/rec", "link/rec", str(tmp_path / "crawl" / "rec")):
        for root in ("crawl", "link", str(tmp_path / "crawl"), "./crawl"):
            paths = [f"{root}/{name}" for name in own + others] + remote
            kept = [f"{root}/{name}" for name in others] + remote
            assert leave_out_own(tmp_path / output, paths) == kept
    with pytest.raises(UserError, match="crawl/rec/a: was written by such a run itself"):
        leave_out_own(tmp_path / "crawl" / "rec", ["crawl/rec/a"])
    assert leave_out_own(tmp_path / "crawl" / "rec", []) == []
