"""Trains a chain of experiments: `python -m experiments.train_stages --stages=bitext_s3 …`.

Each stage starts from the encoder of the stage before it. After an interruption, the same command
resumes the chain.
"""

import os
from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import check_writable

from . import chains, registry

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the chain, its folder, its start and overrides for all stages."""
    flags.DEFINE_string(
        "stages", None, "YAML file of stages, or the name of one below experiments/chains; ? lists."
    )
    flags.DEFINE_string("model_dir", None, "Folder; every stage gets one of its own in it.")
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Encoder directory that the first stage starts from. Default: random weights.",
    )
    flags.DEFINE_string(
        "params_override",
        None,
        "Values for all stages, e.g. the records: a.b=1,c.d=2 or a YAML mapping. Values of an"
        " objective apply only to the stages that have it. Default: none.",
    )
    cli.define_import_module()


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    if FLAGS.stages in (None, "?", "list"):
        print(registry.list_files(chains.stage_files()))
        if FLAGS.stages is None:
            raise UserError("--stages is missing; name a file, or one of these")
        return
    if not FLAGS.model_dir:
        raise UserError("--model_dir is missing; name the folder for the stages")
    check_writable(os.path.expanduser(FLAGS.model_dir), is_folder=True)
    cli.import_tensorflow()
    import_modules = cli.import_modules()
    import tensorflow as tf

    # The stages are checked in this process and trained in others, which need the GPUs' memory.
    tf.config.set_visible_devices([], "GPU")
    from official_cmlm.configs.yaml_loading import parse_override

    chain, start = chains.read_stages(FLAGS.stages), FLAGS.init_checkpoint
    common = parse_override(FLAGS.params_override) if FLAGS.params_override else {}
    loaded = chains.load_stages(chain, start, common)
    model_dir = Path(os.path.expanduser(FLAGS.model_dir))
    last = chains.run_stages(loaded, model_dir, start, import_modules=import_modules)
    print(f"the last stage's encoder: {last}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
