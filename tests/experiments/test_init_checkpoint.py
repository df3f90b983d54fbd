"""Every experiment starts from an imported checkpoint: sizes, weights, head and tokenizer."""

import json
import shutil

import numpy as np
import pytest

from experiments import registry
from export import export_sentence_transformers
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.encoder_weights import read_weights
from official_cmlm.checkpoints.find_encoder import find_encoder
from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions
from official_cmlm.checkpoints.formats.importing import import_checkpoint, read_source
from official_cmlm.common.errors import UserError
from official_cmlm.configs.yaml_loading import read_yaml
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.modeling.language_model_head import head_variables
from official_cmlm.modeling.sentence_encoder import encoder_variables
from official_cmlm.training.inherited_fields import read_starting_encoder
from official_cmlm.training.run import run
from official_cmlm.training.task import SentenceEncoderTask
from tests.checkpoints.helpers import REFERENCES
from tests.conftest import make_documents, write_encoder, write_records
from tests.training.quick_runs import quick_runs

SOURCES = ["bert", "roberta", "distilbert"]
DATA = {"seq_length": 24, "segment": "sentence", "global_batch_size": 4, "bucket_boundaries": [24]}


@pytest.fixture(scope="module")
def imported(request, tmp_path_factory):
    """Imports a checkpoint: (name, encoder directory, records made with its vocabulary)."""
    folder = tmp_path_factory.mktemp(request.param)
    import_checkpoint(str(REFERENCES / request.param), str(folder / "in"), ImportOptions(), False)
    write_records(
        folder / "records", make_documents(30), EncoderDirectory.open(folder / "in").vocabulary
    )
    return request.param, folder / "in", folder / "records"


def _params(experiment, init_checkpoint, records, **task):
    """Loads the published experiment, shortened."""
    values = {
        "task": {
            "train_data": DATA | {"input_path": str(records)},
            "validation_data": DATA | {"input_path": str(records)},
            **task,
        },
        "trainer": {
            "train_steps": 2,
            "steps_per_loop": 1,
            "checkpoint_interval": 2,
            "summary_interval": 2,
            "schedule": {"warmup_steps": 1},
        },
        "runtime": {"distribution_strategy": "one_device"},
    }
    return registry.load(experiment, None, json.dumps(values), str(init_checkpoint))


@pytest.mark.parametrize(
    ("imported", "experiment"),
    [
        # The fast suite has each source and each experiment once.
        pytest.param(source, f"{name}/english_base", marks=() if i == j else pytest.mark.long)
        for i, source in enumerate(SOURCES)
        for j, name in enumerate(("cmlm", "mlm", "quick_thought"))
    ],
    indirect=["imported"],
)
def test_weights_and_head_are_the_sources(imported, experiment):
    """Sizes come from the checkpoint."""
    name, folder, records = imported
    task = SentenceEncoderTask(_params(experiment, folder, records).task)
    model = task.build_model()
    task.initialize(model)
    source = read_source(str(REFERENCES / name), ImportOptions())
    for ours, tensors in (
        (encoder_variables(model.encoder), source.encoder),
        (head_variables(model.head) if model.head else {}, source.head if model.head else {}),
    ):
        assert ours.keys() == tensors.keys()
        for key, tensor in tensors.items():
            np.testing.assert_array_equal(ours[key].numpy(), tensor, err_msg=key)
    assert (model.head is None) == experiment.startswith("quick_thought")
    assert model.encoder.config.layer_norm_epsilon == source.config.layer_norm_epsilon


@pytest.mark.long
@pytest.mark.parametrize("imported", SOURCES, indirect=True)
def test_an_import_is_trained_and_exported(imported, tmp_path):
    """Two steps of CMLM change the weights; the result encodes and is exported."""
    name, folder, records = imported
    with quick_runs():
        run(_params("cmlm/english_base", folder, records), "train", str(tmp_path / "model"))
    before, after = SentenceEncoder.load(folder), SentenceEncoder.load(tmp_path / "model")
    assert after.vocabulary.hash == before.vocabulary.hash
    texts = ["The cat sat.", "a dog"]
    assert np.abs(before.encode(texts) - after.encode(texts)).max() > 1e-5
    weights = read_weights(EncoderDirectory.open(tmp_path / "model")).encoder
    assert weights["type_embeddings/embeddings"].any() == (name != "distilbert")
    export_sentence_transformers.export(
        export_sentence_transformers.FolderOptions(
            str(tmp_path / "model"), str(tmp_path / "out"), language_model_head=True
        )
    )
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == name


