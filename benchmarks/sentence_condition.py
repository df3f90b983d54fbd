"""How much a CMLM's sentence vector helps it to predict: `python -m benchmarks.sentence_condition`.

    python -m benchmarks.sentence_condition --model_dir=work/cmlm --records=work/books_held_out \\
        --language_models=work/mlm --pair_models=work/nsp

The masked tokens of each pair's second sentence are predicted with the vector of its own first
sentence and with that of another pair of the batch. The difference is all that the vector carries
about its neighbour, and all that the loss can teach the encoder about whole sentences.

Other models predict the same tokens under the same masks, to compare with. Language models see the
second sentence alone: what is known without a neighbour. Models of `nsp` see both sentences as one
sequence, every word of the first included; half of the pairs that they were trained on are random.
"""

import dataclasses
import json
from pathlib import Path

from absl import flags

from experiments import registry
from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("model_dir", None, "Model directory of a training with cmlm. Required.")
    flags.DEFINE_list("records", None, "Record folders, not of the training. Required.")
    flags.DEFINE_list(
        "language_models",
        [],
        "Model directories of trainings with mlm and the same vocabulary, to compare with.",
    )
    flags.DEFINE_list(
        "pair_models",
        [],
        "Model directories of trainings with nsp and the same vocabulary; they read both sentences "
        "as one sequence.",
    )
    flags.DEFINE_integer("max_examples", 6000, "Pairs to read at most; 0: all.", lower_bound=0)
    cli.required("model_dir", "records")


@dataclasses.dataclass
class Sums:
    """Over all masked tokens."""

    loss: float = 0.0
    correct: float = 0.0
    tokens: float = 0.0

    def add(self, prediction) -> None:  # noqa: ANN001 - the type would import TensorFlow
        """Adds a batch's."""
        loss, tokens = prediction.metrics["masked_token_loss"]
        correct, _ = prediction.metrics["masked_token_accuracy"]
        self.loss += float(loss)
        self.correct += float(correct)
        self.tokens += float(tokens)


def _load(folder: str, objective: str, records: list[str], max_examples: int):  # noqa: ANN202
    """The task and the trained model of a model directory, with `objective` alone.

    Its validation reads the given records; so does its training, whose own may be gone.
    """
    from official_cmlm.objectives import objectives
    from official_cmlm.training.task import SentenceEncoderTask

    path = Path(folder) / "params.yaml"
    if not path.is_file():
        raise UserError(f"{folder}: no model directory, it has no params.yaml")
    name = f"{objective}/english_base"
    if registry.load(name, [str(path)]).task.objectives.as_dict()[objective] is None:
        raise UserError(f"{folder}: was not trained with {objective}")
    others = {other: None for other in objectives() if other != objective}
    data = {"input_path": "", "sources": [{"path": path} for path in records]}
    own = {objective: {"train_data": None, "validation_data": None}}
    task = {
        "init_checkpoint": folder,
        "objectives": {**others, **own},
        "train_data": data,
        "validation_data": {**data, "max_examples": max_examples},
    }
    config = registry.load(name, [str(path)], json.dumps({"task": task}))
    task = SentenceEncoderTask(config.task)
    model = task.build_model()
    task.initialize(model)
    return task, model


def one_sequence(first: dict, masked: dict) -> dict:
    """The encoder's inputs for both sentences of pairs as BERT reads a pair.

    Args:
      first: of the first sentences: `input_word_ids`, `input_mask`, `input_type_ids`, int32
        `[batch, seq]`.
      masked: of the second sentences, as `MaskTokens` made them.

    Returns:
      `[CLS] first [SEP] second [SEP]`, types 0 and 1, the second masked as before; outputs are read
      at its prediction slots.
    """
    import tensorflow as tf

    lengths = tf.reduce_sum(first["input_mask"], axis=1)
    # The second [CLS] is left out.
    others = tf.reduce_sum(masked["input_mask"], axis=1) - 1
    before = tf.RaggedTensor.from_tensor(first["input_word_ids"], lengths=lengths)
    after = tf.RaggedTensor.from_tensor(masked["input_word_ids"][:, 1:], lengths=others)
    types = tf.concat([tf.zeros_like(before), tf.ones_like(after)], axis=1).to_tensor()
    shifted = masked["masked_lm_positions"] + lengths[:, tf.newaxis] - 1
    return {
        "input_word_ids": tf.concat([before, after], axis=1).to_tensor(),
        "input_mask": tf.sequence_mask(lengths + others, dtype=tf.int32),
        "input_type_ids": types,
        "output_positions": tf.where(masked["masked_lm_weights"] > 0, shifted, 0),
    }


