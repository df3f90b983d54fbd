"""The driver and its binary: results, restarts, faulty encoders and faulty data."""

import json
import re
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import evaluate
from official_cmlm.common.errors import UserError
from official_cmlm.evaluation import embedding_cache
from official_cmlm.evaluation.encoder import OpenedEncoder, add_prompt
from official_cmlm.evaluation.report import driver
from official_cmlm.evaluation.report.results import read_compared
from official_cmlm.evaluation.suite import Suite
from official_cmlm.evaluation.suites import senteval as senteval_suite
from tests.evaluation import toy
from tests.evaluation.report.test_tables import results, score, suite


@pytest.fixture
def data(tmp_path):
    """A folder with toy files of SentEval."""
    toy.write_senteval(tmp_path / "data/senteval/downstream")
    return tmp_path / "data"


class Counting:
    """The toy encoder, counting the texts that it gets; stops after `most`."""

    def __init__(self, most=10**9):
        self.count, self.most = 0, most

    def __call__(self, texts):
        self.count += len(texts)
        if self.count > self.most:
            raise KeyboardInterrupt
        return toy.encode(texts)


def _run(
    encode, data, output, settings=(), suites=("senteval", "sts"), with_reports=False, **kwargs
):
    """Runs suites with a function or an `OpenedEncoder`."""
    options = driver.parse_options(suites, settings)
    if callable(encode):
        encode = OpenedEncoder("toy", "python", "0123456789abcdef", encode)
    # Drawing takes most of a small run's time.
    write = driver._write_reports if with_reports else mock.Mock()
    with mock.patch.object(driver, "_write_reports", write):
        return driver.run(encode, "toy:encode", "toy", data, output, options, **kwargs)


FAST = ("senteval.tasks=[MR, SST2]", "sts.subsets=false")


def test_all_files_are_written(data, tmp_path):
    """All files; each number with protocol, checksums, seed and time."""
    results = _run(Counting(), data, tmp_path / "out", FAST, with_reports=True)
    assert json.loads((tmp_path / "out/results.json").read_text()) == results
    assert results["encoder"]["dimension"] == 64
    senteval = results["suites"]["senteval"]
    tasks = [
        score["task"] for score in senteval["scores"] if not score["metric"].startswith("dev_")
    ]
    assert tasks == ["MR", "SST2", "average_of_chosen"]
    assert senteval["configuration"] == "fast: 5 folds, rmsprop, batches of 128, 1 seed"
    assert senteval["seeds"] == [1111]
    assert len(senteval["files"]["senteval/downstream/MR/rt-polarity.pos"]) == 64
    assert senteval["protocol"].startswith("SentEval's transfer tasks")
    # The toy's files have not the published number of rows.
    assert any("60 rows, published with 5331" in note for note in senteval["notes"])
    assert "toy" in (tmp_path / "out/results.md").read_text()
    assert "<img" in (tmp_path / "out/report.html").read_text()


def test_a_killed_run_goes_on_where_it_was(data, tmp_path, monkeypatch):
    """A killed run's embeddings and finished suites are not computed again; numbers are equal."""
    monkeypatch.setattr(embedding_cache, "_CHUNK", 100)
    whole = Counting()
    expected = _run(whole, data, tmp_path / "whole", FAST)
    killed = Counting(most=150)
    with pytest.raises(KeyboardInterrupt):
        _run(killed, data, tmp_path / "out", FAST)
    again = Counting()
    resumed = _run(again, data, tmp_path / "out", FAST)["suites"]
    assert again.count < whole.count
    third = Counting()
    assert _run(third, data, tmp_path / "out", FAST)["suites"] == resumed
    assert third.count == 0
    for name in expected["suites"]:
        assert resumed[name]["scores"] == expected["suites"][name]["scores"]


def test_all_texts_are_embedded_first(data, tmp_path):
    """All suites' texts in one pass, the longest first, each once."""
    encode = toy.Recording()
    _run(encode, data, tmp_path / "out", FAST)
    (texts,) = encode.calls
    assert len(set(texts)) == len(texts)
    assert [len(text) for text in texts] == sorted(map(len, texts), reverse=True)


