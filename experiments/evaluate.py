"""Scores an encoder by the papers' protocols: `cmlm evaluate ENCODER …`.

Writes `results.json`, `results.md` with the papers' own rows, and `report.html` with the figures.
Later commands add their suites to these files. Embeddings are kept in the same folder, so an
interrupted run resumes. `--suites=?` lists the suites, `--suites=sts,?` the options of one.
"""

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import check_writable
from official_cmlm.common.validation import Flag, at_least, between

# Scores that are printed; the tables have all.
_MOST_PRINTED = 20


@dataclasses.dataclass(frozen=True)
class EvaluationRequest:
    """The encoder, the suites with their options and data, and the output.

    Attributes:
      encoder: an encoder directory, a sentence-transformers, Hugging Face or ONNX folder, a folder
        of export.export_tfhub, an installed package of weights, a name org/model of the Hugging
        Face hub, or package.module:object. For bli, sts and word_similarity also one a language:
        en:path,fr:path. Required.
      suites: suites to run, or 'all'. '?' lists them.
      data_dir: folder of evaluation data; data sets that TensorFlow Datasets has prepared in its
        folder tfds replace missing files. Default: the environment variable CMLM_DATA_DIR.
      output_dir: folder for results and embeddings. Required.
      settings: an option of a suite, e.g. senteval.seeds=5 or sts.split=dev; may be repeated.
      name: name of the encoder in tables. Default: its folder's name.
      workers: processes that embed texts, each with its own copy of the encoder and its share of
        the cores. If CUDA_VISIBLE_DEVICES names devices, each process uses one of them.
      layer: layer of an encoder directory whose outputs are pooled, from 1. Default: the last one.
      strict: whether data that differs from the published files is an error.
      compare: results of another encoder to show beside this one, by its name, its folder of
        results or their `results.json`; up to four, by repeating the flag or separated by commas.
        Default: none.
      save_predictions: whether to write the predictions of all pairs of texts, of the suites sts,
        word_similarity and qnli, and 95 % intervals of their scores; with --compare also of
        differences to encoders whose predictions were written too.
    """

    encoder: Annotated[str, Flag(alias="model")] | None = None
    suites: tuple[str, ...] = ("sts",)
    data_dir: str | None = dataclasses.field(
        default_factory=lambda: os.environ.get("CMLM_DATA_DIR")
    )
    output_dir: str | None = None
    settings: Annotated[tuple[str, ...], Flag("set", repeats=True)] = ()
    name: str | None = None
    workers: Annotated[int, between(1, 1024)] = 1
    layer: Annotated[int, at_least(1)] | None = None
    strict: bool = False
    compare: Annotated[tuple[str, ...], Flag(repeats=True)] = ()
    save_predictions: bool = True


def define_flags() -> None:
    """Defines the flags of the request, and of the encoder's computation."""
    cli.define(EvaluationRequest)
    cli.define_computation()
    cli.define_import_module()


def main() -> int:
    """Runs the binary; returns 1 if a task failed, or has no data although it was named."""
    from official_cmlm.evaluation import suites

    cli.quiet_tensorflow()
    cli.import_modules()
    request = cli.read(EvaluationRequest)
    if "?" in request.suites:
        print(suites.describe([name for name in request.suites if name != "?"]))
        return 0
    for name in ("encoder", "data_dir", "output_dir"):
        if not getattr(request, name):
            raise UserError(f"--{name} is missing; see --help")
    output_dir = Path(request.output_dir).expanduser()
    check_writable(output_dir, is_folder=True)
    check_extra("evaluate", "scipy", "sklearn")
    from official_cmlm.configs.encoder import VectorOverride
    from official_cmlm.encoding.encoders import by_language, open_encoder
    from official_cmlm.evaluation.report import driver
    from official_cmlm.evaluation.report.results import read_compared

    names = suites.expand_names(request.suites)
    options = driver.parse_options(names, request.settings)
    compare = read_compared(request.compare)
    override = cli.read(VectorOverride, layer=request.layer)
    computation = dataclasses.asdict(override) | dataclasses.asdict(cli.read(cli.Backend))
    computation |= dataclasses.asdict(cli.read(cli.Computation))
    longest = computation.pop("max_seq_length")
    encoders = {
        language: open_encoder(path, longest, request.workers, **computation)
        for language, path in by_language(request.encoder).items()
    }
    own_name = ", ".join(f"{key} {encoder.name}".strip() for key, encoder in encoders.items())
    results = driver.run(
        encoders.get("", encoders),
        f"{request.encoder} ({override})" if override else request.encoder,
        request.name or own_name,
        Path(request.data_dir).expanduser(),
        output_dir,
        options,
        request.strict,
        compare,
        request.save_predictions,
    )
    return report(request, results | {"suites": {name: results["suites"][name] for name in names}})


def report(request: EvaluationRequest, results: dict[str, Any]) -> int:
    """Prints failures, missing data and the main scores of the suites; returns the exit status."""
    from official_cmlm.evaluation.report import tables

    failures = [
        f"failed: {name}: {line}"
        for name, suite in results["suites"].items()
        for line in suite["failures"]
    ]
    missing = [
        f"no data: {name}: {line}"
        for name, suite in results["suites"].items()
        for line in tables.missing_lines(suite["missing"])
    ]
    print("".join(f"{line}\n" for line in (*failures, *missing)), end="")
    summary = tables.summary(results)
    for task, value, _, metric in summary.rows[:_MOST_PRINTED] if summary else ():
        print(f"{task:40s} {value:>8s}  {metric}")
    if summary and len(summary.rows) > _MOST_PRINTED:
        print(f"… {len(summary.rows) - _MOST_PRINTED} more")
    print(f"results: {request.output_dir}/results.md, report.html, results.json")
    lacks_any = any(_lacks(request, name, suite) for name, suite in results["suites"].items())
    return cli.EXIT_USER_ERROR if failures or lacks_any else 0


def _lacks(request: EvaluationRequest, name: str, suite: dict) -> bool:
    """Returns whether a suite has no score, or no data for a task, language or pair named."""
    choices = tuple(f"{name}.{option}=" for option in ("tasks", "languages", "pairs"))
    is_chosen = request.strict or any(setting.startswith(choices) for setting in request.settings)
    return not suite["scores"] or bool(is_chosen and suite["missing"])


if __name__ == "__main__":
    define_flags()
    cli.run(main)
