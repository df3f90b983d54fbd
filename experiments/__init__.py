"""Experiments: the binaries that train and evaluate, and the YAML files."""


def module_of(binary: str) -> str:
    """Returns the module of one of the project's binaries, for `python -m` in another process.

    `data_prep.create_documents`, its name in a checkout, is the module there; where the project is
    installed, the module is `official_cmlm.data_prep.create_documents`. The library's own binaries
    have the same name in both.
    """
    return (
        binary
        if binary.startswith("official_cmlm.")
        else __name__.removesuffix("experiments") + binary
    )
