"""The STS suite: every year, convention, subset and language that is there."""

import functools
import shutil

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data import sts
from official_cmlm.evaluation.encoder import LanguageEncoders
from official_cmlm.evaluation.metrics.similarity import cosines, spearman
from official_cmlm.evaluation.report.papers import own_values, paper_tables
from official_cmlm.evaluation.suites import sts as sts_suite
from official_cmlm.evaluation.suites.sts import YEARS
from tests.evaluation import toy


def _write(root, years):
    toy.write_senteval(root / "senteval/downstream")
    for year in years:
        toy.write_year(root / f"senteval/downstream/STS/{year}-en-test", ["5", "4", "", "0"])
    toy.write(root / "stsb_multi_mt/stsb-pt-br-test.csv", ['"a, b",a b,5.0', "c,d,0", "e,f,1.5"])


def _run(root, **options):
    return toy.run(sts_suite, toy.encode, root, **options)


def test_all_that_is_there_is_scored(tmp_path):
    """Years with three conventions and their subsets, STS-B, SICK-R, a language, the average."""
    _write(tmp_path, YEARS)
    report = _run(tmp_path)
    assert report.failures == []
    for convention in ("all", "mean", "wmean"):
        for kind in ("spearman", "pearson"):
            assert report.get("STS13", f"{kind}_{convention}") is not None
    assert report.get("STS16.plagiarism", "spearman") is not None
    assert report.get("STS-B.pt-br", "pearson") is not None
    seven = [report.get(year, "spearman_all") for year in YEARS]
    seven += [report.get(name, "spearman") for name in ("STS-B", "SICK-R")]
    assert report.get("average", "spearman_all") == pytest.approx(np.mean(seven))
    assert "STS12: 5 of 20 pairs have no score; left out" in report.notes
    assert next(s.count for s in report.scores if s.task == "STS12") == 15


def test_missing_years_are_named(tmp_path):
    """They have no data, the others are scored, and an average of fewer says of which."""
    _write(tmp_path, ["STS14"])
    report = _run(tmp_path, subsets=False, other_languages=False)
    assert [one.task for one in report.missing] == ["STS12", "STS13", "STS15", "STS16"]
    assert not report.failures
    assert report.get("STS14", "spearman_all") is not None
    assert report.get("STS14.images", "spearman") is None
    assert report.get("average", "spearman_all") is None
    assert any("not computed without STS12, STS13, STS15, STS16" in note for note in report.notes)
    assert {s.count for s in report.scores if s.task == "average of STS14+STS-B+SICK-R"} == {3}


def test_a_missing_subset_is_no_smaller_year(tmp_path):
    """A year is all of its subsets; what SentEval leaves out is left out, and said."""
    _write(tmp_path, ["STS12", "STS13"])
    folder = tmp_path / "senteval/downstream/STS"
    (folder / "STS12-en-test/STS.input.MSRvid.txt").unlink()
    for kind in ("input", "gs"):
        toy.write(folder / f"STS13-en-test/STS.{kind}.SMT.txt", ["x\ty"])
    report = _run(tmp_path)
    assert any("STS12: " in line and "MSRvid.txt: missing" in line for line in report.unscored)
    assert next(s.count for s in report.scores if s.task == "STS13") == 9
    assert "STS13: STS.input.SMT.txt is not a subset that SentEval scores; left out" in report.notes


def test_pairs_without_a_score_are_left_out(tmp_path):
    """Left out and counted, in every file; the last one may lack its line end."""
    _write(tmp_path, ["STS14"])
    path = tmp_path / "senteval/downstream/STS/STS14-en-test/STS.gs.images.txt"
    path.write_bytes(b"5\n4\n1\n")
    benchmark = tmp_path / "senteval/downstream/STS/STSBenchmark/sts-test.csv"
    lines = benchmark.read_text().splitlines()
    lines[0] = lines[0].replace("\t0.0\t", "\tnan\t")
    benchmark.write_text("\n".join([*lines, "too\tshort"]) + "\n")
    toy.write(tmp_path / "stsb_multi_mt/stsb-xx-test.csv", ['"open,b,1', "a,b,2", "c,d,3"])
    report = _run(tmp_path)
    assert "STS-B: 2 of 61 pairs have no score; left out" in report.notes
    assert "STS-B.xx: 1 of 3 pairs have no score; left out" in report.notes
    assert "STS14: 6 of 24 pairs have no score; left out" in report.notes


