"""Experiments: the binaries that train and evaluate, and the YAML files."""


def module_of(binary: str) -> str:
    """Returns the module of one of the project's binaries, for `python -m` in another process.

    `data_prep.create_documents`, its name in a checkout, is the module there; where the project is
    installed, the module is `official_cmlm.data_prep.create_documents`.
    """
    return __name__.removesuffix("experiments") + binary
