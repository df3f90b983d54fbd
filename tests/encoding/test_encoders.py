"""Encoders of every kind: the same embeddings, fingerprints that tell them apart, fine-tuning."""

import dataclasses
import shutil
import sys
import types

import numpy as np
import pytest

from export.service.embedder import TextEmbedder
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.classifier import Classifier
from official_cmlm.encoding.encoders import by_language, open_encoder
from official_cmlm.encoding.fine_tuning import FineTuningConfig, fine_tune
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from tests.conftest import change_json, write_encoder
from tests.pairs_helpers import PROMPTS, write_prompted_encoder

TEXTS = ["The cat sat on the mat.", "dog", "a bird flew under the tree slowly and then", ""]


@pytest.fixture(scope="module")
def encoder_dir(tmp_path_factory, vocabulary):
    """Writes one encoder directory for all tests here."""
    return write_encoder(tmp_path_factory.mktemp("encoder") / "tiny", vocabulary)


@pytest.mark.parametrize("length", [None, 6])
def test_directory_and_modules_agree(exported, length):
    """The exported pair gives the directory's embeddings and numbers of tokens, also cut."""
    ours, theirs = (open_encoder(str(path), length) for path in exported)
    assert (ours.kind, theirs.kind, ours.name) == ("encoder_directory", "tfhub", "model")
    np.testing.assert_allclose(theirs.encode(TEXTS), ours.encode(TEXTS), atol=1e-5)
    assert ours.fingerprint != theirs.fingerprint
    texts = [*TEXTS, "the cat " * 300]
    counts = ours.count_tokens(texts)
    assert counts[3] == 2 and counts[4] == 602
    assert theirs.count_tokens(texts).tolist() == counts.tolist()
    assert ours.max_seq_length == theirs.max_seq_length == (length or ours.max_seq_length)
    # A service takes the ids of its count, and no text is tokenised twice.
    embedder = TextEmbedder(dataclasses.replace(theirs, encode=None, count_tokens=None))
    rows = embedder.read(texts)
    assert rows.exact and rows.tokens.tolist() == counts.tolist()
    np.testing.assert_allclose(embedder.embed(rows.items), ours.encode(texts), atol=1e-5)
    # Text beyond the limit does not change the vector; text within it does.
    limit = ours.max_seq_length - 2
    longer, whole, shorter = (
        ours.encode(["the " * count])[0] for count in (limit + 3, limit, limit - 1)
    )
    np.testing.assert_allclose(longer, whole, atol=1e-6)
    assert not np.allclose(shorter, whole, atol=1e-6)


def test_fingerprint_follows_weights_and_settings(encoder_dir, vocabulary, tmp_path):
    """Equal for a second look; another for other weights, length or precision, not for logs."""
    first = open_encoder(str(encoder_dir)).fingerprint
    (encoder_dir / "events.log").write_text("a training writes this")
    assert open_encoder(str(encoder_dir)).fingerprint == first
    others = {
        open_encoder(str(encoder_dir), 12).fingerprint,
        open_encoder(str(encoder_dir), precision="bfloat16").fingerprint,
        open_encoder(str(write_encoder(tmp_path / "other", vocabulary))).fingerprint,
    }
    assert len(others) == 3
    assert first not in others


