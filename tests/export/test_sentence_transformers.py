"""The sentence-transformers folder: the source's own tensors, and what its library asks for."""

import functools
import json
import re
import shutil

import numpy as np
import pytest
import tokenizers
import yaml
from safetensors import safe_open
from safetensors.numpy import load_file

from export.export_sentence_transformers import FolderOptions, export
from export.formats import model_card
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions
from official_cmlm.checkpoints.formats.importing import import_checkpoint, read_source
from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import VectorOverride
from official_cmlm.encoding.encoders import open_encoder
from official_cmlm.encoding.exporting import Source
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.binaries import call
from tests.checkpoints.helpers import REFERENCES, TEXTS
from tests.conftest import tiny_encoder_config, write_encoder

HEADLESS = {"minilm", "multilingual_minilm", "labse", "distiluse"}
SENTENCE_PIECE = ["xlm_roberta", "camembert", "multilingual_minilm"]
MODULES = ["labse", "distiluse"]


def assert_same_tensors(tensors, expected):
    assert tensors.keys() == expected.keys()
    for key, tensor in expected.items():
        assert tensors[key].dtype == tensor.dtype
        np.testing.assert_array_equal(tensors[key], tensor, err_msg=key)


def kinds(folder):
    """Returns kind -> path of the modules of a folder."""
    modules = json.loads((folder / "modules.json").read_text())
    return {module["type"].rsplit(".")[-1]: module["path"] for module in modules}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Imports and exports a reference once, with its head if it has one; returns the folder."""

    @functools.cache
    def write(name):
        folder = tmp_path_factory.mktemp(name)
        import_checkpoint(REFERENCES / name, folder / "in")
        export(
            FolderOptions(folder / "in", folder / "out", language_model_head=name not in HEADLESS)
        )
        return folder / "out"

    return write


@pytest.mark.parametrize(
    "name", ["bert", "roberta", "distilbert", "minilm", "mpnet", *SENTENCE_PIECE]
)
def test_round_trip_gives_the_same_tensors_to_the_bit(written, name):
    """Names, shapes and bits; with the head where there is one."""
    folders = (REFERENCES / name, written(name))
    theirs, ours = (load_file(folder / "model.safetensors") for folder in folders)
    assert_same_tensors(ours, theirs)
    expected, config = (json.loads((f / "config.json").read_text()) for f in folders)
    for key in ("model_type", "architectures"):
        assert config[key] == expected[key]
    with safe_open(folders[1] / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize(
    "name",
    ["bert", "roberta", "distilbert", "mpnet", *SENTENCE_PIECE, *MODULES],
)
def test_import_of_an_export_is_the_same_encoder(written, name):
    """Config, vocabulary, pooling, normalisation, length and every weight survive."""
    first, second = (
        read_source(str(folder), ImportOptions()) for folder in (REFERENCES / name, written(name))
    )
    assert first.config.as_dict() == second.config.as_dict()
    assert first.vocabulary.hash == second.vocabulary.hash
    assert first.max_seq_length == second.max_seq_length
    assert_same_tensors(second.encoder, first.encoder)


def test_prompts_survive_both_ways(written, tmp_path):
    """From their file into the encoder directory, and out into the same file."""
    prompts = {"query": "the ", "document": "", "passage": "a ", "STS": "to "}
    theirs = {"prompts": prompts, "default_prompt_name": "STS", "similarity_fn_name": "dot"}
    source = shutil.copytree(written("multilingual_minilm"), tmp_path / "source")
    (source / "config_sentence_transformers.json").write_text(
        json.dumps(theirs | {"__version__": {"pytorch": "2"}}), encoding="utf-8"
    )
    import_checkpoint(str(source), str(tmp_path / "in"), ImportOptions(), False)
    encoder = SentenceEncoder.load(tmp_path / "in")
    assert encoder.prompts == prompts
    roles = open_encoder(str(tmp_path / "in")).roles
    for vectors, prompt in (
        (encoder.encode(TEXTS), "to "),
        (encoder.encode_query(TEXTS), "the "),
        (roles["query"].encode(TEXTS), "the "),
        (encoder.encode_document(TEXTS), "a "),
        (roles["document"].encode(TEXTS), "a "),
    ):
        plain = encoder.encode([prompt + text for text in TEXTS], prompt="")
        np.testing.assert_allclose(vectors, plain, atol=1e-5)
    export(FolderOptions(tmp_path / "in", tmp_path / "out"))
    written = json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text())
    # An empty prompt is as good as none.
    del theirs["prompts"]["document"]
    assert written == theirs


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet", *SENTENCE_PIECE])
def test_tokenizer_json_gives_the_same_ids(written, name):
    """The `tokenizers` library reads the folder and gives the ids, special ones included.

    Two texts are joined as the reference joins them: markers between them, and token types.
    """
    folders = (written(name), REFERENCES / name)
    ours, theirs = (tokenizers.Tokenizer.from_file(str(f / "tokenizer.json")) for f in folders)
    vocabulary = EncoderDirectory.open(folders[0].with_name("in")).vocabulary
    special = vocabulary.special_ids
    rows = vocabulary.tokenizer().tokenize(TEXTS).to_list()
    got = [encoding.ids for encoding in ours.encode_batch(TEXTS)]
    assert got == [[special["cls"], *row, special["sep"]] for row in rows]
    for first, second in zip(TEXTS, TEXTS[1:]):
        mine, other = ours.encode(first, second), theirs.encode(first, second)
        assert (mine.ids, mine.type_ids) == (other.ids, other.type_ids)


@pytest.mark.parametrize("name", MODULES)
def test_dense_module_is_written_as_it_was_read(written, name):
    folders = (written(name), REFERENCES / name)
    assert kinds(folders[0]) == kinds(folders[1])
    assert_same_tensors(*(load_file(f / "2_Dense" / "model.safetensors") for f in folders))
    ours, theirs = (json.loads((f / "2_Dense" / "config.json").read_text()) for f in folders)
    assert ours.items() <= theirs.items()


def test_modules_pooling_and_card_of_a_trained_encoder(tmp_path, vocabulary):
    """Normalisation is a module, pooling a setting; the card tells training and figures."""
    write_encoder(tmp_path / "model", vocabulary, pooling="max", normalize=True)
    (tmp_path / "model" / "params.yaml").write_text("task: {seed: 7}\n")
    results = {"sts": {"STS-B": 82.0316}, "note": "dev"}
    (tmp_path / "results.json").write_text(json.dumps(results))
    file = str(tmp_path / "results.json")
    export(FolderOptions(tmp_path / "model", tmp_path / "out", results_file=file))
    assert [*kinds(tmp_path / "out")] == ["Transformer", "Pooling", "Normalize"]
    pooling = json.loads((tmp_path / "out" / "1_Pooling" / "config.json").read_text())
    assert [key for key, on in pooling.items() if on is True] == ["pooling_mode_max_tokens"]
    length = json.loads((tmp_path / "out" / "sentence_bert_config.json").read_text())
    assert length["max_seq_length"] == 24
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| sts/STS-B | 82.0316 |" in card and "task: {seed: 7}" in card
    source = read_source(str(tmp_path / "out"), ImportOptions())
    assert source.config.normalize and source.config.pooling == "max"


@pytest.mark.parametrize("layers", [0, 1])
def test_weights_of_tokens_are_a_module(tmp_path, vocabulary, layers):
    """`WordWeights` before `Pooling`; imported again it is the same encoder."""
    config = tiny_encoder_config(
        vocab_size=len(vocabulary),
        num_layers=layers,
        pooling="weighted_mean",
        dense_size=5,
        normalize=True,
    )
    model = SentenceEncoderModel(config)
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(weight + rng.normal(scale=0.2, size=weight.shape))
    write_encoder(tmp_path / "model", vocabulary, model=model)
    out = tmp_path / "out"
    export(FolderOptions(tmp_path / "model", out))
    assert [*kinds(out)] == ["Transformer", "WordWeights", "Pooling", "Dense", "Normalize"]
    written = json.loads((out / "1_WordWeights" / "config.json").read_text())
    expected = np.exp(model.token_weights.weights[0].numpy()[:, 0])
    got = [written["word_weights"][token] for token in written["vocab"]]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    import_checkpoint(out, tmp_path / "again")
    texts = ["the cat sat", "a bird", ""]
    first, again = (SentenceEncoder.load(tmp_path / name) for name in ("model", "again"))
    np.testing.assert_allclose(again.encode(texts), first.encode(texts), atol=1e-6)


def test_token_without_a_weight_above_0_is_refused(tmp_path, vocabulary):
    write_encoder(tmp_path / "model", vocabulary, pooling="weighted_mean")
    out = tmp_path / "out"
    export(FolderOptions(tmp_path / "model", out))
    path = out / "1_WordWeights" / "config.json"
    values = json.loads(path.read_text())
    for weight in (0, -1, "1", None, True):
        values["word_weights"]["cat"] = weight
        path.write_text(json.dumps(values))
        with pytest.raises(UserError, match="each entry a weight above 0; fetch it again"):
            read_source(str(out), ImportOptions())


def test_ranges_go_with_their_own_pooling_only(tmp_path, vocabulary):
    model_dir = tmp_path / "model"
    write_encoder(model_dir, vocabulary)
    encoder = SentenceEncoder.load(model_dir)
    encoder.calibrate(TEXTS, on_long="ignore")
    encoder.save_settings(model_dir)
    for pooling in ("mean", "max"):
        output = tmp_path / pooling
        export(FolderOptions(model_dir, output, override=VectorOverride(pooling)))
        assert (output / "embedding_ranges.json").exists() == (pooling == "mean")


NASTY = "a|b\n---\n# <script>alert(1)</script> `x` [y](http://z) \ud800\u2028\u202e\x00 *&amp;*"


def _card(vocabulary, **changed):
    values = dict(
        name="encoder",
        config=tiny_encoder_config(vocab_size=len(vocabulary)),
        architecture="bert",
        vocabulary=vocabulary,
        max_seq_length=24,
        parameters=1,
        results=None,
        training=model_card.Training(),
        publication=model_card.Publication(),
    )
    return model_card.model_card(**(values | changed))


def test_names_cannot_break_out_of_the_card(vocabulary):
    """A title, a metric's name and its value are one line of plain text each."""
    plain = _card(vocabulary, results={"a": {"b": "c"}})
    card = _card(vocabulary, name=NASTY, results={NASTY: {NASTY: NASTY}})
    assert card.count("\n") == plain.count("\n")
    assert "<script" not in card and not set("\ud800\u2028\u202e\x00") & set(card)
    front, rest = card.split("---\n", 2)[1:]
    assert front == plain.split("---\n", 2)[1] and rest.startswith("\n# a\\|b --- \\# &lt;script")
    row = next(line for line in card.splitlines() if line.startswith("| a"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 3
    card.encode("utf-8")
    assert "\n# Sentence encoder\n" in _card(vocabulary, name="\n")


def test_configuration_cannot_end_its_code_block(vocabulary):
    """A fence inside is shorter than the one around it."""
    training = model_card.Training("a: |\n  ```\n  <script>\n  ````\n")
    lines = _card(vocabulary, training=training).splitlines()
    assert lines.count("`````yaml") == lines.count("`````") == 1


RESULTS = {
    "encoder": {"name": "x"},
    "suites": {
        "sts": {
            "scores": [
                {"task": "STS-B", "metric": "spearman", "value": 82.03161, "count": 1379},
                {"task": "STS-B", "metric": "pearson", "value": 81.5, "count": 1379},
                {"task": "SICK-R", "metric": "spearman", "value": 77.15, "count": 4927},
            ],
            "seconds": 1.0,
        }
    },
}


def test_card_has_the_fields_that_hubs_read(tmp_path, vocabulary):
    """Read back by the hub's own library: licence, languages, data, scores; and the run's facts."""
    hub = pytest.importorskip("huggingface_hub")
    records = tmp_path / "news_records"
    records.mkdir()
    manifest = {"kind": "documents", "documents": 1200, "sentences": 34567, "tokens": 890123}
    manifest["languages"] = {"en": 30000, "de": 4567, "und": 3}
    (records / "dataset.json").write_text(json.dumps(manifest))
    write_encoder(tmp_path / "model", vocabulary)
    params = f"task:\n  train_data:\n    input_path: {records}\n"
    (tmp_path / "model" / "params.yaml").write_text(params)
    summary = {"step": 5000, "devices": ["cpu"], "loss": 2.34567}
    (tmp_path / "model" / "train_summary.json").write_text(json.dumps(summary))
    out = tmp_path / "my_model"
    publication = model_card.Publication("apache-2.0", ("owner/news",), (), "owner/base")
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    file = str(tmp_path / "results.json")
    export(FolderOptions(tmp_path / "model", out, results_file=file, publication=publication))
    card = hub.ModelCard.load(out / "README.md")
    data = card.data
    assert (data.license, data.library_name) == ("apache-2.0", "sentence-transformers")
    assert data.pipeline_tag == "sentence-similarity"
    assert (data.language, data.datasets) == (["en", "de"], ["owner/news"])
    assert data.base_model == "owner/base" and data.model_name == "my_model"
    assert [(r.dataset_name, r.metric_type, r.metric_value) for r in data.eval_results] == [
        ("STS-B", "spearman", 82.0316),
        ("STS-B", "pearson", 81.5),
        ("SICK-R", "spearman", 77.15),
    ]
    for line in (
        "| sts | STS-B | spearman | 82.03 | 1379 |",
        "| news\\_records | documents | 1,200 | 34,567 | 890,123 | en, de, und |",
        "Trained for 5,000 steps on cpu; the last loss was 2.346.",
        "    input_path: news_records",
        "`cmlm train params.yaml --data=RECORDS --to=FOLDER`",
    ):
        assert line in card.text, line
    published = (out / "params.yaml").read_text()
    assert published.startswith("# Absolute paths")
    assert published.partition("\n")[2] == params.replace(str(records), "news_records")
    assert str(tmp_path) not in card.content + published


def test_card_without_facts_leaves_fields_out(vocabulary):
    """Nothing is invented: no licence, no language, no scores from other figures."""
    front = _card(vocabulary, results={"STS-B": 82.0}).split("---\n")[1]
    assert [line.partition(":")[0] for line in front.splitlines() if not line.startswith("-")] == [
        "library_name",
        "pipeline_tag",
        "tags",
    ]
    languages = model_card.Publication(languages=("sw",))
    records = {"r": {"languages": {"en-de": 5}}, "broken": {"languages": 3}}
    training = model_card.Training("{}", {}, records)
    for options, expected in (({}, ["en", "de"]), ({"publication": languages}, ["sw"])):
        front = _card(vocabulary, training=training, **options).split("---\n")[1]
        assert yaml.safe_load(front)["language"] == expected


@pytest.mark.parametrize("params", ["{", "a: 1", "task: {train_data: 5}", "[" * 500])
def test_damaged_configuration_names_no_records(tmp_path, vocabulary, params):
    write_encoder(tmp_path, vocabulary)
    (tmp_path / "params.yaml").write_text(params)
    (tmp_path / "train_summary.json").write_text("[")
    source = Source(EncoderDirectory.open(tmp_path), None, 3)
    assert model_card.read_training(source) == model_card.Training(params)


@pytest.mark.parametrize("flag", ["--license=a b", "--datasets=a/b/c", "--languages=en,de x"])
def test_names_for_the_hub_are_checked(flag, capsys):
    assert call("export.export_sentence_transformers", "--model=m", "--export_dir=e", flag) == 1
    assert "must be a name on a model hub; letters, digits" in capsys.readouterr().err


def test_refusals_leave_nothing(tmp_path, vocabulary):
    """An unknown pooling, a missing head and a folder in use are refused."""
    own, new = tmp_path / "own", tmp_path / "new"
    write_encoder(own, vocabulary)
    projected = {"sentence_vector": "projected_mean", "num_projections": 3}
    write_encoder(tmp_path / "projected", vocabulary, **projected)
    write_encoder(tmp_path / "narrow", vocabulary, embedding_width=6, position_offset=2)
    write_encoder(tmp_path / "two_layers", vocabulary, pooling="embedding_last")
    for name, says in (
        ("projected", "projected_mean"),
        ("narrow", "embedding_width 6 has no counterpart in Hugging"),
        ("two_layers", "encoder.pooling is embedding_last,.*export_tfhub"),
    ):
        with pytest.raises(UserError, match=says):
            export(FolderOptions(tmp_path / name, new))
    with pytest.raises(UserError, match="no language-model head"):
        export(FolderOptions(own, new, language_model_head=True))
    assert not new.exists()
    export(FolderOptions(own, new))
    with pytest.raises(UserError, match="pass --overwrite"):
        export(FolderOptions(own, new))
    export(FolderOptions(own, new, overwrite=True))
    (new / "1_Pooling" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"new: holds 1_Pooling/notes.txt, which this program has"):
        export(FolderOptions(own, new, overwrite=True))
    assert (new / "1_Pooling" / "notes.txt").read_text() == "mine"
    with pytest.raises(UserError, match="holds no export"):
        export(FolderOptions(own, own, overwrite=True))
    left = {"own", "projected", "narrow", "two_layers", "new"}
    assert {path.name for path in tmp_path.iterdir()} == left
