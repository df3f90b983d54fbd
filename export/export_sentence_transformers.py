"""Exports an encoder for PyTorch users: `python -m export.export_sentence_transformers`.

Writes a folder that `sentence_transformers.SentenceTransformer(path)` and `transformers` load as it
is. PyTorch is not needed to write it.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import flags

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_directory import (
    EncoderDirectory,
    EncodingSettings,
    write_published_settings,
)
from official_cmlm.checkpoints.formats.huggingface import DENSE_ACTIVATIONS, MODULES
from official_cmlm.checkpoints.formats.huggingface_config import CLASSES, config_json
from official_cmlm.checkpoints.formats.huggingface_tensors import (
    ARCHITECTURES,
    encoder_names,
    head_names,
    to_huggingface,
)
from official_cmlm.checkpoints.formats.imported_encoder import Tensors
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import (
    GENERATED,
    README,
    atomic_write,
    output_folder,
    read_object,
    stage_folder,
    write_json,
)
from official_cmlm.configs.encoder import OWN_VECTOR, POOLINGS, EncoderConfig, VectorOverride
from official_cmlm.encoding.backends.onnx_graph import SUBFOLDER
from official_cmlm.vectors.embeddings import RANGES_NAME

from .formats.huggingface_tokenizer import OWN_FILES as TOKENIZER_FILES
from .formats.huggingface_tokenizer import write_tokenizer
from .formats.left_out import warn_of_classifier
from .formats.model_card import Publication, model_card, read_training

if TYPE_CHECKING:
    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
    from official_cmlm.tokenization import Vocabulary

FLAGS = flags.FLAGS
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
_LIBRARY = "sentence_transformers.models."


def define_flags() -> None:
    """Defines the flags: encoder, export folder and the fields of the model card."""
    cli.define_export()
    flags.DEFINE_bool(
        "language_model_head",
        False,
        "Whether to write the masked-language-model head too, for AutoModelForMaskedLM.",
    )
    flags.DEFINE_string(
        "results_file",
        "",
        "For the model card: results.json of experiments.evaluate, or a JSON file of figures by"
        " name. Default: none.",
    )
    flags.DEFINE_string(
        "license", "", "Licence for the model card, e.g. apache-2.0. Default: none."
    )
    flags.DEFINE_list(
        "datasets", [], "Names of the training data on the model hub, for the card. Default: none."
    )
    flags.DEFINE_list(
        "languages",
        [],
        "Language tags for the model card. Default: those of the training's records.",
    )
    flags.DEFINE_string(
        "base_model",
        "",
        "Model on the hub that training started from, for the card. Default: none.",
    )


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    results = None
    if FLAGS.results_file:
        results = read_object(FLAGS.results_file, "name a file of figures by name")
    publication = Publication(
        FLAGS.license, tuple(FLAGS.datasets), tuple(FLAGS.languages), FLAGS.base_model
    )
    publication.check()
    cli.begin_export()
    export(
        FLAGS.model_dir,
        FLAGS.export_dir,
        FLAGS.language_model_head,
        results,
        FLAGS.overwrite,
        FLAGS.seq_length,
        cli.vector_override(),
        publication,
    )
    print(FLAGS.export_dir)


def export(
    model_dir: str | os.PathLike,
    output_dir: str | os.PathLike,
    with_head: bool = False,
    results: dict[str, Any] | None = None,
    overwrite: bool = False,
    seq_length: int | None = None,
    override: VectorOverride = OWN_VECTOR,
    publication: Publication | None = None,
) -> None:
    """Writes the folder; it appears under its name when it is complete.

    Args:
      model_dir: an encoder directory.
      output_dir: folder to write.
      with_head: also write the language-model head, for `AutoModelForMaskedLM`.
      results: for the model card, an evaluation's `results.json`, or figures by name; None leaves
        that part empty.
      overwrite: replace an earlier export.
      seq_length: what texts are cut to, in tokens; None takes the directory's length.
      override: the vector that the folder computes. Default: the encoder's own.
      publication: facts for the model card that the run does not know. Default: none.

    Raises:
      UserError: if `model_dir` is not an encoder directory, if its encoder has a part that
        sentence-transformers lacks, or if `output_dir` exists already.
    """
    from official_cmlm.checkpoints.find_encoder import load_for_export

    output = output_folder(output_dir, overwrite, lambda path: (path / MODULES).exists(), OWN_FILES)
    source = load_for_export(model_dir, override, seq_length)
    warn_of_classifier(source[0].path)
    with stage_folder(output) as partial:
        write(partial, *source, with_head, results, publication)


def write(
    folder: Path,
    directory: EncoderDirectory,
    encoder: "SentenceEncoderModel",
    max_seq_length: int,
    with_head: bool = False,
    results: dict[str, Any] | None = None,
    publication: Publication | None = None,
) -> None:
    """Writes the files into an existing folder, whose name is the model card's title.

    Raises:
      UserError: if the encoder has a part that sentence-transformers lacks, or no head.
    """
    from official_cmlm.checkpoints.weights import load_head
    from official_cmlm.modeling.language_model_head import head_variables
    from official_cmlm.modeling.sentence_encoder import encoder_variables

    config, vocabulary, model_dir = encoder.config, directory.vocabulary, directory.path
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
    ours = {name: variable.numpy() for name, variable in encoder_variables(encoder).items()}
    values = config_json(config, vocabulary)
    tensors = _tensors(ours, config, values["model_type"])
    if with_head:
        head = load_head(directory, encoder)
        if head is None:
            raise UserError(f"{model_dir}: has no language-model head; leave out the flag")
        arrays = {name: variable.numpy() for name, variable in head_variables(head).items()}
        tensors = _with_head(tensors, arrays, config, values)
    training = read_training(model_dir)
    card = model_card(
        name=folder.name,
        config=config,
        architecture=values["model_type"],
        vocabulary=vocabulary,
        max_seq_length=max_seq_length,
        parameters=sum(tensor.size for tensor in tensors.values()),
        results=results,
        training=training,
        publication=publication or Publication(),
    )
    _write_weights(folder, tensors)
    write_tokenizer(folder, vocabulary, values["model_type"], config.max_seq_length)
    encoding = directory.settings.for_export(config.pooling, config.sentence_vector)
    _write_modules(folder, config, ours, vocabulary, max_seq_length, encoding)
    write_json(folder / "config.json", values)
    (folder / README).write_text(f"{card.rstrip()}\n\n{GENERATED}\n", encoding="utf-8")
    if training.params is not None:
        (folder / "params.yaml").write_text(training.params, encoding="utf-8")


def _tensors(ours: Tensors, config: EncoderConfig, model_type: str) -> Tensors:
    names = encoder_names(config, model_type)
    # DistilBERT has no pooler; a pooler of zeros means that the imported model had none.
    if model_type == "distilbert" or not ours["pooler_transform/kernel"].any():
        names = {n: t for n, t in names.items() if not n.startswith("pooler_transform/")}
    return to_huggingface(ours, names)


def _with_head(
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


def _dense(config: EncoderConfig, ours: Tensors) -> tuple[dict[str, Any], Tensors] | None:
    """Returns configuration and tensors of the module `Dense`; None if there is none."""
    activation, name = config.dense_activation, "dense"
    if config.pooled_by.pooler:
        activation, name = "tanh", "pooler_transform"
    elif not config.dense_size:
        return None
    kernel = np.ascontiguousarray(ours[f"{name}/kernel"].T)
    size, hidden = kernel.shape
    values = {
        "in_features": hidden,
        "out_features": size,
        "bias": True,
        "activation_function": {ours: t for t, ours in DENSE_ACTIVATIONS.items()}[activation],
    }
    return values, {"linear.weight": kernel, "linear.bias": ours[f"{name}/bias"]}


def _write_weights(folder: Path, tensors: Tensors) -> None:
    from safetensors.numpy import save

    # Unlike the library's own file, this one follows the umask, and a full disk is an OSError.
    with atomic_write(folder / "model.safetensors") as file:
        # transformers requires this marker of the tensors' layout.
        file.write(save(tensors, metadata={"format": "pt"}))


def _write_modules(
    folder: Path,
    config: EncoderConfig,
    ours: Tensors,
    vocabulary: "Vocabulary",
    max_seq_length: int,
    encoding: EncodingSettings,
) -> None:
    dense = _dense(config, ours)
    chosen = {
        "Transformer": True,
        "WordWeights": config.pooled_by.weighted,
        "Pooling": True,
        "Dense": dense is not None,
        "Normalize": config.normalize,
    }
    kinds = [kind for kind, here in chosen.items() if here]
    paths = {kind: f"{i}_{kind}" if i else "" for i, kind in enumerate(kinds)}
    listed = [
        {"idx": i, "name": str(i), "path": paths[kind], "type": _LIBRARY + kind}
        for i, kind in enumerate(kinds)
    ]
    write_json(folder / MODULES, listed)
    for path in paths.values():
        (folder / path).mkdir(exist_ok=True)
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
    if dense is not None:
        values, tensors = dense
        write_json(folder / paths["Dense"] / "config.json", values)
        _write_weights(folder / paths["Dense"], tensors)
    write_json(
        folder / "sentence_bert_config.json",
        {"max_seq_length": max_seq_length, "do_lower_case": False},
    )
    write_published_settings(folder, encoding)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