def test_failures_are_reported_again(data, tmp_path):
    """Its notes once, a file that `strict` refuses in each run, lengths of all tasks."""
    path = data / "senteval/downstream/SST/binary/sentiment-train"
    path.write_text(path.read_text() + "no tab\n")
    (path.parent / "sentiment-test").write_text("nothing of the kind\n")
    encoder = OpenedEncoder(
        *("toy", "python", "0123456789abcdef", toy.encode),
        max_seq_length=3,
        count_tokens=lambda texts: np.array([len(text.split()) for text in texts]),
    )

    def run(**kwargs):
        settings = ("senteval.tasks=[SST2, TREC]",)
        suites = _run(encoder, data, tmp_path / "out", settings, ("senteval",), **kwargs)["suites"]
        return suites["senteval"]

    first, second = run(), run()
    assert sum("malformed" in note for note in second["notes"]) == 1
    assert first["notes"] == second["notes"] and first["failures"] == second["failures"]
    assert first["cut"] == second["cut"] and "TREC" in second["cut"]
    refused = [run(strict=True)["failures"] for _ in range(2)]
    assert len(refused[0]) == 2 and refused[0] == refused[1]


def test_each_language_may_have_an_encoder(tmp_path):
    """Exchanged ones are other encoders; one may have two languages."""
    for kind in ("train.freq.500", "test.freq.2k"):
        path = tmp_path / f"data/bli/en-fr/x.{kind}.en-fr.tsv"
        toy.write(path, [f"a{i}\tb{i}" for i in range(20)])

    def encoder(seed):
        table = np.random.default_rng(seed).normal(size=[128, 8])
        return OpenedEncoder(
            *(f"e{seed}", "python", f"{seed}" * 16),
            lambda texts: table[[sum(map(ord, text)) % 128 for text in texts]],
        )

    def run(english, french, output):
        languages = {"en": encoder(english), "fr": encoder(french)}
        suites = _run(languages, tmp_path / "data", tmp_path / output, suites=("bli",))["suites"]
        assert not suites["bli"]["failures"]
        return suites["bli"]["scores"]

    scores = run(0, 1, "out")
    exchanged = run(1, 0, "out")
    assert exchanged == run(1, 0, "fresh") and exchanged != scores
    assert run(0, 0, "out")


def test_a_suite_is_repeated_for_its_own_files(tmp_path):
    """A new file of a suite is scored, also one behind a link; any other changes nothing."""
    folder, real = tmp_path / "data", tmp_path / "elsewhere"

    def write(code):
        for side in (code, "eng"):
            toy.write(real / f"tatoeba.{code}-eng.{side}", ["one", "two", "three"])

    write("deu")
    (folder / "tatoeba").mkdir(parents=True)
    (folder / "tatoeba/v1").symlink_to(real)
    results = []
    for change in (
        lambda: None,
        lambda: toy.write(folder / "tatoeba/readme.txt", ["not a sentence"]),
        lambda: write("fra"),
    ):
        change()
        results.append(_run(toy.encode, folder, tmp_path / "out", suites=("tatoeba",))["suites"])
    assert results[0] == results[1]
    assert {"de", "fr"} <= {score["task"] for score in results[2]["tatoeba"]["scores"]}


def test_a_task_is_trained_again_for_its_own_files_and_options(data, tmp_path, monkeypatch):
    """Neither for an unrelated file nor for a choice of other tasks, nor after a stop."""
    trained, stop, score = [], ["SST2"], senteval_suite._TextTask._score

    def count(task, *args):
        trained.append(task.name)
        if task.name in stop:
            stop.clear()
            raise KeyboardInterrupt
        return score(task, *args)

    monkeypatch.setattr(senteval_suite._TextTask, "_score", count)

    def run(tasks, *settings, output="out"):
        trained.clear()
        settings = (f"senteval.tasks={tasks}", *settings)
        suites = _run(toy.encode, data, tmp_path / output, settings, ("senteval",))["suites"]
        assert not suites["senteval"]["failures"]
        return list(trained), suites["senteval"]

    with pytest.raises(KeyboardInterrupt):
        run("MR,SST2")
    again, resumed = run("MR,SST2")
    whole = run("MR,SST2", output="fresh")[1]
    assert again == ["SST2"] and resumed | {"seconds": 0} == whole | {"seconds": 0}
    toy.write(data / "senteval/downstream/MR/notes.txt", ["unrelated"])
    assert run("MR,SST2")[0] == []
    assert run("SST2")[0] == [] and run("SICK-R,SST2,MR")[0] == ["SICK-R"]
    path = data / "senteval/downstream/SST/binary/sentiment-test"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:30]))
    again, results = run("SST2,MR")
    assert again == ["SST2"]
    counts = {s["task"]: s["count"] for s in results["scores"] if s["metric"] == "accuracy"}
    assert counts == {"SST2": 30, "MR": 120}
    assert run("SST2", "senteval.seeds=2")[0] == ["SST2", "SST2"]
    assert run("SST2", "senteval.configuration=hub")[0] == ["SST2"]
    assert run("SST2", "senteval.configuration=hub")[0] == []
    monkeypatch.setattr(Suite, "digest", "of the suite's file after an edit")
    assert run("SST2", "senteval.configuration=hub")[0] == ["SST2"]


