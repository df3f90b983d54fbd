"""Exports an encoder for PyTorch users: `cmlm export ENCODER --to=sentence-transformers`.

Writes a folder that `sentence_transformers.SentenceTransformer(path)` and `transformers` load as it
is. PyTorch is not needed to write it.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_arrays import Tensors
from official_cmlm.checkpoints.encoder_directory import write_published_settings
from official_cmlm.checkpoints.formats.huggingface import DENSE_ACTIVATIONS, MODULES
from official_cmlm.checkpoints.formats.huggingface_config import CLASSES, config_json
from official_cmlm.checkpoints.formats.huggingface_tensors import (
    ARCHITECTURES,
    encoder_names,
    head_names,
    to_huggingface,
)
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import (
    GENERATED,
    README,
    atomic_write,
    read_object,
    write_json,
)
from official_cmlm.configs.encoder import POOLINGS, EncoderConfig
from official_cmlm.encoding import exporting
from official_cmlm.encoding.backends.onnx_graph import SUBFOLDER
from official_cmlm.vectors.embeddings import RANGES_NAME

from .formats.huggingface_tokenizer import OWN_FILES as TOKENIZER_FILES
from .formats.huggingface_tokenizer import write_tokenizer
from .formats.model_card import Publication, model_card, read_training

# The switches of poolings in the configuration of the module `Pooling`.
_SWITCHES = sorted({pooling.exported_as for pooling in POOLINGS.values() if pooling.exported_as})
# Regular expression of the files of this export, and of the graphs that `export_onnx` adds.
OWN_FILES = "|".join(
    [
        TOKENIZER_FILES,
        r"model\.safetensors|params\.yaml",
        r"(config|modules|sentence_bert_config|config_sentence_transformers)\.json",
        r"\d_(WordWeights|Pooling|Dense|Normalize)/(config\.json|model\.safetensors)",
        rf"{re.escape(RANGES_NAME)}|{SUBFOLDER}/model(_\w+)?\.onnx",
    ]
)
LIBRARY = "sentence_transformers.models."


@dataclasses.dataclass(frozen=True)
class FolderOptions(exporting.ExportOptions):
    """Options of `export`.

    Attributes:
      language_model_head: whether to write the masked-language-model head too, for
        AutoModelForMaskedLM.
      results_file: for the model card: results.json of experiments.evaluate, or a JSON file of
        figures by name. Default: none.
      publication: facts for the model card that the run does not know.
    """

    language_model_head: bool = False
    results_file: str = ""
    publication: Publication = dataclasses.field(default_factory=Publication)


def define_flags() -> None:
    """Defines the flags: encoder, export folder and the fields of the model card."""
    exporting.define_flags(FolderOptions)


def main() -> None:
    """Runs the binary."""
    options = exporting.begin(FolderOptions)
    export(options)
    print(options.export_dir)


def export(options: FolderOptions) -> None:
    """Writes the folder; it appears under its name when it is complete.

    Raises:
      UserError: if the encoder has a part that sentence-transformers lacks, if the file of results
        cannot be read, or as `exporting.stage_export` does.
    """
    results = None
    if options.results_file:
        results = read_object(options.results_file, "name a file of figures by name")

    def is_export(path: Path) -> bool:
        return (path / MODULES).exists()

    has_head = options.language_model_head
    with exporting.stage_export(options, is_export, OWN_FILES, with_head=has_head) as staged:
        folder, source = staged
        write(folder, source, has_head, results, options.publication)


def write(
    folder: Path,
    source: exporting.Source,
    with_head: bool = False,
    results: dict[str, Any] | None = None,
    publication: Publication | None = None,
) -> None:
    """Writes the files into an existing folder, whose name is the model card's title.

    Args:
      folder: the folder.
      source: the encoder.
      with_head: also write the language-model head, for `AutoModelForMaskedLM`.
      results: for the model card, an evaluation's `results.json`, or figures by name; None leaves
        that part empty.
      publication: facts for the model card that the run does not know. Default: none.

    Raises:
      UserError: if the encoder has a part that sentence-transformers lacks, or no head.
    """
    config, vocabulary = source.weights.config, source.directory.vocabulary
    model_dir = source.directory.path
    if config.sentence_vector != "pooled":
        raise UserError(
            f"{model_dir}: encoder.sentence_vector is {config.sentence_vector}; "
            "sentence-transformers has no module for it, export it with export.export_tfhub"
        )
    if config.pooled_by.exported_as is None:
        raise UserError(
            f"{model_dir}: encoder.pooling is {config.pooling}, which sentence-transformers does "
            "not support; export it with export.export_tfhub"
        )
    ours, values = source.weights.encoder, config_json(config, vocabulary)
    tensors = _convert_tensors(ours, config, values["model_type"])
    if with_head:
        if source.weights.head is None:
            raise UserError(f"{model_dir}: has no language-model head; leave out the flag")
        tensors = _add_head(tensors, source.weights.head, config, values)
    card = model_card(
        name=folder.name,
        config=config,
        architecture=values["model_type"],
        vocabulary=vocabulary,
        max_seq_length=source.seq_length,
        parameters=sum(tensor.size for tensor in tensors.values()),
        results=results,
        training=read_training(source),
        publication=publication or Publication(),
    )
    write_tensors(folder, tensors)
    write_tokenizer(folder, vocabulary, values["model_type"], config.max_seq_length)
    _write_modules(folder, source)
    write_json(folder / "config.json", values)
    (folder / README).write_text(f"{card.rstrip()}\n\n{GENERATED}\n", encoding="utf-8")
    source.write_params(folder)


def _convert_tensors(ours: Tensors, config: EncoderConfig, model_type: str) -> Tensors:
    names = encoder_names(config, model_type)
    # DistilBERT has no pooler; a pooler of zeros means that the imported model had none.
    if model_type == "distilbert" or not ours["pooler_transform/kernel"].any():
        names = {n: t for n, t in names.items() if not n.startswith("pooler_transform/")}
    return to_huggingface(ours, names)


def _add_head(
    tensors: Tensors, head: Tensors, config: EncoderConfig, values: dict[str, Any]
) -> Tensors:
    """Returns the tensors of the masked language model; names it in `values` of `config.json`."""
    model_type = values["model_type"]
    values["architectures"] = [f"{CLASSES[model_type]}ForMaskedLM"]
    values["tie_word_embeddings"] = True
    prefix = ARCHITECTURES[model_type].prefix
    return {
        **{prefix + name: tensor for name, tensor in tensors.items()},
        **to_huggingface(head, head_names(config, model_type)),
    }


def _build_dense(config: EncoderConfig, ours: Tensors) -> list[tuple[dict[str, Any], Tensors]]:
    """Returns configuration and tensors of each module `Dense`: BERT's pooler, the dense layer."""
    layers = {"pooler_transform": "tanh"} if config.pooled_by.pooler else {}
    layers |= {"dense": config.dense_activation} if config.dense_size else {}
    theirs, modules = {ours: t for t, ours in DENSE_ACTIVATIONS.items()}, []
    for name, activation in layers.items():
        kernel = np.ascontiguousarray(ours[f"{name}/kernel"].T)
        size, hidden = kernel.shape
        values = {
            "in_features": hidden,
            "out_features": size,
            "bias": True,
            "activation_function": theirs[activation],
        }
        modules.append((values, {"linear.weight": kernel, "linear.bias": ours[f"{name}/bias"]}))
    return modules


