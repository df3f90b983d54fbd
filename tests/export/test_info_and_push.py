"""Facts of an encoder in lines; an encoder on the hub, of which the tests hold a stand-in."""

import huggingface_hub
import pytest

from export import info
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from tests.binaries import call
from tests.conftest import write_encoder


@pytest.fixture
def folder(tmp_path, vocabulary):
    return write_encoder(tmp_path / "mine", vocabulary, pooling="max", normalize=True)


@pytest.fixture
def hub(monkeypatch):
    """A hub that takes everything; returns what it was asked, and the files that it got."""
    asked = []

    def upload(repo_id, folder_path):
        files = {path.name for path in folder_path.iterdir()}
        asked.append(("upload", repo_id, files, (folder_path / "README.md").read_text()))
        return f"https://hub.example/{repo_id}"

    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "token")
    monkeypatch.setattr(
        huggingface_hub, "create_repo", lambda **values: asked.append(("create", values))
    )
    monkeypatch.setattr(huggingface_hub, "upload_folder", upload)
    return asked


def test_info_of_an_encoder_directory(folder, vocabulary, capsys, monkeypatch):
    """Its facts are printed before the backends are measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
    found = info.facts(EncoderDirectory.open(folder))
    assert found["vocabulary"].startswith(f"{len(vocabulary)} entries, wordpiece")
    assert found["pooling"] == "max, sentence_vector pooled"
    assert found["vector"] == "16 numbers, of length 1"
    assert (found["prompts"], found["8 bits"]) == ("none", "not calibrated")
    assert found["digest"] == EncoderDirectory.open(folder).digest()
    assert call("export.info", f"--model={folder}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [*found, "backend"]
    assert lines[-1].split()[1].strip(",") in ("onnx", "tensorflow")


def test_prompts_are_named_with_the_default(folder):
    directory = EncoderDirectory.open(folder)
    directory.values.update(prompts={"query": "q: ", "plain": ""}, default_prompt_name="plain")
    assert info.facts(directory)["prompts"] == "query 'q: ', plain '' (default)"


def test_push_uploads_the_export_with_its_card(folder, hub, capsys):
    """The name on the hub is the card's title; the repository is private unless wanted."""
    arguments = [f"--model_dir={folder}", "--repository=org/name", "--license=mit"]
    assert call("export.push", *arguments) == 0
    (_, made), (_, name, files, card) = hub
    assert made == {"repo_id": "org/name", "private": True, "exist_ok": True} and name == "org/name"
    assert {"model.safetensors", "modules.json", "config.json", "README.md"} <= files
    assert "license: mit\n" in card and "\n# name\n" in card
    assert capsys.readouterr().out == "https://hub.example/org/name\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "--repository=name: is not a name of the hub; give org/name"),
        ({"get_token": lambda: None}, "no token of the Hugging Face hub; run `hf auth login`"),
        (
            {"create_repo": lambda **values: (_ for _ in ()).throw(OSError("no route to host"))},
            "org/name: the hub did not take it (OSError: no route to host); check the network",
        ),
    ],
)
def test_push_refuses_in_a_line_before_any_work(folder, hub, capsys, monkeypatch, change, message):
    for name, function in (change or {}).items():
        monkeypatch.setattr(huggingface_hub, name, function)
    repository = "org/name" if change else "name"
    assert call("export.push", f"--model_dir={folder}", f"--repository={repository}") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}") and not hub