@pytest.mark.parametrize(
    "content",
    [
        [1],
        {},
        {"encoder": "x"},
        results() | {"suites": None},
        results(sts=1),
        results(sts={"scores": [], "notes": [], "missing": [], "failures": []}),
        results(sts=suite(score("STS12", "spearman", float("nan")))),
        results(sts=suite(score("STS12", "spearman", 1.0, deviation="x"))),
        results(sts=suite(score("STS12", "spearman", 1.0, deviation=float("nan")))),
        results(sts=suite(score("STS12", "spearman", 1.0) | {"interval": "ab"})),
        results(sts=suite(score("STS12", "spearman", 1.0) | {"interval": [1.0]})),
        results(sts=suite(score("STS12", "spearman", 1.0) | {"interval": ["a", "b"]})),
        results(sts=suite(score("STS12", "spearman", 1.0) | {"by_seed": [None]})),
        results(sts=suite(failures=[{}])),
        results(sts=suite(notes=[1])),
        results(sts=suite(seeds=["x"])),
        results(sts=suite(missing=[{"task": "STS12"}])),
        results(sts=suite(missing={})),
    ],
)
def test_damaged_results_are_not_compared(tmp_path, content):
    """They are refused in one line, before hours of scoring."""
    path = tmp_path / "results.json"
    path.write_text(json.dumps(content))
    with pytest.raises(
        UserError, match=r"results\.json: (must hold an object|not a results\.json)"
    ):
        read_compared([str(path)])


def test_whole_results_are_compared(tmp_path):
    """Fields that only some scores have are read as they are."""
    rows = [
        score("STS12", "spearman", 1.0, deviation=0.5) | {"by_seed": [1, 2.0], "interval": None},
        score("STS13", "spearman", 1) | {"by_seed": [], "interval": [0, 2.5]},
    ]
    missing = [{"task": "", "what": "sts", "hint": "see the page"}]
    content = results(sts=suite(*rows, missing=missing, notes=["x"], failures=["y"], seeds=[1]))
    path = tmp_path / "results.json"
    path.write_text(json.dumps(content))
    assert read_compared([str(path)]) == [content | {"folder": str(tmp_path)}]


def test_results_of_another_origin_stay(data, tmp_path):
    """A folder that no evaluation has begun may hold anybody's results."""
    path = tmp_path / "out/results.json"
    toy.write(path, ["{}"])
    with pytest.raises(UserError, match="holds other files .results.json.; name another output"):
        _run(toy.encode, data, path.parent, suites=("sts",))
    assert path.read_text() == "{}\n"


def test_later_suites_are_added_to_the_results(data, tmp_path):
    """A later command adds its suites; one without any score replaces nothing."""
    out = tmp_path / "out"
    settings = ("sts.subsets=false",)
    first = _run(toy.encode, data, out, settings, ("sts",))["suites"]
    texts = ["one", "two", "three"]
    for side in ("deu", "eng"):
        toy.write(data / f"tatoeba/v1/tatoeba.deu-eng.{side}", texts)
    both = _run(toy.encode, data, out, suites=("tatoeba",), with_reports=True)["suites"]
    assert list(both) == ["sts", "tatoeba"] and both["sts"] == first["sts"]
    text = (out / "results.md").read_text()
    assert "## sts" in text and "## tatoeba" in text
    refused = _run(toy.encode, data, out, ("tatoeba.languages=xx",), ("tatoeba",))["suites"]
    assert refused["tatoeba"]["failures"] and not refused["tatoeba"]["scores"]
    assert json.loads((out / "results.json").read_text())["suites"] == both
    # Results of another encoder do not belong to this one.
    other = OpenedEncoder("toy", "python", "f" * 16, toy.encode)
    assert list(_run(other, data, out, suites=("tatoeba",))["suites"]) == ["tatoeba"]