def test_python_objects(tmp_path, monkeypatch):
    """A function, an object with `encode` and a class of such objects."""
    (tmp_path / "my_encoders.py").write_text(
        "import numpy as np\n"
        "def lengths(texts): return np.array([[len(t), 1.0] for t in texts])\n"
        "class Encoder:\n"
        "    def encode(self, texts): return 2 * lengths(texts)\n"
        "one = Encoder()\n"
        "number = 3\n"
        "class Picky:\n"
        "    def __init__(self, size): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    function = open_encoder("my_encoders:lengths")
    assert function.encode(["abc"]).tolist() == [[3, 1]]
    of_class, of_object = open_encoder("my_encoders:Encoder"), open_encoder("my_encoders:one")
    assert of_class.encode(["abc"]).tolist() == of_object.encode(["abc"]).tolist() == [[6, 2]]
    assert len({e.fingerprint for e in (function, of_class, of_object)}) == 3
    assert open_encoder("my_encoders:one").fingerprint == of_object.fingerprint
    for path, message in (
        ("my_encoders:number", "neither a function nor anything with encode"),
        ("my_encoders:nothing", "cannot be imported"),
        ("no_such_module:x", "cannot be imported"),
        ("my_encoders:Picky", "cannot be imported .TypeError"),
    ):
        with pytest.raises(UserError, match=message):
            open_encoder(path)
    with pytest.raises(UserError, match="does not apply to my_encoders:one"):
        open_encoder("my_encoders:one", max_seq_length=8)
    for option in ({"precision": "bfloat16"}, {"poling": "max"}):
        with pytest.raises(UserError, match=f"--{next(iter(option))}=.* does not apply to"):
            open_encoder("my_encoders:one", **option)
    assert open_encoder("my_encoders:one", backend="auto", workload="bulk", pooling=None)


def test_prompts_of_python_objects(tmp_path, monkeypatch):
    """An attribute `prompts`, methods of their own, neither; each has another fingerprint."""
    (tmp_path / "prompted.py").write_text(
        "import numpy as np\n"
        "class Plain:\n"
        "    def encode(self, texts): return np.array([[len(t), 1.0] for t in texts])\n"
        "class Prompts(Plain):\n"
        "    prompts = {'query': 'query: ', 'passage': 'p: ', 'STS': '', 'none': None}\n"
        "class Others(Prompts):\n"
        "    prompts = {'query': 'question: '}\n"
        "class Methods(Plain):\n"
        "    def encode_query(self, texts): return 2 * self.encode(texts)\n"
        "    def encode_document(self, texts): return 3 * self.encode(texts)\n"
        "class Wrong(Plain):\n"
        "    prompts = ['query: ']\n"
        "class Zeros(Plain):\n"
        "    prompts = np.zeros(2)\n"
    )
    monkeypatch.chdir(tmp_path)
    opened = {
        name: open_encoder(f"prompted:{name}") for name in ("Plain", "Prompts", "Others", "Methods")
    }
    assert {name: sorted(encoder.roles) for name, encoder in opened.items()} == {
        "Plain": [],
        "Prompts": ["document", "passage", "query"],
        "Others": ["query"],
        "Methods": ["document", "query"],
    }

    def both(name, text):
        roles = opened[name].roles
        return [roles[role].encode([text])[0][0] for role in ("query", "document")]

    assert both("Prompts", "a") == [8, 4] and both("Methods", "a") == [2, 3]
    assert len({encoder.fingerprint for encoder in opened.values()}) == 4
    for name in ("Wrong", "Zeros"):
        with pytest.raises(UserError, match=f"prompted:{name}: prompts must be name -> string"):
            open_encoder(f"prompted:{name}")


def test_prompts_of_an_encoder_directory(encoder_dir, tmp_path):
    """An entry of `encoder_config.json`; without it there is none."""
    assert open_encoder(str(encoder_dir)).roles == {}
    folder = tmp_path / "prompted"
    shutil.copytree(encoder_dir, folder)
    path = folder / "encoder_config.json"
    change_json(path, prompts={"query": "the "})
    opened = open_encoder(str(folder))
    vectors = opened.roles["query"].encode(["dog"])
    assert np.array_equal(vectors, opened.encode(["the dog"]))
    assert opened.fingerprint != open_encoder(str(encoder_dir)).fingerprint
    assert opened.prompt == "" and opened.count_tokens(["dog"]).tolist() == [3]
    change_json(path, default_prompt_name="query")
    opened = open_encoder(str(folder))
    assert opened.prompt == "the " and opened.count_tokens(["dog"]).tolist() == [3]


class _SentenceTransformer(list):
    """The part of that library's class that is used; like it, a list of modules."""

    prompts, default_prompt_name, modules = {}, None, []
    max_seq_length = 512

    def tokenizer(self, texts, truncation, padding, verbose):
        assert not (truncation or padding or verbose)
        return {"input_ids": [[2, *map(len, text.split()), 3] for text in texts]}

    def __init__(self, folder):
        super().__init__(self.modules)
        self.prompts = {"query": "", "document": ""} | self.prompts

    def encode(self, texts, prompt_name=None, show_progress_bar=None, convert_to_numpy=True):
        prompt = self.prompts.get(prompt_name or self.default_prompt_name) or ""
        return np.array([[len(prompt + text), 1.0] for text in texts])

    def encode_query(self, texts, prompt_name=None, **kwargs):
        return self.encode(texts, prompt_name or "query", **kwargs) * [1, 2]

    def encode_document(self, texts, prompt_name=None, **kwargs):
        return self.encode(texts, prompt_name or "document", **kwargs) * [1, 3]


def _open(folder, monkeypatch, values, max_seq_length=None):
    """Opens a folder of that library, whose model has attributes of these values."""
    library = types.ModuleType("sentence_transformers")
    library.SentenceTransformer = type("SentenceTransformer", (_SentenceTransformer,), values)
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    (folder / "modules.json").write_text("[]")
    return open_encoder(str(folder), max_seq_length)


@pytest.mark.parametrize(
    ("values", "roles"),
    [
        ({"prompts": {"query": "", "document": ""}}, {}),
        ({"prompts": {"query": "q: ", "document": ""}}, {"query": "q: "}),
        (
            {"prompts": {"query": "q: ", "passage": "p: ", "STS": "s: "}},
            {"query": "q: ", "passage": "p: ", "STS": "s: ", "document": "p: "},
        ),
        (
            {"prompts": {"STS": "s: "}, "default_prompt_name": "STS"},
            {"STS": "s: ", "query": "", "document": ""},
        ),
        ({"modules": [type("Router", (), {})()]}, {"query": "", "document": ""}),
    ],
)
def test_prompts_of_sentence_transformers(tmp_path, monkeypatch, values, roles):
    """The library's own methods are used if they differ from `encode`."""
    opened = _open(tmp_path, monkeypatch, values)
    assert {name: role.prompt for name, role in opened.roles.items()} == roles
    assert opened.max_seq_length == 512
    assert opened.count_tokens(["a b c", "", "a"]).tolist() == [5, 2, 3]
    for name, number in (("query", 2), ("document", 3), ("STS", 1)):
        if name in roles:
            expected = [len(roles[name]) + 1, number]
            assert opened.roles[name].encode(["a"]).tolist() == [expected]


def test_other_tokenizers_count_nothing(tmp_path, monkeypatch):
    """A sentence-transformers model may have one that cannot be asked."""
    opened = _open(tmp_path, monkeypatch, {"tokenizer": "none"}, 9)
    assert opened.count_tokens is None and opened.max_seq_length == 9


def test_no_encoder(tmp_path):
    """The error says what would be one."""
    with pytest.raises(UserError, match="not an encoder directory .* name a --model_dir"):
        open_encoder(str(tmp_path))
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(UserError, match="modules none cannot be represented"):
        open_encoder(str(tmp_path))


def test_fine_tuning_learns_and_leaves_the_encoder(vocabulary, tmp_path, monkeypatch):
    """Two kinds of sentences that a random encoder's classifier learns; the folder is untouched.

    Texts have the default prompt in training and later: the classifier keeps the prompts.
    """
    encoder_dir = write_prompted_encoder(tmp_path / "start", vocabulary, default="query")
    read, inputs = set(), SentenceEncoder.inputs
    monkeypatch.setattr(SentenceEncoder, "inputs", lambda *a: read.update(a[1]) or inputs(*a))
    texts = [f"the {animal} {verb}" for animal in ("cat", "dog", "bird") for verb in ("sat", "ran")]
    labels = np.array([0, 1] * 3)
    before = SentenceEncoder.load(encoder_dir).encode(TEXTS)
    config = FineTuningConfig(epochs=30, batch_size=3, learning_rate=5e-3)
    steps = []
    classifier = fine_tune(
        encoder_dir, texts, labels, 2, 1, config, lambda total: steps.append(total) or steps.append
    )
    assert classifier.predict(texts).tolist() == labels.tolist()
    assert classifier.predict([]).tolist() == []
    assert steps[0] == len(steps) - 1 == 60
    assert read == {PROMPTS["query"] + text for text in texts}
    assert np.array_equal(SentenceEncoder.load(encoder_dir).encode(TEXTS), before)
    with pytest.raises(ValueError, match="as many texts as labels, got 6 and 5"):
        fine_tune(encoder_dir, texts, labels[:5], 2, 1)

    folder = tmp_path / "classifier"
    dataclasses.replace(classifier, label_names=("yes", "no")).save(folder)
    again = Classifier.load(folder)
    assert again.encoder.prompts["query"] == PROMPTS[again.encoder.default_prompt_name]
    assert again.predict_names(texts[:2]) == ["yes", "no"]
    probabilities = again.predict_proba(texts)
    np.testing.assert_allclose(probabilities, classifier.predict_proba(texts), atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    assert again.predict(texts).tolist() == labels.tolist()
    vectors = open_encoder(str(folder)).encode(texts)
    np.testing.assert_allclose(vectors, classifier.encoder.encode(texts), atol=1e-5)
    for folder_there, overwrite, message in (
        (folder, False, "holds a classifier already"),
        (encoder_dir, True, "exists and holds no classifier"),
    ):
        with pytest.raises(UserError, match=message):
            classifier.save(folder_there, overwrite)
    (folder / "classifier_labels.json").write_text('["yes"]')
    with pytest.raises(UserError, match="classifier_labels.json: is not a list of 2 names"):
        Classifier.load(folder)
    classifier.save(folder, overwrite=True)
    assert not Classifier.load(folder).label_names
    with pytest.raises(UserError, match="holds no classifier"):
        Classifier.load(encoder_dir)
    np.save(folder / "classifier.npy", np.full([vectors.shape[1] + 1, 2], np.nan, np.float32))
    with pytest.raises(UserError, match="classifier.npy: holds non-finite values"):
        Classifier.load(folder)
    (folder / "classifier.npy").write_bytes(b"x")
    with pytest.raises(UserError, match="classifier.npy: damaged"):
        Classifier.load(folder)


def test_one_encoder_a_language(tmp_path):
    """Languages are told from modules and from folders; a language that comes twice is refused."""
    (tmp_path / "en").mkdir()
    folder = str(tmp_path / "en")
    assert by_language(folder) == {"": folder}
    assert by_language(f"en:{folder}") == {"en": folder}
    assert by_language("EN:a, zh-Hant:b:c") == {"en": "a", "zh-hant": "b:c"}
    assert by_language("en:encode") == {"": "en:encode"}
    assert by_language("my_encoders:one") == {"": "my_encoders:one"}
    with pytest.raises(UserError, match="a language is named twice"):
        by_language("en:a,en:b")


@pytest.mark.long
def test_processes(encoder_dir):
    """Two processes return what one does, in order; no text is left out."""
    texts = [f"{text} {i}" for i in range(5) for text in TEXTS]
    whole = open_encoder(str(encoder_dir)).encode(texts)
    divided = open_encoder(str(encoder_dir), workers=2)
    assert divided.workers == 2
    np.testing.assert_allclose(divided.encode(texts), whole, atol=1e-6)
    np.testing.assert_allclose(divided.encode(texts[:1]), whole[:1], atol=1e-6)


def test_a_process_that_dies(tmp_path, monkeypatch):
    """One line that says what may help, and no hanging."""
    (tmp_path / "fatal_encoder.py").write_text(
        "import os\n"
        "import numpy as np\n"
        "def encode(texts):\n"
        "    return os._exit(3) if 'die' in texts else np.ones([len(texts), 2])\n"
    )
    monkeypatch.chdir(tmp_path)
    opened = open_encoder("fatal_encoder:encode", workers=2)
    assert opened.encode(["a", "b", "c"]).tolist() == [[1.0, 1.0]] * 3
    with pytest.raises(UserError, match="use fewer processes"):
        opened.encode(["a", "die"])
