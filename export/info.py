"""Says what an encoder, a classifier or an index is: `cmlm info work/encoder`.

Prints a line each for its kind, shape, vocabulary, length, vector, prompts and digest, and for the
backend that is the fastest here; of a classifier its classes and scores too. Of a folder of ONNX
graphs it prints length and vector, of an index its encoder, passages, files, size and digest.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory

from .search.index import IndexSettings

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flag with the encoder."""
    cli.define_model_name()


def main() -> None:
    """Runs the binary."""
    from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
    from official_cmlm.search import Index

    if Index.is_at(index := Path(os.path.expanduser(FLAGS.model))):
        return _print_facts(describe_index(index))
    folder = find_encoder(FLAGS.model)
    cli.quiet_tensorflow()
    from official_cmlm.encoding.backends.onnx import has_graphs
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder

    if has_graphs(folder):
        encoder = SentenceEncoder.load(folder)
        return _print_facts(
            {
                "kind": "ONNX graphs, without weights that could be trained on",
                "length": f"{encoder.max_seq_length} tokens",
                "vector": f"{encoder.dimension} numbers",
            }
        )
    directory = encoder_directory_of(folder)
    _print_facts(describe(directory))
    encoder = SentenceEncoder.load(directory.path, workload="bulk")
    _print_facts({"backend": f"{encoder.backend.name}, the fastest for many texts here"})


def _print_facts(facts: Mapping[str, str]) -> None:
    for name, value in facts.items():
        print(f"{name + ':':12} {value}", flush=True)


def describe(directory: EncoderDirectory) -> dict[str, str]:
    """Returns what an encoder directory says about its encoder, without TensorFlow.

    Raises:
      UserError: if its vocabulary, settings or classifier are damaged, or without weights.
    """
    from official_cmlm.encoding.classifier import Classifier

    config, vocabulary, settings = directory.config, directory.vocabulary, directory.settings
    default = settings.default_prompt_name
    prompts = [
        f"{name} {prompt!r}{' (default)' if name == default else ''}"
        for name, prompt in settings.prompts.items()
        if prompt or name == default
    ]
    trained = (directory.path / "params.yaml").exists()
    stored = ", ".join([vocabulary.kind, *(f"{k} {v}" for k, v in vocabulary.settings().items())])
    facts = {
        "kind": f"encoder directory, {'trained' if trained else 'imported'}",
        "shape": f"{config.num_layers} layers of {config.hidden_size}, "
        f"{config.num_attention_heads} heads",
        "vocabulary": f"{len(vocabulary):,} entries, {stored}",
        "length": f"{directory.max_seq_length} tokens of {config.max_seq_length} at most",
        "vector": f"{config.embedding_size} numbers{', of length 1' if config.normalize else ''}",
        "pooling": f"{config.pooling}, sentence_vector {config.sentence_vector}",
        "similarity": settings.similarity_fn_name,
        "prompts": ", ".join(prompts) or "none",
        "8 bits": "not calibrated" if settings.ranges is None else "calibrated",
        "digest": directory.digest(),
    }
    if Classifier.is_at(directory.path):
        facts |= _describe_classifier(directory.path, config.embedding_size)
    return facts


def _describe_classifier(folder: Path, dimension: int) -> dict[str, str]:
    from official_cmlm.common.files import read_object
    from official_cmlm.encoding.classifier import SCORES_NAME, read_label_names, read_layer

    classes = len(read_layer(folder, dimension)[1])
    names = read_label_names(folder, classes)
    facts = {"classes": f"{classes}{': ' if names else ''}{', '.join(names)}"}
    if (path := folder / SCORES_NAME).exists():
        scores = read_object(path, "delete it").items()
        facts["scores"] = ", ".join(f"{name} {value}" for name, value in scores)
    return facts


def describe_index(folder: Path) -> dict[str, str]:
    """Returns what an index says about itself; raises `UserError` if it is damaged."""
    from official_cmlm.common.files import digest
    from official_cmlm.search.index import DESCRIPTION, read_description

    index = read_description(folder)
    settings = IndexSettings.read(folder)
    encoder = dataclasses.asdict(settings.encoder)
    model = encoder.pop("model") or "not named"
    chosen = [
        f", {name} {value}" for name, value in encoder.items() if value not in (None, "float32")
    ]
    size = sum(path.stat().st_size for path in folder.iterdir())
    return {
        "kind": "index",
        "encoder": f"{model}{''.join(chosen)}",
        "passages": f"{index.texts:,}",
        "files": "not named" if settings.files is None else f"{len(settings.files):,}",
        "vector": f"{index.dimension} numbers of {index.precision}"
        f"{', in a graph' if index.approximate else ''}",
        "size": f"{size / 1e6:,.1f} MB",
        # It has the checksums of the other files.
        "digest": digest([folder / DESCRIPTION]),
    }


if __name__ == "__main__":
    define_flags()
    cli.run(main)
