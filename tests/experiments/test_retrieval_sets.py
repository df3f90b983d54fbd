"""The retrieval sets of shipped encoders: what is asked, what is right, what is left out."""

import json

import pytest

from experiments.shipped.retrieval_sets import main
from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data import beir
from official_cmlm.evaluation.data.folder import DataFolder
from tests.binaries import call_program


def test_queries_with_one_right_text_are_written(tmp_path):
    """A title of two bodies names none; QNLI's other sentences are candidates and never right."""
    pairs = [("one", "body a"), ("two", "body b"), ("two", "body a"), ("three", "body c")]
    lines = [json.dumps({"title": title, "body": body, "id": "x"}) for title, body in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    (tmp_path / "dev.tsv").write_text(
        "index\tquestion\tsentence\tlabel\n"
        '0\tWhen?\tThe "answer.\tentailment\n'
        "1\tWho?\tNo answer.\tnot_entailment\n"
    )
    inputs = (tmp_path / "pairs.jsonl", tmp_path / "dev.tsv")
    main(*inputs, tmp_path / "out")
    folder = DataFolder(tmp_path / "out")
    sets = {
        name: beir.read(folder, path, "test")
        for name, path in beir.collections_in(tmp_path / "out").items()
    }
    assert sets.keys() == {"titles", "qnli"}
    right = {
        name: {
            part.queries[query]: [part.documents[text] for text in judged]
            for query, judged in part.judgements.items()
        }
        for name, part in sets.items()
    }
    assert right == {
        "titles": {"one": ["body a"], "three": ["body c"]},
        "qnli": {"When?": ['The "answer.']},
    }
    assert list(sets["titles"].documents.values()) == ["body a", "body b", "body c"]
    assert list(sets["qnli"].documents.values()) == ['The "answer.', "No answer."]
    with pytest.raises(UserError, match="exists already"):
        main(*inputs, tmp_path / "out")
    with pytest.raises(UserError, match="nowhere: cannot be read"):
        main("nowhere", inputs[1], tmp_path / "new")


def test_another_number_of_arguments_is_one_line(capsys):
    assert call_program(lambda: cli.run(main), "retrieval_sets", "a") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and line.endswith("; give TITLE_PAIRS QNLI OUTPUT")
