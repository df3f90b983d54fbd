"""Runs cases of `serving_cases` in a process that may crash.

`python -m tests.hostile.serving_worker EXPORTS CASES`: EXPORTS is a folder with an export for each
kind of vocabulary, CASES a JSON list of numbers of cases. Before a case it prints its number, after
it a JSON object: number, outcome (`error` or `result`), and what came.
"""

import faulthandler
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 - registers the ops of the modules
from tensorflow.python.client import pywrap_tf_session

from tests.hostile.serving_cases import Case, cases

# Seconds after which a case counts as hanging.
LIMIT = 60
# Errors that a caller may expect and handle.
EXPECTED = (tf.errors.InvalidArgumentError, ValueError, TypeError)


class Modules:
    """The modules of one export, each loaded when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._opened = folder, {}

    def _open(self, module: str, how: Callable[[str], Any]) -> Any:
        if (module, how) not in self._opened:
            folder = self._folder / {"serving": "serving/1"}.get(module, module)
            self._opened[module, how] = how(str(folder))
        return self._opened[module, how]

    def raw(self, module: str, value: Any) -> dict[str, np.ndarray]:
        """Runs the signature as a server does: the client's tensors go to the graph unchecked."""
        session, signature = self._open(module, _session)
        values = value if isinstance(value, dict) else {next(iter(signature.inputs)): value}

        def tensor(name: str) -> Any:
            return session.graph.as_graph_element(name)._as_tf_output()

        feeds = {}
        for name, info in signature.inputs.items():
            if name not in values:
                raise ValueError(f"no input {name}")
            feeds[tensor(info.name)] = np.asarray(values[name])
        if len(values) > len(feeds):
            raise ValueError("an input that the signature lacks")
        names = sorted(signature.outputs)
        fetches = [tensor(signature.outputs[name].name) for name in names]
        results = pywrap_tf_session.TF_SessionRun_wrapper(
            session._session, None, feeds, fetches, [], None
        )
        return dict(zip(names, results))

    def call(self, module: str, route: str, value: Any) -> Any:
        """Calls the module by a route."""
        if route == "raw":
            return self.raw(module, value)
        if route == "pack":
            return _pack(self._open(module, tf.saved_model.load).bert_pack_inputs, value)
        tensors = (
            {name: tf.constant(each) for name, each in value.items()}
            if isinstance(value, dict)
            else tf.constant(value)
        )
        if route == "layer":
            return self._open(module, hub.KerasLayer)(tensors)
        loaded = self._open(module, tf.saved_model.load)
        if route == "signature":
            signature = loaded.signatures["serving_default"]
            return signature(**tensors) if isinstance(tensors, dict) else signature(tensors)
        if route == "training":
            return loaded(tensors, training=True)
        if route == "concrete":
            function = loaded.serve if module == "serving" else loaded.__call__
            return function.concrete_functions[0](tensors)
        if route == "tokenize" and module == "serving":
            return loaded.preprocess.tokenize(tensors)
        return loaded(tensors) if route == "call" else getattr(loaded, route)(tensors)


def _session(path: str) -> tuple:
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        meta = tf.compat.v1.saved_model.load(session, ["serve"], path)
    return session, meta.signature_def["serving_default"]


def _pack(function: Any, value: dict) -> Any:
    segments = [
        tf.RaggedTensor.from_row_splits(
            tf.range(7, 7 + value["values"]), tf.constant(splits, tf.int64), validate=False
        )
        for splits in value["splits"]
    ]
    if "seq_length" in value:
        return function(segments, seq_length=tf.constant(value["seq_length"]))
    return function(segments)


def _arrays(result: Any) -> list[np.ndarray]:
    """Returns every tensor of a result, a ragged one as its values and row lengths."""
    if isinstance(result, tf.RaggedTensor):
        return [result.row_lengths().numpy(), result.flat_values.numpy()]
    if isinstance(result, dict):
        return [array for name in sorted(result) for array in _arrays(result[name])]
    if isinstance(result, (list, tuple)):
        return [array for each in result for array in _arrays(each)]
    return [np.asarray(result)]


def run(case: Case, modules: Modules) -> dict[str, Any]:
    """Returns the outcome of a case."""
    try:
        arrays = _arrays(modules.call(case.module, case.route, case.make()))
        finite = all(np.isfinite(array).all() for array in arrays)
        rows = {len(array) for array in arrays[:1]}
        outcome = {"outcome": "result", "rows": rows.pop(), "finite": bool(finite)}
        if case.same_as is not None:
            others = _arrays(modules.call(case.module, case.route, case.same_as()))
            if case.route != "tokenize":
                outcome["same"] = all(np.allclose(a, b, atol=1e-5) for a, b in zip(arrays, others))
        return outcome
    except EXPECTED as error:
        text = f"{type(error).__name__}: {error}"
        return {"outcome": "error", "message": text[:300]}
    except Exception as error:
        return {"outcome": "other error", "message": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    """Runs the cases and prints their outcomes."""
    exports, numbers = Path(sys.argv[1]), json.loads(sys.argv[2])
    every = list(cases())
    modules = {kind: Modules(exports / kind / "out") for kind in {every[n].kind for n in numbers}}
    for number in numbers:
        print(number, flush=True)
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        outcome = run(every[number], modules[every[number].kind])
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"number": number, **outcome}), flush=True)


if __name__ == "__main__":
    main()
