"""Checks command lines against the flags that binaries define; run in a process of its own.

Standard input: a JSON list of [module, arguments]. Standard output: a JSON list of mistakes.
Nothing of TensorFlow is imported.
"""

import importlib
import importlib.util
import json
import sys

from absl import flags


def defined(module: str) -> flags.FlagValues:
    """The flags of a binary, apart from all others'."""
    if importlib.util.find_spec(module).submodule_search_locations is not None:
        module += ".__main__"
    binary, before = importlib.import_module(module), set(flags.FLAGS)
    binary.define_flags()
    own = flags.FlagValues()
    for name in set(flags.FLAGS) - before:
        own[name] = flags.FLAGS[name]
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)
    return own


def main() -> None:
    mistakes = []
    for module, arguments in json.load(sys.stdin):
        try:
            known = defined(module)
            if "…" in arguments:
                # It stands for flags that the reader knows, required ones among them.
                for name in known:
                    known[name].validators.clear()
            known([module, *(word for word in arguments if word != "…")])
        except (flags.Error, ImportError, AttributeError) as error:
            mistakes.append(f"{module} {' '.join(arguments)}: {error}")
    assert not {"tensorflow", "tf_keras"} & set(sys.modules)
    json.dump(mistakes, sys.stdout)


if __name__ == "__main__":
    main()
