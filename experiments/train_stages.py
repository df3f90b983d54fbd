"""Trains a chain of experiments: `cmlm train-stages bitext_s3 …`.

Each stage starts from the encoder of the stage before it. After an interruption, the same command
resumes the chain.
"""

import dataclasses
from pathlib import Path

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import check_writable

from . import chains, registry


@dataclasses.dataclass(frozen=True)
class ChainRequest:
    """The chain, its folder, its start and overrides for all stages.

    Attributes:
      stages: YAML file of stages, or the name of one below experiments/chains; ? lists. Required.
      model_dir: folder; every stage gets one of its own in it. Required.
      init_checkpoint: encoder that the first stage starts from: a directory, or a name such as
        all-MiniLM-L6-v2. Default: random weights.
      params_override: values for all stages, e.g. the records: a.b=1,c.d=2 or a YAML mapping.
        Values of an objective apply only to the stages that have it. Default: none.
    """

    stages: str | None = None
    model_dir: str | None = None
    init_checkpoint: str | None = None
    params_override: str | None = None


def define_flags() -> None:
    """Defines the flags of the request."""
    cli.define(ChainRequest)
    cli.define_import_module()


def main() -> None:
    """Runs the binary."""
    request = cli.read(ChainRequest)
    if request.stages in (None, "?", "list"):
        print(registry.list_files(chains.stage_files()))
        if request.stages is None:
            raise UserError("--stages is missing; name a file, or one of these")
        return
    if not request.model_dir:
        raise UserError("--model_dir is missing; name the folder for the stages")
    model_dir = Path(request.model_dir).expanduser()
    check_writable(model_dir, is_folder=True)
    cli.import_tensorflow()
    import_modules = cli.import_modules()
    import tensorflow as tf

    # The stages are checked in this process and trained in others, which need the GPUs' memory.
    tf.config.set_visible_devices([], "GPU")
    from official_cmlm.configs.yaml_loading import parse_override

    chain, start = chains.read_stages(request.stages), request.init_checkpoint
    common = parse_override(request.params_override) if request.params_override else {}
    loaded = chains.load_stages(chain, start, common)
    last = chains.run_stages(loaded, model_dir, start, import_modules=import_modules)
    print(f"the last stage's encoder: {last}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