def measure(
    model_dir: str,
    records: list[str],
    language_models: list[str],
    max_examples: int,
    pair_models: tuple[str, ...] | list[str] = (),
) -> dict[str, Sums]:
    """Way to predict -> sums over the pairs of the records.

    Args:
      model_dir: of a training with cmlm.
      records: folders.
      language_models: model directories of trainings with mlm.
      max_examples: pairs to read at most; 0: all.
      pair_models: model directories of trainings with nsp.

    Returns:
      `own` and `another`: the vector's; the other models under their directories, those of nsp
      twice: `DIR, own sentence` and `DIR, another sentence`.

    Raises:
      UserError: a folder is none of these, or the records have fewer than two pairs.
    """
    import tensorflow as tf

    from official_cmlm.objectives.masked_prediction import at_predictions, predict_masked

    task, model = _load(model_dir, "cmlm", records, max_examples)
    others = {name: _load(name, "mlm", records, max_examples)[1] for name in language_models}
    pairs = {name: _load(name, "nsp", records, max_examples)[1] for name in pair_models}
    longest = 2 * task.task_config.validation_data.seq_length - 1
    for name, pair in pairs.items():
        positions = pair.encoder.config.max_position_embeddings
        if positions < longest:
            raise UserError(
                f"{name}: has {positions} positions, the pairs of {model_dir} have up to {longest} "
                "tokens; train it with a larger encoder.max_position_embeddings"
            )
    ways = [f"{name}, {way} sentence" for name in pairs for way in ("own", "another")]
    sums = {name: Sums() for name in ("own", "another", *others, *ways)}
    cmlm = model.objectives["cmlm"]
    for batch in task.build_inputs(task.task_config.validation_data):
        features = batch["cmlm"]
        masked, size = features["second_masked"], len(features["first"]["input_word_ids"])
        if size < 2:
            continue
        # Neighbours in a batch may be neighbours in the text; half a batch away is far from it.
        for way, shift in {"own": 0, "another": size // 2}.items():
            first = {key: tf.roll(value, shift, axis=0) for key, value in features["first"].items()}
            given = {**features, "first": first}
            sums[way].add(cmlm.predict(given, lambda inputs, _: model.encoder(inputs), {}))
            for name, pair in pairs.items():
                outputs = pair.encoder(one_sequence(first, masked))["sequence_output"]
                prediction = predict_masked(pair.objectives["nsp"], outputs, masked)
                sums[f"{name}, {way} sentence"].add(prediction)
        for name, other in others.items():
            outputs = other.encoder(at_predictions(masked))["sequence_output"]
            sums[name].add(predict_masked(other.objectives["mlm"], outputs, masked))
    if not sums["own"].tokens:
        raise UserError(f"{', '.join(records)}: no two pairs of sentences")
    return sums


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    cli.quiet_tensorflow()
    sums = measure(
        FLAGS.model_dir,
        FLAGS.records,
        FLAGS.language_models,
        FLAGS.max_examples,
        FLAGS.pair_models,
    )
    print(f"{sums['own'].tokens:,.0f} masked tokens")
    width = max(map(len, sums))
    for way, each in sums.items():
        loss, accuracy = each.loss / each.tokens, 100 * each.correct / each.tokens
        print(f"figure {way:<{width}} {loss:.4f} nats a token, {accuracy:.2f} % right")
    own, another = sums["own"], sums["another"]
    gain = (another.loss - own.loss) / own.tokens
    points = 100 * (own.correct - another.correct) / own.tokens
    print(f"figure gain_of_own_vector {gain:.4f} nats a token, {points:.2f} points")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
