"""The experiments as names of Model Garden's `official.core.exp_factory`.

    from official.core import exp_factory as model_garden
    exp_factory.register()
    params = model_garden.get_exp_config("cmlm/tiny")

A file is read when its name is asked for. `examples/model_garden_train.py` is a whole program.
"""

import functools

from . import registry


@functools.cache
def register() -> None:
    """Registers each YAML file of `registry.experiment_files`; a second call does nothing."""
    from official.core import exp_factory

    for name in registry.experiment_files():
        exp_factory.register_config_factory(name)(functools.partial(_load, name))


def _load(name: str):  # noqa: ANN202 - the type would import TensorFlow
    """Returns an experiment whose fields may still be changed."""
    from official_cmlm.training.model_garden import ModelGardenExperimentConfig

    return ModelGardenExperimentConfig(registry.load(name).as_dict())
