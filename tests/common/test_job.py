"""A job in a folder: resumed after any stop, never mixed with another one or with others' files."""

import json
import os
import signal
import subprocess
import sys

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.common.job import Job, Part, differences, part_path
from official_cmlm.common.progress import bar
from official_cmlm.common.worker_processes import Processes
from tests.binaries import ROOT

PARTS = [Part(f"{number:05d}", number, size=2) for number in range(5)]


def square(tool, number):
    """Writes a line to the log of the tool, and squares a number."""
    with open(tool["log"], "a", encoding="utf-8") as log:
        log.write(f"{number}\n")
    if number == tool.get("fails_at"):
        raise UserError(f"{number} is not a number to square")
    if number == tool.get("dies_at"):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": number**2}


def run(folder, *, plan=None, workers=0, **tool):
    """Runs the whole job; returns its manifest and the numbers that were computed."""
    log = folder.with_suffix(".log")
    log.write_text("")
    tool["log"] = str(log)
    with (
        Job(folder, plan or {"input": "a"}) as job,
        Processes(workers, dict, tool) as processes,
        bar(10, "part", "squares") as progress,
    ):
        if job.manifest is None:
            results = job.compute(square, PARTS, processes, progress)
            job.finish({"squares": [one["square"] for one in results.values()]})
        return job.manifest, sorted(map(int, log.read_text().split()))


def names_in(folder):
    return sorted(path.name for path in folder.rglob("*"))


# Computes two parts in a process, which stays busy with the second one if an argument says so.
_BUSY = """
import sys, threading
from pathlib import Path
from official_cmlm import cli
from official_cmlm.common.job import Job, Part
from official_cmlm.common.progress import bar
from official_cmlm.common.worker_processes import Processes

print("starting", flush=True)

def compute(tool, number):
    print("computing", number, flush=True)
    if number == 1 and tool:
        threading.Event().wait()
    return {"number": number}

def main(folder, *busy):
    tool = {"busy": 1} if busy else {}
    parts = [Part(str(number), number) for number in range(2)]
    with Job(Path(folder), {}) as job, Processes(1, dict, tool) as processes:
        job.compute(compute, parts, processes, bar(2, "part", "x"))

if __name__ == "__main__":
    cli.run(main)
"""


@pytest.mark.parametrize("line", ["starting", "computing 1"])
def test_ctrl_c_ends_busy_processes_and_keeps_parts_that_are_done(tmp_path, line):
    """A terminal sends it to all processes; the second "starting" is that of the worker."""
    (tmp_path / "busy.py").write_text(_BUSY)
    command = [sys.executable, str(tmp_path / "busy.py"), str(tmp_path / "out")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    options = {"stdout": -1, "stderr": -1, "text": True, "env": environment}
    with subprocess.Popen([*command, "busy"], start_new_session=True, **options) as program:
        assert program.stdout.readline() == "starting\n"
        while program.stdout.readline() != f"{line}\n":
            pass
        os.killpg(program.pid, signal.SIGINT)
        # The end of the output is the end of all processes.
        printed = program.communicate(timeout=60)[1]
    assert program.returncode == 130
    *bars, last = printed.splitlines()
    assert all(drawn.startswith("x: ") for drawn in filter(None, bars)), printed
    if line == "starting":
        assert last == "interrupted; give the same command again"
        return
    kept = f"{tmp_path}/out keeps what is whole; give the same command again to go on"
    assert last == f"interrupted; {kept}"
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, "computing 0" in done.stdout) == (0, False)
    assert "computing 1" in done.stdout


