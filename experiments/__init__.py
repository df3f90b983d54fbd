"""Experiments: the binaries that train and evaluate, and the YAML files."""


def module_of(binary: str) -> str:
    """Returns the module of one of the project's binaries, for `python -m` in another process.

    The project goes by two names: in a checkout this package is `experiments`, installed it is
    `official_cmlm.experiments`.

    Args:
      binary: its name in a checkout, such as `data_prep.create_documents`.

    Returns:
      That name, or `official_cmlm.data_prep.create_documents` where the project is installed.
    """
    return __name__.removesuffix("experiments") + binary
