"""Holding documents out: a function of each document's text."""

import json

import pytest

from data_prep import hold_out
from data_prep.hold_out import is_held_out
from data_prep.readers import Document
from official_cmlm.common.errors import UserError
from tests.data_prep.binaries import run_binary


def test_about_the_share_is_held_out_and_always_the_same():
    documents = [Document(f"d{i}", "en", [f"Document number {i}."]) for i in range(4000)]
    held = [is_held_out(d, 0.1) for d in documents]
    # Five standard deviations of a binomial with p = 0.1.
    assert abs(sum(held) - 400) < 5 * (4000 * 0.1 * 0.9) ** 0.5
    renamed = [Document("other", "de", d.paragraphs) for d in documents]
    assert [is_held_out(d, 0.1) for d in renamed] == held
    assert all(is_held_out(d, 0.2) for d, h in zip(documents, held) if h)
    assert not any(is_held_out(d, 0.0) for d in documents)


def run(tmp_path, name, text, **values):
    (tmp_path / name).write_text(text)
    outputs = {"train_output": tmp_path / "train", "held_out_output": tmp_path / "held"}
    return run_binary(hold_out, input=tmp_path / name, **outputs, **values)


def test_a_single_document_cannot_be_split(tmp_path):
    with pytest.raises(UserError, match="^too few documents, 1, .*documents_by"):
        run(tmp_path, "in.txt", "Only one document.")
    with pytest.raises(UserError, match="^too few sentences, 1, .*; give more text$"):
        run(tmp_path, "in.txt", "Only one document.", sentences=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt"]


def test_pieces_of_a_long_document_stay_together(tmp_path):
    """A document that was cut because it was long is whole again when it is read back."""
    lines = [
        json.dumps({"id": i, "text": f"Текст {i}.", **more}, ensure_ascii=False) + "\n"
        for i in range(60)
        for more in ({}, {"continues": True})
    ]
    assert run(tmp_path, "in.jsonl", "".join(lines), share=0.3) == 0
    for name in ("train", "held"):
        text = (tmp_path / name).read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        assert [bool(line.get("continues")) for line in lines] == [False, True] * (len(lines) // 2)
        assert [a["id"] for a in lines[::2]] == [b["id"] for b in lines[1::2]]
        assert "Текст" in text


def test_sentences_are_divided_alone(tmp_path):
    """Each is in one of the parts, as a document of its own; equal ones are in the same part."""
    text = "\n\n".join(f"This is number {i % 50}. And that is {i}, after it." for i in range(100))
    assert run(tmp_path, "in.txt", text, sentences=True, share=0.5) == 0
    train, held = (
        [json.loads(line)["text"] for line in (tmp_path / name).read_text().splitlines()]
        for name in ("train", "held")
    )
    expected = [f"This is number {i % 50}." for i in range(100)]
    expected += [f"And that is {i}, after it." for i in range(100)]
    assert sorted(train + held) == sorted(expected)
    assert set(train).isdisjoint(held) and 60 < len(held) < 140
