"""The retrieval sets of shipped encoders: what is asked, what is right, what is left out."""

import json

from official_cmlm.evaluation.data import beir
from official_cmlm.evaluation.data.folder import DataFolder
from tests.binaries import call


def test_queries_of_one_right_text_alone(tmp_path):
    """A title of two bodies names none; QNLI's other sentences are candidates and never right."""
    pairs = [("one", "body a"), ("two", "body b"), ("two", "body a"), ("three", "body c")]
    lines = [json.dumps({"title": title, "body": body, "id": "x"}) for title, body in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    (tmp_path / "dev.tsv").write_text(
        "index\tquestion\tsentence\tlabel\n"
        '0\tWhen?\tThe "answer.\tentailment\n'
        "1\tWho?\tNo answer.\tnot_entailment\n"
    )
    flags = {"title_pairs": "pairs.jsonl", "qnli": "dev.tsv", "output_dir": "out"}
    arguments = [f"--{name}={tmp_path / value}" for name, value in flags.items()]
    assert call("benchmarks.retrieval_sets", *arguments) == 0
    folder = DataFolder(tmp_path / "out")
    found = {
        name: beir.read(folder, path, "test")
        for name, path in beir.collections_in(tmp_path / "out").items()
    }
    assert found.keys() == {"titles", "qnli"}
    right = {
        name: {
            each.queries[query]: [each.documents[text] for text in judged]
            for query, judged in each.judgements.items()
        }
        for name, each in found.items()
    }
    assert right == {
        "titles": {"one": ["body a"], "three": ["body c"]},
        "qnli": {"When?": ['The "answer.']},
    }
    assert list(found["titles"].documents.values()) == ["body a", "body b", "body c"]
    assert list(found["qnli"].documents.values()) == ['The "answer.', "No answer."]
    assert call("benchmarks.retrieval_sets", *arguments) == 1