@pytest.fixture(scope="module")
def encoders(tmp_path_factory, vocabulary):
    """Makes a sentence encoder (mean, normalised, 36 tokens), and imports a language model."""
    folder = tmp_path_factory.mktemp("encoders")
    dropout = {"dropout_rate": 0.1, "attention_dropout_rate": 0.1}
    write_encoder(folder / "sentences", vocabulary, 36, normalize=True, **dropout)
    import_checkpoint(str(REFERENCES / "bert"), str(folder / "language_model"))
    return folder


def _change_description(start, tmp_path, change):
    """Copies an encoder directory and changes its description."""
    folder = shutil.copytree(start, tmp_path / "changed")
    path = folder / "encoder_config.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    return folder


def _load_encoder(name, start, override=None):
    """Returns the config of the encoder that would be trained, and the notes about it."""
    notes: list[str] = []
    config = registry.load(name, None, override, str(start), notes)
    return config.task.encoder, notes


def test_a_sentence_encoder_stays_what_it_is(encoders):
    """SimCSE has [CLS] without normalisation at 32 tokens; its loss needs none of these."""
    start = encoders / "sentences"
    encoder, notes = _load_encoder("simcse/bert_base", start)
    assert (encoder.pooling, encoder.normalize, encoder.hidden_size) == ("mean", True, 16)
    assert notes == [
        f"task.encoder.pooling: mean, kept from {start}, not cls",
        f"task.encoder.normalize: True, kept from {start}, not False",
        f"length for encoding: 36 tokens, kept from {start}; the training reads 32",
    ]


def test_a_language_model_leaves_the_vector_to_the_experiment(encoders):
    """SimCSE from BERT has the published pooling, since a language model has none of its own."""
    start = encoders / "language_model"
    encoder, notes = _load_encoder("simcse/bert_base", start)
    assert (encoder.pooling, encoder.normalize) == ("cls", False)
    assert notes == [
        f"task.encoder.pooling: cls, the experiment's, as that is not a sentence encoder; {start} "
        "has mean",
        f"length for encoding: 40 tokens, kept from {start}; the training reads 32",
    ]


@pytest.mark.parametrize(
    ("name", "override", "pooling", "line"),
    [
        (
            "mirror_bert/sentence_bert_padded",
            None,
            "mean_padded",
            "pooling: mean_padded, which the method needs; ",
        ),
        ("simcse/bert_base", "task.encoder.pooling=max", "max", "pooling: max, as is set; "),
        ("cmlm/english_base", None, "mean", "normalize: True, kept from "),
        ("cmlm/english_base", "task.encoder.normalize=false", "mean", "normalize: False, the exp"),
        # MiniLM's configuration has 0.1; Mirror-BERT's drophead takes its place.
        ("mirror_bert/sentence_drophead", None, "mean", "dropout_rate: 0.0, the experiment's; "),
    ],
)
def test_a_need_of_the_method_or_the_user_wins(encoders, name, override, pooling, line):
    encoder, notes = _load_encoder(name, encoders / "sentences", override)
    assert encoder.pooling == pooling
    assert [note for note in notes if note.startswith(f"task.encoder.{line}")], notes


def test_another_pooling_drops_the_starts_padded_length(encoders, tmp_path):
    """`padded_length` goes with the pooling that needs it."""
    padded = {"pooling": "mean_padded", "padded_length": 30}
    folder = _change_description(
        encoders / "sentences", tmp_path, lambda values: values["encoder"].update(padded)
    )
    assert _load_encoder("simcse/bert_base", folder)[0].padded_length == 30
    encoder, _ = _load_encoder("simcse/bert_base", folder, "task.encoder.pooling=cls")
    encoder.check()
    assert (encoder.pooling, encoder.padded_length) == ("cls", 0)


def test_fields_of_a_users_own_file_win(encoders, tmp_path):
    """But not what the shipped file says that it is based on."""
    own = tmp_path / "own.yaml"
    own.write_text("base: simcse/bert_base\ntask: {encoder: {pooling: max}}\n")
    assert _load_encoder(str(own), encoders / "sentences")[0].pooling == "max"
    own.write_text("base: simcse/bert_base\ntrainer: {train_steps: 7}\n")
    assert _load_encoder(str(own), encoders / "sentences")[0].pooling == "mean"
    own.write_text("base: simcse/bert_base\nneeds: [pooling]\n")
    assert _load_encoder(str(own), encoders / "sentences")[0].pooling == "cls"
    for wrong in ("pooling", "[hidden_size]", "[[pooling]]"):
        own.write_text(f"base: simcse/bert_base\nneeds: {wrong}\n")
        with pytest.raises(UserError, match="own.yaml: needs must be a list of pooling, padd"):
            registry.load(str(own))


