"""Entity linking: hits by hand, and scores of toy dictionaries."""

import numpy as np
import pytest

from official_cmlm.evaluation.report.papers import own_values, paper_tables
from official_cmlm.evaluation.suites import entity_linking
from tests.evaluation import toy

_write = toy.write_text
NAMES = ["a", "b", "c", "d", "e", "f"]


def _encode(texts):
    """Maps a letter to a direction; `xy` lies between, nearer to the first."""
    rows = np.zeros([len(texts), 26], np.float32)
    for row, text in zip(rows, texts):
        for weight, letter in zip((2.0, 1.0), text):
            row[ord(letter) - ord("a")] += weight
    return rows


def _folder(root, name, mentions, names=NAMES, file="mentions.tsv"):
    (root / name).mkdir(parents=True)
    rows = "".join(f"{n.upper()}\t{n}\r\n" for n in names)
    (root / name / "entities.txt").write_bytes(rows.encode())
    (root / name / file).write_text(mentions)


def _run(root, **options):
    return toy.run(entity_linking, _encode, root, **options)


@pytest.mark.parametrize(
    ("mentions", "names", "options", "expected"),
    [
        # Right at once, right at rank 2, outside of the dictionary twice.
        ("a\tA\nba\tA\nz\tZ\nz\tZ\n", NAMES, {}, [(25.0, 4), (50.0, 4), (50.0, 2)]),
        # Each mention with its ids counts once; the case does not make it another one.
        ("a\tA\nA\tA\nz\tZ\n", NAMES, {"unique": True}, [(50.0, 2), (50.0, 2), (100.0, 1)]),
        # With fewer than five names a miss among all of them is a miss at five.
        ("a\tA\nz\tZ\n", ["a", "b"], {}, [(50.0, 2), (50.0, 2), (100.0, 1)]),
    ],
)
def test_accuracies_are_those_by_hand(tmp_path, mentions, names, options, expected):
    """At 1, at 5, and at 1 of those in the dictionary, with their counts."""
    _folder(tmp_path, "set", mentions, names)
    report = _run(tmp_path, **options)
    assert [(score.value, score.count) for score in report.scores] == expected
    metrics = ["accuracy@1", "accuracy@5", "accuracy@1_in_dictionary"]
    assert [score.metric for score in report.scores] == metrics
    assert f"mentions are not in the dictionary of {len(names)} names" in report.notes[0]


def test_both_parts_of_a_mention_must_hit(tmp_path):
    """Both parts must hit; types are scored apart, against the same dictionary."""
    text = "1\t0\t1\ta/b\tT1\tA|B\ta|b\n1\t0\t1\ta/c\tT1\tA|C\ta|f\n1\t0\t1\tc\tT2\tC\n"
    _folder(tmp_path, "entity_linking/set", text, file="test_corpus.txt")
    assert _get_scores(_run(tmp_path)) == {
        "set.pubtator": pytest.approx(200 / 3),
        "set.pubtator.T1": 50.0,
        "set.pubtator.T2": 100.0,
    }


@pytest.mark.parametrize(("score", "accuracy"), [("dot", 0.0), ("cosine", 100.0)])
def test_score_is_the_inner_product_by_default(tmp_path, score, accuracy):
    """A long vector in another direction has the larger inner product, 3, but the cosine .6."""
    _folder(tmp_path, "set", "m\tNEAR\n", names=["near", "far"])
    vectors = {"m": [1.0, 0.0], "near": [1.0, 0.0], "far": [3.0, 4.0]}
    options = {} if score == "dot" else {"score": score}
    report = toy.run(entity_linking, toy.lookup(vectors), tmp_path, **options)
    assert report.get("set", "accuracy@1") == accuracy


def test_a_folder_without_mentions_does_not_stop_others(tmp_path):
    """Nor does one without linked mentions."""
    _folder(tmp_path, "good", "a\tA\n")
    _folder(tmp_path, "none", "", file="other.txt")
    _folder(tmp_path, "unlinked", "a\t-1\n")
    report = _run(tmp_path)
    assert report.get("good", "accuracy@1") == 100.0
    assert [one.task for one in report.missing] == ["none"]
    assert "mentions are mentions.tsv" in report.missing[0].hint
    assert len(report.failures) == 1 and "line 1 is 'a\\t-1'" in report.failures[0]


def _get_scores(report, metric="accuracy@1"):
    return {score.task: score.value for score in report.scores if score.metric == metric}


