"""The modules of an export, called by the routes of `serving_cases`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 - registers the ops of the modules
from tensorflow.python.client import pywrap_tf_session

from tests.hostile.serving_cases import EITHER, ERROR, Case

# Errors that a caller may expect and handle.
_EXPECTED = (tf.errors.InvalidArgumentError, ValueError, TypeError)


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


def _list_arrays(result: Any) -> list[np.ndarray]:
    """Returns every tensor of a result, a ragged one as its values and row lengths."""
    if isinstance(result, tf.RaggedTensor):
        return [result.row_lengths().numpy(), result.flat_values.numpy()]
    if isinstance(result, dict):
        return [array for name in sorted(result) for array in _list_arrays(result[name])]
    if isinstance(result, (list, tuple)):
        return [array for each in result for array in _list_arrays(each)]
    return [np.asarray(result)]


def find_fault(case: Case, modules: Modules) -> str | None:
    """Returns the fault of a case's outcome, or None if it is the expected one."""

    def call(make: Callable[[], Any]) -> list[np.ndarray]:
        return _list_arrays(modules.call(case.module, case.route, make()))

    try:
        arrays = call(case.make)
        others = arrays if case.same_as is None else call(case.same_as)
    except Exception as error:
        is_expected = isinstance(error, _EXPECTED) and case.expected in (ERROR, EITHER)
        return None if is_expected else f"{type(error).__name__}: {error}"[:300]
    if case.expected not in (EITHER, len(arrays[0])):
        return f"{len(arrays[0])} rows"
    if not all(np.isfinite(array).all() for array in arrays):
        return "not finite"
    is_same = all(map(lambda a, b: np.allclose(a, b, atol=1e-5), arrays, others))
    return None if is_same or case.route == "tokenize" else "another result than of equal strings"
