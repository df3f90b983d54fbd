"""The console scripts of the installed project, such as `cmlm-train`.

Each runs a binary as `python -m` does; pyproject.toml lists them. The folders `data_prep`,
`experiments` and `export` of a checkout are packages below this one where the project is installed.
"""

import functools
import runpy


def _run(module: str) -> None:
    """Runs a module of this package as the main program, with the arguments of the process."""
    # In place of `__main__`, whose flags and docstring `--help` shows.
    runpy.run_module(f"{__package__}.{module}", run_name="__main__", alter_sys=True)


build_vocab = functools.partial(_run, "data_prep.build_vocab")
create_documents = functools.partial(_run, "data_prep.create_documents")
create_pairs = functools.partial(_run, "data_prep.create_pairs")
docstrings = functools.partial(_run, "data_prep.docstrings")
hold_out = functools.partial(_run, "data_prep.hold_out")
mine_negatives = functools.partial(_run, "data_prep.mine_negatives")
prepare = functools.partial(_run, "data_prep.prepare")
random_strings = functools.partial(_run, "data_prep.random_strings")
report_balance = functools.partial(_run, "data_prep.report_balance")
train_quality_classifier = functools.partial(_run, "data_prep.train_quality_classifier")

demo = functools.partial(_run, "experiments.demo")
demo_report = functools.partial(_run, "experiments.demo.report")
evaluate = functools.partial(_run, "experiments.evaluate")
study = functools.partial(_run, "experiments.study")
train = functools.partial(_run, "experiments.train")
train_stages = functools.partial(_run, "experiments.train_stages")

embed = functools.partial(_run, "export.embed")
export_litert = functools.partial(_run, "export.export_litert")
export_onnx = functools.partial(_run, "export.export_onnx")
export_sentence_transformers = functools.partial(_run, "export.export_sentence_transformers")
export_tfhub = functools.partial(_run, "export.export_tfhub")
serve = functools.partial(_run, "export.serve")
import_checkpoint = functools.partial(_run, "checkpoints.import_checkpoint")
