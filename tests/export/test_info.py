"""Facts of an encoder in lines."""

import pytest

from export import info
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from tests.binaries import call
from tests.conftest import write_encoder


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


def test_prompts_are_named_with_the_default(folder):
    directory = EncoderDirectory.open(folder)
    directory.values.update(prompts={"query": "q: ", "plain": ""}, default_prompt_name="plain")
    assert info.describe(directory)["prompts"] == "query 'q: ', plain '' (default)"