def test_other_parts_of_sts_b_have_names_of_their_own(tmp_path):
    """A development score is no `STS-B` and in no average."""
    _write(tmp_path, YEARS)
    toy.write(tmp_path / "stsb_multi_mt/stsb-pt-br-dev.csv", ["a,a b,5.0", "c,d,0", "e,f,1.5"])
    test = _run(tmp_path)
    for split in ("dev", "train"):
        report = _run(tmp_path, split=split)
        tasks = {score.task for score in report.scores}
        assert f"STS-B-{split}" in tasks and not {"STS-B", "STS-B.pt-br", "average"} & tasks
        assert ("STS-B-dev.pt-br" in tasks) == (split == "dev")
        assert [task for task in tasks if task.startswith("average")] == [
            "average of STS12+STS13+STS14+STS15+STS16+SICK-R"
        ]
    both = _run(tmp_path, split="both")
    tasks = {score.task for score in both.scores}
    assert tasks >= {"STS-B", "STS-B-dev", "STS-B.pt-br", "STS-B-dev.pt-br"}
    assert both.get("average", "spearman_all") == test.get("average", "spearman_all")
    assert test.get("STS-B-dev", "spearman") is None


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Returns a folder with one year, the tracks, and STS-B in six languages."""
    root = tmp_path_factory.mktemp("sts")
    _write(root, ["STS14"])
    _write_tracks(root / "STS17")
    for language in ("de", "en", "fr", "SPA"):
        toy.write(root / f"stsb_multi_mt/stsb-{language}-test.csv", ["a,a b,5", "c,d,0", "e,f,1.5"])
    return root


ENGLISH = "STS14 STS-B SICK-R"
SPANISH = "STS-B.SPA STS17.es-es"
BOTH = f"{SPANISH} STS17.es-en-4a STS17.es-en-4b STS17.en-en"
YEARS_MISSING = "STS12 STS13 STS15 STS16"


@pytest.mark.parametrize(
    ("tasks", "languages", "scored", "missing"),
    [
        (
            "",
            "",
            f"{ENGLISH} {BOTH} STS17.ar-ar STS17.ar-en STS17.tr-en STS-B.de STS-B.fr STS-B.pt-br",
            YEARS_MISSING,
        ),
        ("STS-B SICK-R", "", "STS-B SICK-R", ""),
        ("SICK-R", "", "SICK-R", ""),
        ("STS12", "", "", "STS12"),
        # Languages alone ask for no English set; codes have any case, and two or three letters.
        ("", "es", f"{ENGLISH} {SPANISH}", ""),
        ("", "fi FRA", f"{ENGLISH} STS-B.fr", "fi"),
        # Both languages of a pair are named.
        ("", "es en", f"{ENGLISH} {BOTH} STS-B.en", ""),
        ("STS-B", "Deu PT-BR", "STS-B STS-B.de STS-B.pt-br", ""),
        ("STS-B", "FIN", "STS-B", "fi"),
        ("STS17", "es", "STS17.es-es", ""),
        ("STS17", "ara AR", "STS17.ar-ar", ""),
        ("STS17", "fi", "", "fi"),
        ("STS-B STS12", "pt-br", "STS-B STS-B.pt-br", "STS12"),
    ],
)
def test_tasks_and_languages_are_chosen(files, tasks, languages, scored, missing):
    """Other tasks and languages are neither scored nor missing."""
    report = _run(files, tasks=tasks.split(), languages=languages.split(), subsets=False)
    names = {score.task for score in report.scores if not score.task.startswith("average")}
    assert names == set(scored.split()) and report.failures == []
    assert [one.task for one in report.missing] == missing.split()


def test_an_english_translation_repeats_sentevals_file(files, tmp_path):
    """It is left out, with a note, while that file is there."""
    note = "STS-B.en repeats STS-B: left out; sts.languages=en scores it"
    assert note in _run(files, subsets=False).notes
    shutil.copytree(files / "stsb_multi_mt", tmp_path / "stsb_multi_mt")
    assert _run(tmp_path).get("STS-B.en", "spearman") is not None
    # SemEval-2017's tracks need not have English.
    report = _run(tmp_path, tasks=["STS17"], languages=["en"])
    assert [one.task for one in report.missing] == ["STS17", "en"]


def test_the_average_is_named_after_its_part(files):
    """A single task has no average."""
    report = _run(files, tasks=["STS-B", "SICK-R"])
    two = [report.get(name, "spearman") for name in ("STS-B", "SICK-R")]
    assert report.get("average of STS-B+SICK-R", "spearman_average") == pytest.approx(np.mean(two))
    assert report.unscored == [] and report.notes == []
    assert {s.task for s in _run(files, tasks=["SICK-R"]).scores} == {"SICK-R"}
    assert not any("." in s.task for s in _run(files, other_languages=False, subsets=False).scores)


def test_languages_ask_for_no_english_sets(tmp_path):
    """They are scored if they are there, but are missing only where nothing or they are chosen."""
    _write(tmp_path, ["STS14"])
    # A file that is there and broken is still a failure.
    toy.write(tmp_path / "senteval/downstream/STS/STSBenchmark/sts-test.csv", ["x"])
    report = _run(tmp_path, languages=["pt-br"])
    assert len(report.failures) == 1 and report.missing == []
    shutil.rmtree(tmp_path / "senteval")
    report = _run(tmp_path, languages=["pt-br", "de"])
    assert {s.task for s in report.scores} == {"STS-B.pt-br"}
    assert [one.task for one in report.missing] == ["de"]
    assert len(_run(tmp_path).missing) == 7


def test_choices_that_leave_nothing_are_refused(files):
    with pytest.raises(UserError, match=r"nothing to score with sts.tasks=STS17, .*=false"):
        _run(files, tasks=["STS17"], other_languages=False)
    with pytest.raises(UserError, match=r"nothing to score with .* sts.languages=ru"):
        _run(files, tasks=["STS12-MSRvid.ru"], languages=["ru"], other_languages=False)


def test_choices_of_tasks_and_languages_are_filters(files):
    """A language that no task has is missing; other choices leave out what does not fit."""
    report = _run(files, tasks=["SICK-R"], languages=["de"])
    assert [one.task for one in report.missing] == ["de"] and report.scores
    assert "SICK-R in de: missing; add STS-B to sts.tasks" in report.unscored[0]
    report = _run(files, tasks=["SICK-R", "STS17"], other_languages=False)
    assert {score.task for score in report.scores} == {"SICK-R"} and not report.unscored


def _write_tracks(folder, scores="STS2017.gs", texts="STS2017.eval.v1.1"):
    """Writes SemEval-2017's tracks as published: CR LF in one file, more columns in one."""
    for name in TRACKS:
        more, end = "\tWMT\t7" * name.startswith("4b"), "\r" * name.startswith("5")
        rows = [f"{first}\t{second}{more}{end}" for first, second in ROWS]
        toy.write(folder / texts / f"STS.input.track{name}.txt", rows)
        toy.write(folder / scores / f"STS.gs.track{name}.txt", [score + end for score in GOLD])


