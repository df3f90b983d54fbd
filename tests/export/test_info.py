"""Facts of an encoder in lines."""

import json

import numpy as np
import pytest

from export import info
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.search import Index
from tests.binaries import call
from tests.conftest import write_encoder
from tests.search.toy_encoder import Words


@pytest.fixture
def folder(tmp_path, vocabulary):
    return write_encoder(tmp_path / "mine", vocabulary, pooling="max", normalize=True)


def test_info_of_an_encoder_directory(folder, vocabulary, capsys, monkeypatch):
    """Its facts are printed before the backends are measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
    facts = info.describe(EncoderDirectory.open(folder))
    assert facts["vocabulary"].startswith(f"{len(vocabulary)} entries, wordpiece")
    assert facts["pooling"] == "max, sentence_vector pooled"
    assert facts["vector"] == "16 numbers, of length 1"
    assert (facts["prompts"], facts["8 bits"]) == ("none", "not calibrated")
    assert facts["digest"] == EncoderDirectory.open(folder).digest()
    assert call("export.info", f"--model={folder}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [*facts, "backend"]
    assert lines[-1].split()[1].strip(",") in ("onnx", "tensorflow")


def test_info_of_an_index(tmp_path, capsys):
    index = Index.build(Words(), ["one cat", "two dogs", "a bird"], precision="int8")
    index.settings = {"encoder": {"model": "mine", "pooling": "max", "revision": None}}
    index.settings["files"] = {"a.txt": [], "b.txt": []}
    index.save(tmp_path / "my.index")
    assert call("export.info", f"--model={tmp_path}/my.index") == 0
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    size = sum(len(file.read_bytes()) for file in (tmp_path / "my.index").iterdir())
    assert len(lines.pop("digest:")) == 16
    assert lines == {
        "kind:": "index", "encoder:": "mine, pooling max", "passages:": "3", "files:": "2",
        "vector:": "24 numbers of int8", "size:": f"{size / 1e6:.1f} MB",
    }  # fmt: skip
    index.settings = {"encoder": "of another program"}
    index.save(tmp_path / "other.index")
    assert info.describe_index(tmp_path / "other.index")["encoder"] == "not named"


@pytest.mark.parametrize("verbosity", ["-1", "1"])
def test_the_stack_trace_behind_a_line_is_shown_on_request(folder, capsys, verbosity):
    (folder / "vocab.json").write_text('{"max_bytes_per_word": []}')
    assert call("export.info", f"--model={folder}", f"--verbosity={verbosity}") == 1
    written = capsys.readouterr().err
    assert ("Traceback" in written) == (verbosity == "1")
    assert written.splitlines()[-1].startswith("error: ")


def test_info_of_a_classifier(folder):
    np.save(folder / "classifier.npy", np.zeros([17, 2], np.float32))
    (folder / "classifier_labels.json").write_text('["bill", "other"]')
    facts = info.describe(EncoderDirectory.open(folder))
    assert facts["classes"] == "2: bill, other" and "scores" not in facts
    scores = {"held-out texts": 255, "right": "88.2 %", "before training": "82.0 %"}
    (folder / "classifier_scores.json").write_text(json.dumps(scores))
    facts = info.describe(EncoderDirectory.open(folder))
    assert facts["scores"] == "held-out texts 255, right 88.2 %, before training 82.0 %"


def test_prompts_are_named_with_the_default(folder):
    directory = EncoderDirectory.open(folder)
    directory.values.update(prompts={"query": "q: ", "plain": ""}, default_prompt_name="plain")
    assert info.describe(directory)["prompts"] == "query 'q: ', plain '' (default)"