def write_tensors(folder: Path, tensors: Tensors) -> None:
    """Writes `model.safetensors` into a folder."""
    from safetensors.numpy import save

    # Unlike the library's own file, this one follows the umask, and a full disk is an OSError.
    with atomic_write(folder / "model.safetensors") as file:
        # transformers requires this marker of the tensors' layout.
        file.write(save(tensors, metadata={"format": "pt"}))


def _write_modules(folder: Path, source: exporting.Source) -> None:
    config, vocabulary = source.weights.config, source.directory.vocabulary
    ours = source.weights.encoder
    dense = _build_dense(config, ours)
    counts = {
        "Transformer": 1,
        "WordWeights": config.pooled_by.weighted,
        "Pooling": 1,
        "Dense": len(dense),
        "Normalize": config.normalize,
    }
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    listed = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": LIBRARY + kind}
        for i, kind in enumerate(kinds)
    ]
    write_json(folder / MODULES, listed)
    paths = {kind: module["path"] for kind, module in zip(kinds, listed)}
    for module in listed:
        (folder / module["path"]).mkdir(exist_ok=True)
    if config.pooled_by.weighted:
        weights = np.exp(ours["token_weights/embeddings"][:, 0].astype(np.float64)).tolist()
        write_json(
            folder / paths["WordWeights"] / "config.json",
            {
                "vocab": list(vocabulary.tokens),
                "word_weights": dict(zip(vocabulary.tokens, weights)),
                "unknown_word_weight": 1.0,
            },
        )
    write_json(
        folder / paths["Pooling"] / "config.json",
        {
            "word_embedding_dimension": config.hidden_size,
            **{switch: switch == config.pooled_by.exported_as for switch in _SWITCHES},
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )
    for i, (values, tensors) in enumerate(dense, kinds.index("Pooling") + 1):
        write_json(folder / f"{i}_Dense" / "config.json", values)
        write_tensors(folder / f"{i}_Dense", tensors)
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": source.seq_length, "do_lower_case": False},
    )
    settings = source.directory.settings.for_export(config.pooling, config.sentence_vector)
    write_published_settings(folder, settings)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