def _write_russian(folder, texts="STS.input.MSRvid.txt", scores="STS.gs.MSRvid.txt"):
    toy.write(folder / texts, map("\t".join, ROWS))
    toy.write(folder / scores, GOLD)


TRACKS = "1.ar-ar 2.ar-en 3.es-es 4a.es-en 4b.es-en 5.en-en 6.tr-en".split()
ROWS = [("قطة على السرير", "قطة"), ('un "gato"', "un gato negro"), ("a cat", "dogs"), ("ev", "б")]
GOLD = ["5.0", "2.4", "0", "3.75"]


@pytest.mark.parametrize("layout", ["published", "together", "senteval"])
def test_tracks_of_semeval_2017_are_scored(tmp_path, layout):
    """Each track of the published archives, with the pairs' cosines; 4a and 4b are two tasks."""
    base = tmp_path / ("senteval/downstream/STS/STS17" if layout == "senteval" else "STS17")
    names = {} if layout == "published" else {"texts": ".", "scores": "."}
    _write_tracks(base, **names)
    report = _run(tmp_path, tasks=["STS17"])
    tracks = [score.value for score in report.scores if score.metric == "spearman"]
    assert report.unscored == [] and {score.count for score in report.scores} == {4, len(tracks)}
    mean = report.get("average of STS17.*", "spearman_average")
    assert mean == pytest.approx(sum(tracks) / len(tracks))
    assert [s.task for s in report.scores if s.metric == "pearson"] == [
        *("STS17.ar-ar", "STS17.ar-en", "STS17.es-es", "STS17.es-en-4a", "STS17.es-en-4b"),
        *("STS17.en-en", "STS17.tr-en"),
    ]
    pairs = sts.ScoredPairs(*map(list, zip(*ROWS)), np.array(GOLD, float))
    expected = spearman(cosines(toy.encode, pairs), pairs.gold)
    for task in ("STS17.es-es", "STS17.es-en-4b"):
        assert report.get(task, "spearman") == pytest.approx(expected)


