"""Parts that run programs: done ones are kept, changed ones run again, foreign files stay."""

import itertools
import sys
from types import SimpleNamespace

import pytest

import experiments
from experiments.runner import Runner, Stages
from official_cmlm import cli
from official_cmlm.common.errors import UserError

# Appends to a log what is made, then makes it.
MAKE = """
import pathlib, sys
output, log, text = (argument.partition("=")[2] for argument in sys.argv[1:])
with open(log, "a") as file:
    file.write(pathlib.Path(output).name)
pathlib.Path(output).write_text(text)
"""


def run_all(folder, second="2", source=None):
    """Runs two stages that depend on each other; returns what was made now, and the seconds."""
    program, log = folder / "make.py", folder / "log"
    program.write_text(MAKE)
    log.write_text("")
    with Runner(folder / "job", "test") as runner:
        stages = Stages(runner, [1, 1])
        if source is not None:
            stages.depends_on([str(source)])
        for title, name, text in (("one", "a", "1"), ("two", "b", second)):
            output = runner.folder / name
            stages.run(title, output, program, output=output, log=log, text=text)
    return log.read_text(), stages.durations


@pytest.mark.parametrize("prefix", ["", "official_cmlm."])
def test_a_binary_is_named_in_a_checkout_and_installed(prefix, monkeypatch):
    """The library's own binaries have one name."""
    monkeypatch.setattr(experiments, "__name__", f"{prefix}experiments")
    assert experiments.module_of("data_prep.prepare") == f"{prefix}data_prep.prepare"
    own = "official_cmlm.encoding.shrink"
    assert experiments.module_of(own) == own


def test_a_second_run_reuses_all_outputs(tmp_path, monkeypatch):
    """It has the seconds of the run that made them, from which the demo's steps follow."""
    clock = SimpleNamespace(monotonic=itertools.count(step=7).__next__)
    monkeypatch.setattr("experiments.runner.time", clock)
    assert run_all(tmp_path) == ("ab", [7, 7])
    assert run_all(tmp_path) == ("", [7, 7])


def test_seconds_of_a_share_of_the_work(tmp_path):
    stages = Stages(Runner(tmp_path, "test"), [10, 180, 1000])
    stages.scale(0.5)
    assert stages.seconds == [10, 98, 508]
    stages.scale(0)
    assert stages.seconds == [10, 15, 15]


def test_a_changed_stage_and_those_after_it_run_again(tmp_path):
    run_all(tmp_path)
    assert run_all(tmp_path, second="3")[0] == "b"
    assert (tmp_path / "job" / "b").read_text() == "3"
    (tmp_path / "job" / "a").unlink()
    assert run_all(tmp_path, second="3")[0] == "a"


def test_a_changed_input_file_makes_all_stages_run_again(tmp_path):
    source = tmp_path / "source"
    for text in ("x", "longer", "longest"):
        source.write_text(text)
        assert run_all(tmp_path, source=source)[0] == "ab"


def test_a_program_that_fails_is_named(tmp_path):
    commands = []

    def call(command):
        commands.append(command)
        return 3

    runner = Runner(tmp_path, "test", call)
    with pytest.raises(UserError, match="data_prep.hold_out ended with status 3; see above"):
        runner.start("data_prep.hold_out", share=0.5)
    runner.start("data_prep.hold_out", statuses=(0, 3), overwrite=True)
    assert commands[1] == [sys.executable, "-m", "data_prep.hold_out", "--overwrite"]


def test_the_last_line_is_the_reason_of_the_program(tmp_path, monkeypatch):
    """A user's mistake in a program that a program runs, and an error that nobody foresaw."""
    outer = tmp_path / "outer.txt"
    monkeypatch.setenv("CMLM_REASON_FILE", str(outer))

    def call(command):
        if str(tmp_path / "inner") in command:
            return cli._fail("a.csv:2: not UTF-8")
        with pytest.raises(UserError) as error:
            Runner(tmp_path, "test", call).start(tmp_path / "inner")
        return cli._fail(error.value)

    for start in (call, lambda command: cli._fail(UserError("two\nlines"))):
        with pytest.raises(UserError, match="ended with status 1; ") as error:
            Runner(tmp_path, "test", start).start("data_prep.hold_out")
        assert "see above" not in str(error.value) and "\n" not in str(error.value)
        assert ("a.csv:2: not UTF-8" in str(error.value)) == (start is call)
    assert not outer.exists()
    assert cli._fail("of all") == 1 and outer.read_text() == "of all"


@pytest.mark.parametrize("resumes", [True, False])
def test_a_stopped_part_goes_on_from_its_output_or_begins_anew(tmp_path, resumes):
    output, was_there = tmp_path / "a", []

    def make(status):
        was_there.append(output.exists())
        output.touch()
        if status:
            raise UserError("failed")

    for status in (1, 0, 0):
        with Runner(tmp_path, "test") as runner:
            options = {"output": output, "resumes": resumes}
            try:
                runner.run_part("a", lambda: make(status), "a", "begins", **options)  # noqa: B023
            except UserError:
                assert status
    assert was_there == [False, resumes]


def test_an_output_that_no_part_has_made_stays(tmp_path):
    run_all(tmp_path)
    for path in (tmp_path / "job" / "parts").glob("b.json"):
        path.unlink()
    for _ in range(2):
        with pytest.raises(UserError, match="b: exists, and no part of this job has made it"):
            run_all(tmp_path)
    assert (tmp_path / "job" / "b").read_text() == "2"


def test_a_folder_holds_one_kind_of_job(tmp_path):
    run_all(tmp_path)
    with pytest.raises(
        UserError, match='plan.json: is of another program or release .format "test 1", here'
    ):
        Runner(tmp_path / "job", "other").__enter__()