def test_scores_depend_on_the_code_but_not_on_the_report(tmp_path):
    """A change of a measure repeats the suites, a change of tables or figures does not."""
    shutil.copytree(Path(driver.__file__).parents[1], tmp_path / "code")

    def digest_change(name):
        with (tmp_path / "code" / name).open("a") as file:
            file.write("# changed\n")
        return driver._digest_code.__wrapped__(tmp_path / "code")

    before = driver._digest_code.__wrapped__(tmp_path / "code")
    assert digest_change("report/tables.py") == before
    after = digest_change("metrics/similarity.py")
    assert len({before, after, digest_change("encoding.py"), digest_change("suites/sts.py")}) == 4


def _refuse(texts):
    if any("number 1001" in text for text in texts):
        raise UserError("no such text, please")
    return toy.encode(texts)


@pytest.mark.parametrize(
    ("encode", "message", "scored"),
    [
        (lambda texts: np.full([len(texts), 2], np.nan), "returned NaN or infinity", []),
        (lambda texts: np.zeros([len(texts), 4]), "the same vector for all texts", ["MR"]),
        (lambda texts: 1 / 0, "the encoder failed on .* ZeroDivisionError", []),
        # The tasks with that text fail, the others are scored.
        (_refuse, ": no such text", ["MR"]),
    ],
)
def test_a_faulty_encoder_is_one_line_a_suite(data, tmp_path, encode, message, scored):
    """One line a suite, and the run ends in order; equal vectors are a failure, not a score."""
    suites = _run(encode, data, tmp_path / "out", FAST)["suites"]
    assert list(suites) == ["senteval", "sts"]
    assert len(suites["senteval"]["failures"]) == 1
    assert [score["task"] for score in suites["senteval"]["scores"]][:1] == scored
    for one in suites.values():
        assert re.search(message, one["failures"][-1])


def test_a_fault_of_a_suite_spares_the_others(data, tmp_path, monkeypatch, capsys):
    """Its trace goes to standard error, a line into the results; roles reach the others."""
    for name in ("mine", "yours"):
        judged = ["q0\tc0\t1", "q1\tc1\t1"]
        texts = {"c0": "cats sleep", "c1": "dogs bark"}, {"q0": "cats", "q1": "dogs"}
        toy.write_beir(data / "beir" / name, *texts, judged)
    encoder = OpenedEncoder(
        *("toy", "python", "0123456789abcdef", toy.encode),
        roles={"query": add_prompt(toy.encode, "find: ")},
    )
    monkeypatch.setattr(senteval_suite, "tasks_in", lambda *args: 1 / 0)
    suites = _run(encoder, data, tmp_path / "out", suites=("senteval", "retrieval"))["suites"]
    assert suites["senteval"]["failures"] == ["stopped by ZeroDivisionError: division by zero"]
    assert "Traceback" in capsys.readouterr().err
    assert {score["task"] for score in suites["retrieval"]["scores"]} == {"mine", "yours", "macro"}
    assert any("'find: '" in note for note in suites["retrieval"]["notes"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["senteval.seed=2"], r"senteval: unknown key seed; did you mean seeds\?"),
        (["senteval.seeds=many"], "senteval: seeds must be int, got 'many'"),
        (["senteval.seeds=0"], "senteval: seeds must be at least 1"),
        (["senteval.seeds"], "write it as suite.option=value"),
        (["tatoeba.pcr=false"], "suite 'tatoeba' is not run"),
        (["senteval.tasks=[a"], "is not a YAML value"),
        (["senteval.seeds="], "there is no value"),
        (["senteval.seeds=1", "senteval.seeds=2"], "senteval.seeds is set twice"),
    ],
)
def test_mistakes_in_settings_are_named(settings, message):
    """Each is named with what is possible."""
    with pytest.raises(UserError, match=message):
        driver.parse_options(["senteval", "sts"], settings)
    with pytest.raises(UserError, match="no suite 'senteva'; there are senteval, probing"):
        driver.parse_options(["senteva"], settings)