def test_track_without_scores_is_missing(tmp_path):
    """The archive of the scores is another one: what lacks is named, with its place."""
    _write_tracks(tmp_path / "STS17")
    (tmp_path / "STS17/STS2017.gs/STS.gs.track3.es-es.txt").unlink()
    report = _run(tmp_path, tasks=["STS17"])
    assert [one.task for one in report.missing] == ["STS17.es-es"]
    assert "STS.gs.track3.es-es.txt" in report.missing[0].what
    assert "STS2017.gs" in report.missing[0].hint
    report = _run(tmp_path / "STS17/STS2017.gs", tasks=["STS17", "STS12-MSRvid.ru"])
    assert [one.task for one in report.missing] == ["STS17", "STS12-MSRvid.ru"]


def test_monolingual_encoders_fill_a_row_of_a_paper(tmp_path):
    """Mirror-BERT's Table 17: one encoder a language, and their mean; English needs none."""
    _write_tracks(tmp_path / "STS17")
    _write_russian(tmp_path / "STS2012_MSRvid_translated")
    tasks = {"es": "STS17.es-es", "ar": "STS17.ar-ar", "ru": "STS12-MSRvid.ru"}
    encoders = {
        name: functools.partial(toy.encode, dim=dim) for name, dim in zip(tasks, (16, 24, 32))
    }
    report = toy.run(sts_suite, LanguageEncoders(encoders), tmp_path)
    assert report.unscored == []
    expected = [
        toy.run(sts_suite, encoders[language], tmp_path).get(task, "spearman")
        for language, task in tasks.items()
    ]
    (table,) = (t for t in paper_tables() if (t.paper, t.table) == ("Mirror-BERT", "Table 17"))
    scores = {f"{score.task}/{score.metric}": score.value for score in report.scores}
    assert own_values(table, scores) == pytest.approx([*expected, np.mean(expected)])
    assert not any("es-en" in task or "en-en" in task for task in scores)


@pytest.mark.parametrize("names", [(), ("input.txt", "labels.txt")])
def test_russian_pairs_have_the_names_of_their_download_or_of_their_reader(tmp_path, names):
    """They are deepPavlovEval's."""
    _write_russian(tmp_path / "STS2012_MSRvid_translated", *names)
    report = _run(tmp_path, tasks=["STS12-MSRvid.ru"])
    assert report.unscored == [] and report.get("STS12-MSRvid.ru", "spearman") is not None
    assert [score.count for score in report.scores] == [4, 4]
    assert {s.task for s in _run(tmp_path, languages=["ru"]).scores} == {"STS12-MSRvid.ru"}