CDR = """\
227508|t|Naloxone reverses the antihypertensive effect of clonidine.
227508|a|In unanesthetized rats.
227508\t0\t8\ta\tChemical\tD009270
227508\t49\t58\tb\tChemical\tD003000
227508\t93\t105\tf\tDisease\tD006973
227508\t181\t190\tz\tDisease\t-1
227508\tCID\tD009270\tD006973

"""


@pytest.mark.parametrize("place", ["", "CDR.Corpus.v010516/", "CDR_Data/CDR.Corpus.v010516/"])
def test_bc5cdr_is_read_as_published(tmp_path, place):
    """The test set, wherever the archive was unpacked; others only where they are asked for."""
    folder = tmp_path / "bc5cdr"
    _write(folder / "test_dictionary.txt", "D009270||A\r\nD003000||c\r\nD006973||f\r\n")
    _write(folder / "dev_dictionary.txt", "D009270||e\nD003000||b\n")
    for part, relation in (("Test", CDR), ("Development", CDR.replace("f\tDisease", "x\tDisease"))):
        _write(folder / f"{place}CDR_{part}Set.PubTator.txt", relation)
    report = _run(tmp_path)
    assert _get_scores(report) == {
        "bc5cdr.pubtator": pytest.approx(200 / 3),
        "bc5cdr.pubtator.Chemical": 50,
        "bc5cdr.pubtator.Disease": 100,
    }
    assert "BioSyn's processed mentions" in report.notes[1]
    assert "1 unlinked mentions skipped" in report.notes[0]
    assert report.notes[0].endswith("dictionary of 3 names, test_dictionary.txt")
    assert set(_get_scores(_run(tmp_path, split="dev"))) == {
        f"bc5cdr-dev.pubtator{kind}" for kind in ("", ".Chemical", ".Disease")
    }


def test_another_part_is_never_taken(tmp_path):
    """Without the test set its score is missing, and what is there is named."""
    _write(tmp_path / "bc5cdr/entities.txt", "D009270\ta\n")
    for part in ("Development", "Training"):
        _write(tmp_path / f"bc5cdr/CDR_{part}Set.PubTator.txt", CDR)
    report = _run(tmp_path)
    assert report.scores == [] and [one.task for one in report.missing] == ["bc5cdr"]
    assert "CDR_DevelopmentSet.PubTator.txt (--set=entity_linking.split=dev)" in report.unscored[0]
    assert "bc5cdr-train.pubtator" in _get_scores(_run(tmp_path, split="train"))
    (tmp_path / "bc5cdr/entities.txt").unlink()
    assert [one.task for one in _run(tmp_path, split="dev").missing] == ["bc5cdr-dev"]


def test_raw_mentions_are_in_no_column_of_the_paper(tmp_path):
    """Whatever their folder is called: the paper's figures are of BioSyn's processed mentions."""
    for name in ("bc5cdr", "bc5cdr-disease", "ncbi-disease"):
        _write(tmp_path / name / "entities.txt", "D009270\ta\n")
        _write(tmp_path / name / "test_corpus.txt", CDR)
    (table,) = (t for t in paper_tables() if (t.paper, t.table) == ("Mirror-BERT", "Table 2"))
    report = _run(tmp_path)
    scores = {f"{score.task}/{score.metric}": score.value for score in report.scores}
    for (label, _), value, *printed in zip(
        table.columns, own_values(table, scores), *(values for _, values in table.rows)
    ):
        assert (value is None) == (set(printed) != {None}), label


def test_files_of_biosyn_are_read(tmp_path):
    """Dictionary, and one file a document; composite parts; what has no id is left out."""
    folder = tmp_path / "ncbi-disease"
    _write(folder / "test_dictionary.txt", "D1||a\nD1|D2||b\nCUI-less||c\n\nOMIM:3||d\nD4||f\n")
    first = "10021369||0|15||Modifier||a||D1\n10021369||18|33||DiseaseClass||c||CUI-less\n"
    _write(folder / "processed_test/10021369.concept", first)
    second = "9294109||0|15||CompositeMention||b|f||D2+D4\n9294109||1|2||Modifier||z||OMIM:3\n"
    _write(folder / "processed_test/9294109.concept", second)
    _write(folder / "processed_dev/1.concept", "1||0|1||Modifier||a||D1\n")
    report = _run(tmp_path)
    assert _get_scores(report) == {
        "ncbi-disease": pytest.approx(200 / 3),
        "ncbi-disease.CompositeMention": 100,
        "ncbi-disease.Modifier": 50,
    }
    assert report.notes == [
        "ncbi-disease: 0 malformed names, 0 malformed and 1 unlinked mentions skipped; 0 of 3 "
        "mentions are not in the dictionary of 4 names, test_dictionary.txt"
    ]