def test_results_are_compared_with_four_others(data, tmp_path):
    """Up to four others, by repeated flags or commas; one more is too many."""
    settings = ("sts.subsets=false",)
    path = {name: str(tmp_path / name / "results.json") for name in ("a", "b,c", "d", "e")}
    for name in path:
        _run(toy.encode, data, tmp_path / name, settings, suites=("sts",))
    others = read_compared([f"{path['a']}, {path['d']}", path["b,c"], "", path["e"]])
    assert len(others) == 4
    assert read_compared([]) == read_compared([""]) == []
    with pytest.raises(UserError, match="5 results; .* 5 encoders, so name 4 at most"):
        read_compared([path["a"]] * 5)
    with pytest.raises(UserError, match="name the encoder"):
        read_compared([str(tmp_path / "none.json")])
    _run(toy.encode, data, tmp_path / "out", settings, ("sts",), with_reports=True, compare=others)
    table = (tmp_path / "out/results.md").read_text().split("### All scores")[1]
    header = table.strip().splitlines()[0]
    assert header.count("toy (01234567)") == 5 and "toy (01234567), 5" in header


@pytest.fixture
def binary(capsys):
    """The same in this process, where TensorFlow is imported already; returns (status, output)."""

    def binary(*arguments):
        with flagsaver.flagsaver():
            evaluate.define_flags()
            flags.FLAGS(["prog", *arguments])
            status = evaluate.main()
        return status, capsys.readouterr().out

    return binary


@pytest.mark.parametrize(
    ("settings", "status", "missing"),
    [
        (["--set=sts.tasks=STS-B"], 0, []),
        (["--set=sts.tasks=STS-B,STS12"], 1, ["STS12"]),
        ([], 0, ["STS12, STS13, STS14, STS15, STS16"]),
        # The English sets were not chosen, so their missing data count for nothing.
        (["--set=sts.languages=PT"], 0, []),
        (["--set=sts.languages=de"], 1, ["de"]),
    ],
)
def test_missing_data_is_an_error_where_it_was_named(
    binary, data, tmp_path, monkeypatch, settings, status, missing
):
    """Status 1 for what was named and has no data; 0 where nobody asked for it."""
    # Drawing and intervals take most of a small run's time.
    monkeypatch.setattr(driver, "_write_reports", mock.Mock())
    monkeypatch.setattr(driver.predictions, "add_intervals", mock.Mock())
    toy.write(data / "stsb_multi_mt/stsb-pt-test.csv", ["a,a b,5.0", "c,d,0", "e,f,1.5"])
    arguments = ["--encoder=tests.evaluation.toy:encode", f"--data_dir={data}", "--suites=sts"]
    ended, output = binary(*arguments, f"--output_dir={tmp_path / 'out'}", *settings)
    lacking = [line for line in output.splitlines() if line.startswith("no data: ")]
    assert (ended, [line.split(":")[2].strip() for line in lacking]) == (status, missing), output


def test_the_binary_reports_failures_by_its_status(binary, data, tmp_path):
    """Status 1 and the lines where something failed, 0 otherwise; others are compared."""
    toy.write_year(data / "senteval/downstream/STS/STS12-en-test", ["5", "4"])
    arguments = ["--encoder=tests.evaluation.toy:encode", f"--data_dir={data}", "--name=bag"]
    arguments.append("--set=senteval.tasks=[SST2]")
    suites = ("--suites=sts,senteval", "--set=sts.other_languages=false")
    status, output = binary(*arguments, *suites, f"--output_dir={tmp_path / 'first'}")
    assert status == 1 and "failed: sts: STS12: " in output
    others = [f"--compare={tmp_path / 'first/results.json'}"] * 2
    arguments += ["--suites=senteval", f"--output_dir={tmp_path / 'second'}", *others]
    status, output = binary(*arguments)
    assert status == 0
    assert re.search(r"^senteval: SST2 +\d+\.\d\d +accuracy, %", output, re.MULTILINE)
    text = (tmp_path / "second/results.md").read_text()
    encoders = text.partition("## Encoders")[2].splitlines()
    named = [line for line in encoders if line.startswith("- bag (")]
    assert len(named) == 3 and "Only in compared results: sts." in text


def test_suites_are_listed(binary):
    """`?` answers without an encoder; with a suite's name its options are explained."""
    _, output = binary("--suites=?")
    assert "tatoeba: retrieval of translations" in output
    _, output = binary("--suites=senteval,?")
    assert "configuration: folds and training: `fast` (default)" in output
