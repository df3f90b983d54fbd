"""`python` of the pages' blocks: the same commands, with trainings of two steps.

Takes the arguments of `python`. The table below replaces sizes; everything else is as written.
"""

import json
import os
import runpy
import sys

# Sub-commands of `cmlm` that take an experiment's sizes -> their modules.
_TRAININGS = {
    "train": "experiments.train",
    "lower": "experiments.lower",
    "train-stages": "experiments.train_stages",
    "show-view": "experiments.show_view",
}
_DATA = {
    "seq_length": 16,
    "segment": "sentence",
    "global_batch_size": 8,
    "bucket_boundaries": [16],
    "max_bucket_batch_size": 8,
    "shuffle_sentences": 200,
}
_OWN_DATA = {"train_data": _DATA, "validation_data": _DATA}
_ENCODER = {
    "num_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "vocab_size": 0,
}
_TRAINER = {
    "train_steps": 2,
    "steps_per_loop": 1,
    "summary_interval": 1,
    "checkpoint_interval": 2,
    "validation_interval": 2,
    "validation_steps": 1,
}
_ADAPTED = {"task": {"train_data": {"seq_length": 16, "global_batch_size": 2}}, "trainer": _TRAINER}
# Beginning of an experiment's name -> its objectives' sizes.
_OBJECTIVES = {
    "bitext": {"bitext_retrieval": _OWN_DATA},
    "bitext_s3_nli": {"bitext_retrieval": _OWN_DATA, "nli": _OWN_DATA},
    "nli": {"nli": _OWN_DATA},
    "cmlm_cse": {"cmlm_cse": {"lexical_layers": 1, "fusion_layers": 1}},
    "declutr": {"declutr": {"min_span_length": 4, "max_span_length": 16}},
}


def _flag(arguments: list[str], name: str) -> str | None:
    values = [a.partition("=")[2] for a in arguments if a.startswith(f"--{name}=")]
    return values[-1] if values else None


def tiny(module: str, arguments: list[str]) -> list[str]:
    """Returns the arguments of a training with tiny sizes; other binaries' are not changed."""
    name = _flag(arguments, "experiment") or _flag(arguments, "stages")
    if module not in _TRAININGS.values() or name in (None, "?"):
        return arguments
    from experiments.chains import merge
    from official_cmlm.configs.yaml_loading import parse_override

    text = _flag(arguments, "params_override")
    override = parse_override(text) if text else {}
    sizes = {"task": {**_OWN_DATA}, "trainer": _TRAINER}
    if not _flag(arguments, "init_checkpoint"):
        sizes["task"]["encoder"] = _ENCODER
    if override.get("task", {}).get("chunk_size"):
        sizes["task"]["chunk_size"] = 3
    nested = {
        name: {"matryoshka_dims": [4, 8]}
        for name, settings in override.get("task", {}).get("objectives", {}).items()
        if settings and settings.get("matryoshka_dims")
    }
    sizes["task"]["objectives"] = nested
    prefix = max((p for p in _OBJECTIVES if name.startswith(p)), key=len, default=None)
    if prefix:
        sizes["task"]["objectives"] = merge(_OBJECTIVES[prefix], nested)
    rest = [a for a in arguments if not a.startswith("--params_override=")]
    return [*rest, f"--params_override={json.dumps(merge(override, sizes))}"]


def main() -> None:
    arguments = sys.argv[1:]
    sys.path[0] = os.getcwd()
    if arguments[0] == "-m":
        module, *rest = arguments[1:]
        if module == "official_cmlm.command" and rest[0] in _TRAININGS:
            name, value, *flags = rest
            first = f"--{'stages' if name == 'train-stages' else 'experiment'}={value}"
            rest = [name, *tiny(_TRAININGS[name], [first, *flags])]
        is_distilled = rest[0] == "distil" and any(flag.startswith("--input") for flag in rest)
        if module == "official_cmlm.command" and (rest[0] == "adapt" or is_distilled):
            rest.append(f"--params_override={json.dumps(_ADAPTED)}")
        sys.argv = [module, *tiny(module, rest)]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