def test_an_import_that_names_its_pooling_is_one_of_sentences(tmp_path):
    import_checkpoint(str(REFERENCES / "bert"), str(tmp_path / "in"), ImportOptions("max"), False)
    assert _load_encoder("simcse/bert_base", tmp_path / "in")[0].pooling == "max"


def test_needs_are_fields_that_the_file_sets():
    """A need of something that the file leaves open would mean the default."""
    needs = {}
    for name, path in registry.experiment_files().items():
        values = read_yaml(path)
        for field in values.get("needs", ()):
            assert field in values["task"]["encoder"], name
            needs[name] = values["needs"]
    assert needs == {"mirror_bert/sentence_bert_padded": ["pooling", "padded_length"]}


@pytest.mark.long
def test_a_trained_encoder_stays_one_of_sentences(encoders, tmp_path):
    """Through a training of shorter texts; both keep their length. A language model stays one."""
    for name, experiment, length in (
        ("sentences", "recipes/adapt", 36),
        ("language_model", "mlm/english_base", 40),
    ):
        start, model = encoders / name, tmp_path / name
        records = tmp_path / f"{name}_records"
        write_records(records, make_documents(30), EncoderDirectory.open(start).vocabulary)
        params = _params(experiment, start, records)
        run(params, "train", str(model))
        run(params, "train", str(model))
        trained = EncoderDirectory.open(model)
        assert trained.max_seq_length == length
        assert trained.config.normalize == (name == "sentences")
        assert read_starting_encoder(str(model)).for_sentences == (name == "sentences")


def test_a_damaged_description_is_named(encoders, tmp_path):
    folder = _change_description(
        encoders / "language_model", tmp_path, lambda values: values.update(for_sentences="no")
    )
    with pytest.raises(UserError, match="for_sentences must be true or false, got 'no'"):
        _load_encoder("simcse/bert_base", folder)


@pytest.mark.parametrize("imported", ["bert"], indirect=True)
def test_records_of_another_vocabulary_are_refused(imported, records_dir):
    _, folder, _ = imported
    task = SentenceEncoderTask(
        _params("mlm/english_base", folder, records_dir, encoder={"vocab_size": 0}).task
    )
    with pytest.raises(UserError, match="vocab"):
        task.initialize(task.build_model())


@pytest.mark.parametrize("imported", ["bert"], indirect=True)
def test_without_the_flag_other_sizes_are_explained(imported):
    _, folder, records = imported
    params = _params("mlm/english_base", folder, records, encoder={"num_layers": 1})
    task = SentenceEncoderTask(params.task)
    with pytest.raises(UserError, match=r"num_layers 2 .here 1.*--init_checkpoint"):
        task.initialize(task.build_model())


def test_a_name_is_that_of_an_encoder_that_ships():
    """As everywhere; a public folder is imported, and a name that nothing has is one line."""
    encoder = registry.load("simcse/tiny", None, None, "mini-en").task.encoder
    shipped = EncoderDirectory.open(find_encoder("mini-en")).config
    assert (encoder.num_layers, encoder.hidden_size) == (shipped.num_layers, shipped.hidden_size)
    public = registry.load("simcse/tiny", None, None, str(REFERENCES / "bert")).task
    assert EncoderDirectory.is_at(public.init_checkpoint)
    with pytest.raises(UserError, match="mini-enn: no folder, encoder that ships"):
        registry.load("simcse/tiny", None, None, "mini-enn")


def test_a_name_of_a_folder_and_of_an_encoder_that_ships_is_refused(
    tmp_path, vocabulary, monkeypatch
):
    """As everywhere; a path and a checkpoint of the folder are clear."""
    monkeypatch.chdir(tmp_path)
    write_encoder(tmp_path / "mini-en", vocabulary)
    with pytest.raises(UserError, match="mini-en: a folder here and an encoder that is installed"):
        registry.load("simcse/tiny", None, None, "mini-en")
    for start in ("./mini-en", "mini-en/ckpt-1"):
        assert registry.load("simcse/tiny", None, None, start).task.init_checkpoint == start
