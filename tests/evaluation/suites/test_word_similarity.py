"""Word similarity: correlations by hand, and the quirks of the files."""

import itertools

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoder import LanguageEncoders
from official_cmlm.evaluation.report.papers import own_values, paper_tables
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import read_tasks
from official_cmlm.evaluation.suites import word_similarity
from official_cmlm.evaluation.suites.word_similarity import Options
from tests.evaluation import toy

_encode = toy.lookup(toy.VECTORS)


def _run(root, encode=_encode, **options):
    return toy.run(word_similarity, encode, root, **options)


_write = toy.write_text
HEADER = "id\tword1\tword2\tpos\tscore\n"
TWO = "1\tx\tx\tn\t6\n2\tx\ty\tn\t0\n"


def _remarks(report):
    """Returns the notes but those that say what a mean is over."""
    return [note for note in report.notes if ": mean over " not in note]


def test_average_is_unweighted(tmp_path):
    """Cosines 1, 0.71, 0, -1: one language agrees, one is reversed; the average is unweighted."""
    rows = [("x", "x"), ("x", "xy"), ("x", "y"), ("x", "-x")]
    good = [f"{i}\t{a}\t{b}\tnouns\t{6 - i}\n" for i, (a, b) in enumerate(rows)]
    bad = [f"{i}\t{a}\t{b}\tnouns\t{i}\n" for i, (a, b) in enumerate(rows[:3])]
    _write(tmp_path / "multi_simlex/aa.tsv", HEADER + "".join(good))
    _write(tmp_path / "multi_simlex/zz.tsv", HEADER + "".join(bad))
    report = _run(tmp_path)
    assert report.get("multi_simlex.aa", "spearman") == pytest.approx(100)
    assert report.get("multi_simlex.zz", "spearman") == pytest.approx(-100)
    assert report.get("multi_simlex.average", "spearman") == pytest.approx(0)
    assert [score.count for score in report.scores] == [4, 3, 7]
    assert not report.failures and not _remarks(report)


def test_malformed_lines_are_skipped(tmp_path):
    """Too few columns, no number, an infinite one, an empty word: skipped and told.

    A file of nothing else is a failure that names it; the average is over the rest.
    """
    bad = "3\tx\ty\tn\n4\tx\ty\tn\tmany\n5\tx\ty\tn\tinf\n6\t\ty\tn\t1\n\n"
    _write(tmp_path / "multi_simlex/aa.tsv", HEADER + TWO + bad)
    _write(tmp_path / "multi_simlex/bb.tsv", HEADER + "nonsense\n")
    report = _run(tmp_path)
    for task in ("aa", "average"):
        assert report.get(f"multi_simlex.{task}", "spearman") == pytest.approx(100)
    assert _remarks(report) == ["multi_simlex.aa: 4 malformed lines skipped"]
    (failure,) = report.failures
    assert "bb.tsv" in failure


def test_cross_lingual_pairs_are_built_unless_a_file_has_them(tmp_path):
    """Made of the languages that are there, unless a file gives them."""
    _multilingual(tmp_path, ["en", "es", "fi"])
    given = "1\ta\tb\tn\t1\n2\tc\td\tn\t2\n3\te\tf\tn\t3\n"
    _write(tmp_path / "cross_lingual_simlex/en-es.tsv", HEADER + given)
    report = _run(tmp_path, toy.encode)
    counts = {score.task: score.count for score in report.scores}
    assert counts["cross_lingual_simlex.en-es"] == 3
    assert counts["cross_lingual_simlex.en-fi"] == counts["cross_lingual_simlex.es-fi"] == 16


def test_each_language_has_its_encoder(tmp_path):
    """Its words are embedded by that alone; what two encoders would embed is left out, and said."""
    _multilingual(tmp_path, ["en", "es", "fi"])
    _write(tmp_path / "simlex/simlex-english.txt", "x\tx\t9\nx\ty\t1\nx1\tx\t5\n")
    encoders = {"en": toy.encode, "es": lambda texts: -1.0 - toy.encode(texts, dim=9)}
    report = _run(tmp_path, LanguageEncoders(encoders))
    scores = {score.task: score.value for score in report.scores}
    for language, encode in encoders.items():
        alone = _run(tmp_path, encode, languages=[language])
        assert scores[f"multi_simlex.{language}"] == alone.get(
            f"multi_simlex.{language}", "spearman"
        )
    mean = np.mean([scores["multi_simlex.en"], scores["multi_simlex.es"]])
    assert scores["multi_simlex.average"] == pytest.approx(mean)
    assert scores.keys() == {
        *("multi_simlex.en", "multi_simlex.es", "multi_simlex.average"),
        *("simlex.english", "simlex.average"),
    }
    (note,) = (note for note in report.notes if note.startswith("left out"))
    assert note == (
        "left out, --encoder has only en, es: multi_simlex.fi, cross_lingual_simlex.en-es, "
        "cross_lingual_simlex.en-fi, cross_lingual_simlex.es-fi"
    )
    with pytest.raises(UserError, match="no task is in the languages of --encoder, which has xx"):
        _run(tmp_path, LanguageEncoders({"xx": toy.encode}))


