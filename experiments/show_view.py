"""Prints what an experiment's objectives read: `cmlm show-view EXPERIMENT …`.

The examples are the first of the training's first batches, as its pipeline makes them, in the order
in which the training reads them: pairs, spans (DeCLUTR's Table 5), mirrored sentences, masked
tokens. Nothing is trained, and the encoder is not built.

    anchor_0 (9 tokens): [CLS] the cat sat on the mat . [SEP]
    anchor_0_masked (9 tokens, 2 predicted): [CLS] the {cat→[MASK]} sat on the {mat→dog} . [SEP]

`{cat→dog}` is a token that is to be predicted, and what the encoder reads in its place.
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from official_cmlm import cli
from official_cmlm.common.validation import at_least

from . import registry

if TYPE_CHECKING:
    from official_cmlm.tokenization import Vocabulary

# Components of a teacher's vector that are printed.
_MOST_COMPONENTS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViewRequest(registry.ExperimentRequest):
    """The experiment, its records, and how much of them is printed.

    Attributes:
      number: examples to print for each objective, or group of objectives that share records.
    """

    number: Annotated[int, at_least(1)] = 5


def define_flags() -> None:
    """Defines the flags of the request."""
    cli.define(ViewRequest)
    cli.define_import_module()


def main() -> None:
    """Runs the binary."""
    request = cli.read(ViewRequest)
    cli.import_tensorflow()
    cli.import_modules()
    for line in show_examples(request.load().task, request.number):
        print(line)


def show_examples(params: Any, number: int) -> Iterator[str]:
    """Yields lines about the first examples of each group of objectives.

    Args:
      params: the task's configuration, `SentenceEncoderTaskConfig`.
      number: examples of each group.

    Raises:
      UserError: for an invalid setting, or records that the objectives cannot use.
    """
    from official_cmlm.objectives.diff_cse import DiffCseConfig
    from official_cmlm.records.corruption import report_damaged_shard
    from official_cmlm.training.config import get_objectives
    from official_cmlm.training.task import SentenceEncoderTask

    # No encoder is built, so its vocabulary may be that of any records, and a generator may be
    # missing.
    without_generators = {
        name: config.replace(generator="")
        for name, config in get_objectives(params.objectives).items()
        if isinstance(config, DiffCseConfig)
    }
    params = params.replace(
        encoder=params.encoder.replace(vocab_size=0),
        objectives=params.objectives.replace(**without_generators),
    )
    task = SentenceEncoderTask(params)
    task.check_inputs(is_training=True)
    left = dict.fromkeys((group.name for group in task.train_groups), number)
    with report_damaged_shard(task.input_folders()):
        for element in task.build_inputs(params.train_data).as_numpy_iterator():
            for name, features in element.items():
                rows = min(len(features["key"]), left[name])
                for row in range(rows):
                    yield f"{name}, example {number - left[name] + row + 1}"
                    for line in show_features(features, row, task.vocabulary):
                        yield f"  {line}"
                left[name] -= rows
            if not any(left.values()):
                return


def show_features(features: dict[str, Any], row: int, vocabulary: "Vocabulary") -> Iterator[str]:
    """Yields a line about each feature of an example: a sequence as text, a number, a vector.

    Args:
      features: a batch of `inputs.pipeline.build_dataset`, as arrays.
      row: index of the example in the batch.
      vocabulary: the vocabulary of the ids.
    """
    shown = {name: value for name, value in features.items() if name not in ("key", "position")}
    # Numbers come after the texts that they belong to.
    for name in sorted(shown, key=lambda name: not isinstance(shown[name], dict)):
        value = shown[name]
        if isinstance(value, dict):
            sequence = {key: array[row] for key, array in value.items()}
            yield _show_sequence(name, sequence, vocabulary)
        elif value[row].ndim:
            start = ", ".join(f"{x:.3f}" for x in value[row][:_MOST_COMPONENTS])
            yield f"{name} ({len(value[row])} components): {start} …"
        else:
            yield f"{name}: {value[row]}"


def _show_sequence(name: str, sequence: dict[str, Any], vocabulary: "Vocabulary") -> str:
    """Returns name, length and text of a sequence; each predicted token with what is read there."""
    count = int(sequence["input_mask"].sum())
    ids, facts = sequence["input_word_ids"][:count].tolist(), f"{count} tokens"
    parts, start = [], 0
    if "masked_lm_weights" in sequence:
        used = sequence["masked_lm_weights"] > 0
        facts += f", {used.sum()} predicted"
        slots = (sequence[f"masked_lm_{of}"][used].tolist() for of in ("positions", "ids"))
        for position, label in zip(*slots):
            read = vocabulary.decode([ids[position]])
            before = vocabulary.decode(ids[start:position])
            parts += [before, f"{{{vocabulary.decode([label])}→{read}}}"]
            start = position + 1
    text = " ".join(filter(None, [*parts, vocabulary.decode(ids[start:])]))
    return f"{name} ({facts}): {text}"


if __name__ == "__main__":
    define_flags()
    cli.run(main)