def test_a_job_that_fails_at_its_first_part_leaves_nothing(tmp_path):
    """Another plan may follow, also after a process that was killed before its first part."""
    with pytest.raises(UserError, match="0 is not a number to square"):
        run(tmp_path / "out", fails_at=0)
    assert names_in(tmp_path) == ["out.log"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text('{"input": "b"}')
    (tmp_path / "out" / "plan.json.7-0123abcd.tmp").write_text("{")
    assert run(tmp_path / "out")[0] == {"squares": [0, 1, 4, 9, 16]}
    assert names_in(tmp_path / "out") == ["manifest.json", "plan.json"]


def test_a_process_killed_while_it_wrote_the_plan_is_not_in_the_way(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json.7-0123abcd.tmp").write_text("{")
    assert run(tmp_path / "out")[0] == {"squares": [0, 1, 4, 9, 16]}


@pytest.mark.parametrize("workers", [0, 2])
def test_parts_that_are_done_are_not_computed_again(tmp_path, workers):
    """A job that has failed goes on; one that is complete computes nothing."""
    folder = tmp_path / "out"
    with pytest.raises(UserError, match="3 is not a number to square"):
        run(folder, workers=workers, fails_at=3)
    assert not (folder / "manifest.json").exists()
    manifest, computed = run(folder, workers=workers)
    assert manifest == {"squares": [0, 1, 4, 9, 16]}
    assert 3 in computed and 0 not in computed
    assert run(folder, workers=workers) == (manifest, [])
    assert names_in(folder) == ["manifest.json", "plan.json"]


def test_a_process_that_dies_is_reported_and_its_part_is_computed_again(tmp_path):
    with pytest.raises(UserError, match="a process has died, perhaps because memory ran out"):
        run(tmp_path / "out", workers=2, dies_at=2)
    assert run(tmp_path / "out")[0] == {"squares": [0, 1, 4, 9, 16]}


KILLED = """
import sys
from pathlib import Path
from official_cmlm.common.job import Job
with Job(Path(sys.argv[1]), {"input": "a"}) as job:
    job.store("00000", {"square": 0})
    print("stored", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_locked_until_its_process_is_killed(tmp_path):
    """The system releases the lock, and the same job goes on with what is left."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "out")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        try:
            assert process.stdout.readline() == b"stored\n"
            with pytest.raises(UserError, match="another run writes there"):
                run(tmp_path / "out")
        finally:
            process.kill()
    assert run(tmp_path / "out") == ({"squares": [0, 1, 4, 9, 16]}, [1, 2, 3, 4])


def test_parts_that_a_complete_job_has_left_are_removed(tmp_path):
    """A process may be killed between the manifest and their removal."""
    manifest, _ = run(tmp_path / "out")
    part_path(tmp_path / "out", "00000").parent.mkdir()
    part_path(tmp_path / "out", "00000").write_text("{}")
    assert run(tmp_path / "out") == (manifest, [])
    assert names_in(tmp_path / "out") == ["manifest.json", "plan.json"]


def test_another_plan_is_refused_and_replaces_the_first_if_allowed(tmp_path):
    """The message names the difference; one that is allowed is not refused."""
    folder = tmp_path / "out"
    run(folder, plan={"options": {"case": "lower"}, "on_error": "fail"})
    now = {"options": {"case": "upper"}, "on_error": "fail"}
    with pytest.raises(UserError, match=r'begun with options.case "lower", now it is "upper"; '):
        run(folder, plan=now)
    before = {"options": {"case": "lower"}, "on_error": "skip"}
    with Job(folder, before, may_change=lambda name, *values: name == "on_error") as job:
        assert job.resumed and job.manifest
    assert json.loads((folder / "plan.json").read_text()) == before
    with Job(folder, now, overwrite=True) as job:
        assert not job.resumed and job.manifest is None


def test_files_of_others_are_neither_mixed_with_nor_removed(tmp_path):
    """A folder without a plan is not touched, and a plan does not make other files the job's."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds other files \(mine.txt\)"):
        run(folder)
    (folder / "mine.txt").rename(tmp_path / "mine.txt")
    run(folder)
    (tmp_path / "mine.txt").rename(folder / "mine.txt")
    with pytest.raises(UserError, match="holds mine.txt, which this program has not written"):
        with Job(folder, {"input": "b"}, overwrite=True):
            pass
    assert names_in(folder) == ["manifest.json", "mine.txt", "plan.json"]
    (folder / "mine.txt").rename(folder / "rows-1.txt")
    with Job(folder, {"input": "b"}, own=r"rows-\d+\.txt", overwrite=True):
        assert names_in(folder) == ["lock", "plan.json"]


def test_a_shared_folder_may_hold_files_of_others_but_none_of_the_jobs_names(tmp_path):
    """A log beside the output is left alone; results of unknown origin are refused."""
    (tmp_path / "train.log").write_text("mine")
    with Job(tmp_path, {}, own="results.json", shares=True) as job:
        job.store("sts", {})
        (tmp_path / "results.json").write_text("{}")
    with Job(tmp_path, {}, own="results.json", shares=True) as job:
        assert job.resumed and job.result("sts") == {}
    assert (tmp_path / "train.log").read_text() == "mine"
    (tmp_path / "plan.json").unlink()
    with pytest.raises(UserError, match=r"holds other files \(parts, results.json\)"):
        Job(tmp_path, {}, own="results.json", shares=True).__enter__()


def test_unfinished_files_of_others_stay(tmp_path):
    """A killed job leaves files under names of its own with a suffix; only these are removed."""
    names = ["thesis.tex.tmp", "plan.json.12-0123abcd.tmp", "rows-1.npy.12-0123abcd.tmp"]
    with Job(tmp_path, {}, own=r"rows-\d+\.npy", shares=True) as job:
        job.store("1", {})
    for name in names:
        (tmp_path / name).write_text("half")
    with Job(tmp_path, {}, own=r"rows-\d+\.npy", shares=True):
        assert [name for name in names if (tmp_path / name).exists()] == names[:1]


def test_a_shared_folder_is_left_as_it_was_by_a_job_that_begins_nothing(tmp_path):
    (tmp_path / "train.log").write_text("mine")
    with pytest.raises(ZeroDivisionError), Job(tmp_path, {}, shares=True):
        raise ZeroDivisionError
    assert names_in(tmp_path) == ["train.log"]


def test_an_empty_folder_of_the_user_stays(tmp_path):
    for folder in (tmp_path / "mine", tmp_path / "new"):
        if folder.name == "mine":
            folder.mkdir()
        with pytest.raises(ZeroDivisionError), Job(folder, {}):
            raise ZeroDivisionError
    assert names_in(tmp_path) == ["mine"]


def test_a_damaged_manifest_is_refused_or_overwritten(tmp_path):
    run(tmp_path / "out")
    (tmp_path / "out" / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="manifest.json: .*pass --overwrite"):
        run(tmp_path / "out")
    with Job(tmp_path / "out", {"input": "a"}, overwrite=True) as job:
        assert job.manifest is None
    assert run(tmp_path / "out")[1] == [0, 1, 2, 3, 4]


def test_any_name_of_a_part_is_a_name_of_a_file(tmp_path):
    with Job(tmp_path, {}) as job:
        job.store("en/de ../x", {"score": 1})
        assert job.result("en/de ../x") == {"score": 1}
        assert len(list((tmp_path / "parts").iterdir())) == 1


@pytest.mark.parametrize("plan", ['{"terraform": 1}', "{"])
def test_a_folder_of_another_program_is_not_overwritten(tmp_path, plan):
    (tmp_path / "plan.json").write_text(plan)
    with pytest.raises(UserError, match=r"plan.json: .* name another output, or delete"):
        with Job(tmp_path, {"format": "squares"}, overwrite=True):
            pass
    assert (tmp_path / "plan.json").read_text() == plan


def test_a_part_of_another_key_is_not_done(tmp_path):
    with Job(tmp_path, {}) as job:
        job.begin("sts", key=["a", 1])
        assert job.result("sts", ["a", 1]) is None
        assert job.record("sts") == {"key": ["a", 1], "result": None}
        job.store("sts", {"score": 1.0}, key=("a", 1))
        assert job.result("sts", ["a", 1]) == {"score": 1.0}
        assert job.result("sts", ["a", 2]) is None and job.record("qnli") is None


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"key": null}'])
def test_a_damaged_part_is_named(tmp_path, content):
    """Its file is replaced as a whole, so only another program can have damaged it."""
    with Job(tmp_path, {}) as job:
        job.store("00001", {})
        part_path(tmp_path, "00001").write_text(content)
        with pytest.raises(UserError, match="00001.json: .*delete it, and the part is computed"):
            job.result("00001")


def test_a_part_whose_files_are_gone_is_computed_again(tmp_path):
    with Job(tmp_path, {}) as job, Processes(0, dict, {"log": str(tmp_path / "log")}) as here:
        for _ in range(2):
            job.compute(square, PARTS[:1], here, bar(2, "part", "x"), is_whole=lambda _: False)
    assert (tmp_path / "log").read_text() == "0\n0\n"


def test_differences_name_nested_values():
    before, now = {"a": {"b": 1, "d": [1]}, "c": 2}, {"a": {"b": 3, "d": [1]}, "e": 5}
    assert list(differences(before, now)) == [("a.b", 1, 3), ("c", 2, None), ("e", None, 5)]


ABANDONED = """
import os, signal, time
from official_cmlm.common.worker_processes import Processes
processes = Processes(1)
processes.call(dict)
processes._pool.submit(time.sleep, 600)
print("started", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_with_the_program_that_started_them():
    """They end even if it is killed; else they would write beside the next run."""
    # Both share standard output, which so stays open as long as one of them lives.
    command = [sys.executable, "-c", ABANDONED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=False)
    assert done.stdout == b"started\n" and done.returncode == -signal.SIGKILL


def test_interrupted_generator_leaves_nothing_running(tmp_path):
    """Whoever stops reading results can remove the folder: nothing is computed any more."""
    with Processes(2, dict, {"log": str(tmp_path / "log")}) as processes:
        results = processes.as_completed(square, range(100))
        next(results)
        results.close()
        lines = (tmp_path / "log").read_text().count("\n")
    assert (tmp_path / "log").read_text().count("\n") == lines < 100