def test_texts_belong_to_their_tasks(tmp_path):
    """Also those of built pairs, so that texts that were cut are told by task."""
    _multilingual(tmp_path, ["en", "es", "fi"])
    report = SuiteReport()
    tasks = read_tasks(word_similarity.tasks(DataFolder(tmp_path), Options(), report), {})
    texts = {task.name: set(task.texts()[""]) for task in tasks if task.name}
    assert len(texts) == 6 and report.unscored == []
    assert texts["multi_simlex.en"] == {f"{w}{i}" for w in ("en", "x") for i in range(1, 9)}
    assert texts["cross_lingual_simlex.en-fi"] >= {"en1", "fi1"}
    assert not any(text.startswith("es") for text in texts["cross_lingual_simlex.en-fi"])


def _multilingual(root, languages):
    """Writes Multi-SimLex as one table a language."""
    for language in languages:
        lines = [f"{i}\t{language}{i}\tx{i}\tnouns\t{i % 6}\n" for i in range(1, 9)]
        _write(root / f"multi_simlex/{language}.tsv", HEADER + "".join(lines))


@pytest.mark.parametrize("reverse", [False, True])
def test_pairs_of_languages_fill_the_papers_columns(tmp_path, reverse):
    """Read from files, in whichever order and code the languages are named."""
    (table,) = (t for t in paper_tables() if t.table == "Table 18")
    for first, second in itertools.combinations(["ENG", "FRA", "CMN", "HEB"], 2):
        pair = f"{second}-{first}" if reverse else f"{first}-{second}"
        text = f"ID,{pair.replace('-', ',')},POS,Score\n1,x,x,N,6\n2,x,y,N,0\n3,x,-x,N,1\n"
        _write(tmp_path / f"multi_simlex/{pair}.csv", text)
    report = _run(tmp_path)
    scores = {f"{score.task}/{score.metric}": score.value for score in report.scores}
    assert None not in own_values(table, scores)
    assert {s.count for s in report.scores if s.task.endswith("he-zh")} == {3}


def _tables(root, folder="multi_simlex"):
    """Writes the publisher's two tables, of three languages; a word with a comma is quoted."""
    words = ["ID,ENG 1,ENG 2,CMN 1,CMN 2,YUE 1,YUE 2"]
    scores = ["ID,ENG,CMN,YUE"]
    for i, (first, second) in enumerate([("x", "x"), ("x", "xy"), ("x", "y"), ("x", "-x")], 1):
        words.append(f'{i},{first},{second},"{first}",{second},{second},{first}')
        scores.append(f"{i},{6 - i},{i},{'' if i == 2 else 6 - i}")
    _write(root / folder / "translation.csv", "\r\n".join(words) + "\r\n")
    # The rows of both tables are joined by their ids.
    _write(root / folder / "scores.csv", "\r\n".join([scores[0], *scores[:0:-1]]) + "\r\n")


@pytest.mark.parametrize("folder", ["multi_simlex", "multisimlex"])
def test_two_tables_of_multi_simlex_are_joined(tmp_path, folder):
    """As published: words and scores, a column a language; pairs across them are built."""
    _tables(tmp_path, folder)
    report = _run(tmp_path)
    assert report.get("multi_simlex.en", "spearman") == pytest.approx(100)
    assert report.get("multi_simlex.zh", "spearman") == pytest.approx(-100)
    counts = {score.task: score.count for score in report.scores}
    assert counts["multi_simlex.yue"] == 3 and counts["multi_simlex.average"] == 11
    assert "cross_lingual_simlex.en-yue" in counts
    assert _remarks(report) == ["multi_simlex.yue: 1 malformed lines skipped"]
    assert not report.failures and not report.missing


def test_tables_that_do_not_fit_are_named(tmp_path):
    """One is missing, other columns, a language without scores, rows of one table only."""
    _tables(tmp_path)
    folder = tmp_path / "multi_simlex"
    words, scores = ((folder / n).read_text() for n in ("translation.csv", "scores.csv"))
    (folder / "translation.csv").unlink()
    (missing,) = _run(tmp_path).missing
    assert (missing.task, missing.what) == ("multi_simlex", str(folder / "translation.csv"))
    (folder / "translation.csv").write_text("a,b\n1,2\n")
    assert "translation.csv: the columns 'a, b' are not 'ENG 1'" in _run(tmp_path).failures[0]
    (folder / "translation.csv").write_text(words)
    (folder / "scores.csv").write_text(scores.replace("YUE", "POL"))
    assert "scores.csv: no column 'yue'; it has 'id, eng, cmn, pol'" in _run(tmp_path).failures[0]
    (folder / "scores.csv").write_text(scores + "5,1,2,3\n")
    failures = _run(tmp_path).failures
    assert len(failures) == 3
    assert "has 4 rows" in failures[0] and "scores.csv has 5, and not the same ids" in failures[0]


