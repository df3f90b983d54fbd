"""Model Garden's own training driver with the experiments of this project.

    PYTHONPATH=. python examples/model_garden_train.py --experiment=cmlm/tiny --mode=train \
        --model_dir=work/garden --params_override=task.train_data.input_path=work/records

Its flags are Model Garden's: `--config_file`, `--gin_file`, `--gin_params`, `--tpu` and others.
"""

import sys
import types

# Model Garden's own experiments, those of images among them, need packages that the project leaves
# out; the driver imports them for their names alone.
sys.modules.setdefault(
    "official.common.registry_imports", types.ModuleType("official.common.registry_imports")
)

from official.common import flags as model_garden_flags
from official.nlp import train

from experiments import exp_factory
from official_cmlm import cli

if __name__ == "__main__":
    model_garden_flags.define_flags()
    cli.require_flags("experiment", "mode", "model_dir")
    exp_factory.register()
    cli.run(lambda: train.main([]))
