"""Parts embedded by Apache Beam, an optional extra, in this process or on a cluster."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.ml.inference.base import ModelHandler, PredictionResult, RunInference
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner

from official_cmlm.common.errors import UserError

from . import worker
from .rows import Part

# For these names a runner in this process is taken, as Beam's DirectRunner would first try a runner
# that downloads a binary.
_IN_PROCESS = (None, "DirectRunner", "BundleBasedDirectRunner", "InProcess")


class EncoderHandler(ModelHandler[Part, PredictionResult, worker.Settings]):
    """An encoder as Beam's `RunInference` loads it: once a process, shared by its threads.

    Its examples are parts with their texts. The result for a part is its entry of the manifest; the
    vectors have been written to the output folder by then.
    """

    def __init__(self, settings: worker.Settings, folder: Path, encoder_digest: str) -> None:
        """Makes a handler; nothing is loaded yet. See `run.Job` for the arguments."""
        super().__init__()
        self._arguments = settings, str(folder), encoder_digest

    def load_model(self) -> worker.Settings:
        """Loads the encoder; raises `UserError` if it differs from that at the run's beginning."""
        worker.load(*self._arguments)
        worker.backend_name()
        return self._arguments[0]

    def run_inference(
        self,
        batch: Sequence[Part],
        model: worker.Settings,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterable[PredictionResult]:
        """Embeds parts and writes their files."""
        del model, inference_args
        for part in batch:
            yield PredictionResult(part.number, worker.embed(part).entry)

    def batch_elements_kwargs(self) -> dict[str, int]:
        """Returns the size of batches: every part is a batch."""
        return {"min_batch_size": 1, "max_batch_size": 1}


@beam.ptransform_fn
def EmbedParts(
    places: beam.PCollection, read: Callable[[Part], Part], handler: EncoderHandler
) -> beam.PCollection:
    """Reads parts, embeds them and writes their files.

    Args:
      places: parts without texts, as `place_of` returns them.
      read: returns a part without texts with its texts, on any machine; see `Job.part_at`.
      handler: embeds the parts.

    Returns:
      `PredictionResult`s: the part's number and its entry of the manifest.
    """
    return (
        places
        | "Spread" >> beam.Reshuffle()
        | "Read" >> beam.Map(read)
        | "Embed" >> RunInference(handler)
    )


def place_of(part: Part) -> Part:
    """Returns a part without its texts, which a worker reads itself."""
    return dataclasses.replace(part, texts=[], ids=None, kept={}, mended=0)


def compute(
    read: Callable[[Part], Part],
    handler: EncoderHandler,
    places: list[Part],
    arguments: Sequence[str],
) -> None:
    """Embeds parts by a pipeline.

    Args:
      read, handler, places: see `EmbedParts`.
      arguments: flags of Beam and its runner, as `--runner=FlinkRunner`.

    Raises:
      UserError: Beam does not know the runner, or the pipeline has failed.
    """
    options = PipelineOptions(list(arguments))
    name = options.view_as(StandardOptions).runner
    try:
        runner = BundleBasedDirectRunner() if name in _IN_PROCESS else name
        with beam.Pipeline(runner, options) as pipeline:
            _ = pipeline | beam.Create(places) | EmbedParts(read, handler)
    except Exception as error:
        cause = error
        while cause.__cause__ is not None and not isinstance(cause, UserError):
            cause = cause.__cause__
        raise UserError(f"the pipeline has failed ({cause}); the same command goes on") from error
