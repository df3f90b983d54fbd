"""The folder that is written: one writer at a time, and never its own input."""

import pytest

from data_prep.output.folder import filled_folder, outside_of
from official_cmlm.errors import UserError


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_one_at_a_time(tmp_path):
    """A second writer is refused and leaves the first one's folder alone."""
    with filled_folder(tmp_path / "out", overwrite=False) as folder:
        (folder / "dataset.json").write_text("first")
        with pytest.raises(UserError, match="out: another run is writing it"):
            with filled_folder(tmp_path / "out", overwrite=True):
                pass
        assert _names(folder) == ["dataset.json"]
    assert _names(tmp_path) == ["out"]


def test_completed_meanwhile(tmp_path):
    """A folder that another run has finished is not replaced unasked."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dataset.json").write_text("first")
    with pytest.raises(UserError, match="holds records already"):
        with filled_folder(tmp_path / "out", overwrite=False):
            pass
    assert (tmp_path / "out" / "dataset.json").read_text() == "first"
    assert _names(tmp_path) == ["out"]


def test_own_files_are_not_input(tmp_path, monkeypatch):
    """Finished, unfinished, locked or about to be replaced; by whatever path they are named."""
    (tmp_path / "crawl" / "rec").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "crawl")
    monkeypatch.chdir(tmp_path)
    own = ["rec/a", "rec/b/c", "rec.partial/work/x", "rec.lock", "rec.old-x1/rec/a"]
    others = ["a", "rec.txt", "record/a", "b/rec/a", "rec.partially"]
    remote = ["gs://bucket/crawl/rec/a", "tfds:rec"]
    for output in ("crawl/rec", "link/rec", str(tmp_path / "crawl" / "rec")):
        for root in ("crawl", "link", str(tmp_path / "crawl"), "./crawl"):
            paths = [f"{root}/{name}" for name in own + others] + remote
            kept = [f"{root}/{name}" for name in others] + remote
            assert outside_of(tmp_path / output, paths) == kept
    with pytest.raises(UserError, match="crawl/rec/a: was written by such a run itself"):
        outside_of(tmp_path / "crawl" / "rec", ["crawl/rec/a"])
    assert outside_of(tmp_path / "crawl" / "rec", []) == []