QUERIES = "C0000001||a\nC0000002|C0000003||b\nC0000004||f\nC0000009||e\n"
ONTOLOGY = "C0000001||a\nC0000002||c\nC0000003||b\nC0000004||d\nC0000005||e\n"


@pytest.mark.parametrize("version", ["xlbel_v0.0", "xlbel_v1.0", "."])
def test_xl_bel_has_a_task_a_language(tmp_path, version):
    """A language is a task; of two ids one is enough; all languages together repeat the others."""
    folder, context = tmp_path / "xl_bel", "_with_context" if version == "xlbel_v1.0" else ""
    _write(folder / "umls_onto_all_lang_cased_wikimed_only_399931.txt", ONTOLOGY)
    lines = QUERIES.replace("\n", "||In <tgt>it</tgt> || as.\n") if context else QUERIES
    for language in ("de", "th", "all"):
        _write(folder / version / f"{language}_1k_test_query{context}.txt", lines)
    report = _run(tmp_path)
    assert _get_scores(report) == {"xl_bel.de": 50, "xl_bel.th": 50} and report.unscored == []
    assert {score.count for score in report.scores} == {3, 4}
    # The version of the published figures comes first.
    if context:
        _write(folder / "xlbel_v0.0/tr_1k_test_query.txt", QUERIES)
        assert set(_get_scores(_run(tmp_path))) == {"xl_bel.tr"}


HEADER = (
    "ID\tTerm\tGeneral SNOMED Label\tGeneral SNOMED ID\tSpecific SNOMED Label\tSpecific SNOMED ID"
    "\tExample\tURL\n"
)


def test_cometa_has_a_task_a_split(tmp_path):
    """Columns by their names, quoted cells; a task a split, with the ids that it is made for."""
    _write(tmp_path / "cometa/COMETA_id_sf_dictionary.txt", "11||a\n12||c\n13||f\n")
    rows = (
        '0\ta\tA\t11\tB\t12\t"It is ""a"", he\tsaid"\thttps://x\n'
        "1\tf\tF\t13\tF\t13\tWell f\thttps://x\n"
        "2\tc\tshort\n"
    )
    for split in ("stratified_general", "stratified_specific", "zeroshot_general"):
        _write(tmp_path / f"cometa/splits/{split}/test.csv", HEADER + rows)
        _write(tmp_path / f"cometa/splits/{split}/dev.csv", HEADER + rows)
    report = _run(tmp_path)
    assert _get_scores(report) == {
        "cometa.stratified_general": 100,
        "cometa.stratified_specific": 50,
        "cometa.zeroshot_general": 100,
    }
    assert "1 malformed and 0 unlinked" in report.notes[0]
    assert "cometa-dev.zeroshot_general" in _get_scores(_run(tmp_path, split="dev"))
    _write(tmp_path / "cometa/splits/zeroshot_general/test.csv", "Term,General SNOMED ID\na,11\n")
    report = _run(tmp_path)
    assert set(_get_scores(report)) == {"cometa.stratified_general", "cometa.stratified_specific"}
    assert "the header is Term,General SNOMED ID; COMETA's has Term and" in report.failures[0]


def test_askapatient_is_the_mean_of_its_folds(tmp_path):
    """Not of all mentions together: folds differ in size."""
    folder = tmp_path / "askapatient"
    _write(folder / "AskAPatient.dict.txt", "1||a\n2||c\n3||f\n")
    for fold, text in enumerate(("1||a\n", "1||a\n2||z\n2||f\n3||c\n")):
        _write(folder / f"AskAPatient.fold-{fold}.test.preprocessed_query.txt", text)
    report = _run(tmp_path)
    assert _get_scores(report) == {"askapatient": (100 + 25) / 2}
    assert {score.count for score in report.scores} == {5}


def test_case_is_ignored_as_in_sapbert(tmp_path):
    """Its code lower-cases names and BioSyn's mentions, but not those of XL-BEL."""
    _write(tmp_path / "xl_bel/umls_onto_x.txt", "C1||B\n")
    _write(tmp_path / "xl_bel/de_1k_test_query.txt", "C1||Aa\n")
    _write(tmp_path / "ncbi/test_dictionary.txt", "C1||B\n")
    _write(tmp_path / "ncbi/processed_test/1.concept", "1||0|1||x||Cc||C1\n")
    for lower_case, texts in ((True, ["cc", "b", "Aa", "b"]), (False, ["Cc", "B", "Aa", "B"])):
        encode = toy.Recording()
        toy.run(entity_linking, encode, tmp_path, lower_case=lower_case)
        assert encode.texts == texts
