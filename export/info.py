"""Says what an encoder is: `python -m export.info --model=work/encoder`.

Prints a line each for its kind, shape, vocabulary, length, vector, prompts and digest, and for the
backend that is the fastest here; of a folder of ONNX graphs its length and vector.
"""

from absl import flags

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flag with the encoder."""
    cli.define_model_name()


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder

    folder = find_encoder(FLAGS.model)
    cli.quiet_tensorflow()
    from official_cmlm.encoding.backends.onnx import has_graphs
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder

    if has_graphs(folder):
        encoder = SentenceEncoder.load(folder)
        print(f"{'kind:':12} ONNX graphs, without weights that could be trained on")
        print(f"{'length:':12} {encoder.max_seq_length} tokens")
        print(f"{'vector:':12} {encoder.dimension} numbers")
        return
    directory = encoder_directory_of(folder)
    for name, value in describe(directory).items():
        print(f"{name + ':':12} {value}", flush=True)
    encoder = SentenceEncoder.load(directory.path, workload="bulk")
    print(f"{'backend:':12} {encoder.backend.name}, the fastest for many texts here")


def describe(directory: EncoderDirectory) -> dict[str, str]:
    """Returns what an encoder directory says about its encoder, without TensorFlow.

    Raises:
      UserError: if its vocabulary or settings are damaged, or without weights.
    """
    config, vocabulary, settings = directory.config, directory.vocabulary, directory.settings
    default = settings.default_prompt_name
    prompts = [
        f"{name} {prompt!r}{' (default)' if name == default else ''}"
        for name, prompt in settings.prompts.items()
        if prompt or name == default
    ]
    trained = (directory.path / "params.yaml").exists()
    stored = ", ".join([vocabulary.kind, *(f"{k} {v}" for k, v in vocabulary.settings().items())])
    return {
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


if __name__ == "__main__":
    define_flags()
    cli.run(main)