def test_scores_of_annotators_are_averaged(tmp_path):
    """The score is the mean over those who gave one."""
    text = (
        "ID,Word 1,Word 2,POS,Annotator 1,Annotator 2,Annotator 3\n"
        '1,x,x,N,6,5,6\n2,x,xy,N,2,,2\n3,x,y,V,0,5,0\n4,"x",-x,V,0,0,0\n'
    )
    _write(tmp_path / "multi_simlex/ENG.csv", text)
    _write(tmp_path / "multi_simlex/pol-simlex.csv", text)
    report = _run(tmp_path)
    for language in ("en", "pl"):
        assert report.get(f"multi_simlex.{language}", "spearman") == pytest.approx(100)
    assert not _remarks(report) and not report.failures


def test_a_language_in_two_files_is_scored_once(tmp_path):
    """A note says which was read."""
    _tables(tmp_path)
    _write(tmp_path / "multi_simlex/en.tsv", HEADER + TWO)
    report = _run(tmp_path)
    assert "multi_simlex.en: en.tsv is read, not translation.csv" in report.notes
    assert {s.count for s in report.scores if s.task == "multi_simlex.en"} == {2}


SIMLEX_999 = (
    "word1\tword2\tPOS\tSimLex999\tconc(w1)\tconc(w2)\tconcQ\tAssoc(USF)\tSimAssoc333\tSD(SimLex)\n"
    "x\tx\tA\t9.2\t1.75\t2.46\t1\t7.11\t1\t0.67\nx\txy\tN\t8\t1\t2\t1\t0\t0\t1\nx\ty\tN\t1.5\t1\t2\t1\t9\t0\t1\n"
)


@pytest.mark.parametrize(
    ("path", "text", "task", "count"),
    [
        # Ten columns, of which the fourth is the score; it is English.
        ("simlex/SimLex-999.txt", SIMLEX_999, "simlex.english", 3),
        ("SimLex-999/SimLex-999.txt", SIMLEX_999, "simlex.english", 3),
        # CR alone ends a line, and the language is in the file's name.
        ("simlex/simlex-de.txt", "word 1\tword 2\tscore\rx\tx\t9\rx\ty\t1", "simlex.de", 2),
        # A first line with a score is a pair, whatever its words are.
        ("simlex/simlex-x.txt", "x\tx\t9\nx\ty\t1\n", "simlex.x", 2),
    ],
)
def test_every_form_of_simlex_is_read(tmp_path, path, text, task, count):
    _write(tmp_path / path, text)
    report = _run(tmp_path)
    assert report.get(task, "spearman") == pytest.approx(100)
    assert report.scores[0].count == count


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Word 1,Word 2,Weight\nx,y,1\n", "the columns 'Word 1, Word 2, Weight'"),
        ("x,y\nx,x\n", "2 columns without names"),
        ("ID,a,b,c\n1,x,y,1\n", "the columns 'ID, a, b, c'"),
    ],
)
def test_unknown_form_is_named(tmp_path, text, form):
    """One line with what was found and what is known."""
    _write(tmp_path / "multi_simlex/ENG.csv", text)
    (failure,) = _run(tmp_path).failures
    assert f"ENG.csv: {form}; known are columns named word 1, word 2 and score" in failure


def test_chosen_tasks_and_languages_are_scored(tmp_path):
    """Any code selects a language; the mean over a part is named as such; absent ones are named."""
    _multilingual(tmp_path, ["en", "es", "fi"])
    _write(tmp_path / "simlex/simlex-english.txt", "x\tx\t9\nx\ty\t1\n")
    report = _run(tmp_path, toy.encode, languages=["ENG", "fi"])
    assert [score.task for score in report.scores] == [
        "multi_simlex.en",
        "multi_simlex.fi",
        "multi_simlex.average of 2",
        "simlex.english",
        "cross_lingual_simlex.en-fi",
    ]
    assert "multi_simlex.average of 2: mean over en fi, a part that was chosen" in report.notes
    assert not report.missing and not report.failures
    report = _run(tmp_path, toy.encode, tasks=["cross_lingual_simlex"])
    assert {score.task.partition(".")[0] for score in report.scores} == {"cross_lingual_simlex"}
    assert len(report.scores) == 4 and not _remarks(report)
    with pytest.raises(UserError, match="no 'de'; it has en, english, es, fi"):
        _run(tmp_path, toy.encode, languages=["de"])
    (tmp_path / "simlex/simlex-english.txt").unlink()
    report = _run(tmp_path, toy.encode, tasks=["simlex", "multi_simlex"])
    assert [one.task for one in report.missing] == ["simlex"] and report.scores
