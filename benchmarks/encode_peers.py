"""The ways in which sentence-transformers encodes on CPUs, for `benchmarks.encode`.

Its backends `onnx` and `openvino` load graphs by the packages optimum-onnx and optimum-intel. Where
these packages cannot be installed with it, the same runtime still runs inside its `encode`: its
Transformer module gets the token outputs of a graph that PyTorch exports of the same model,
quantised by the functions that optimum calls. Only optimum's own overhead is not measured.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Name -> whether it computes with 8-bit integers.
PEERS = {
    "torch": False,
    "torch_bfloat16": False,
    "torch_int8": True,
    "onnx": False,
    "onnx_int8": True,
    "openvino": False,
    "openvino_int8": True,
}
# Peers that compute in float32.
FLOAT32 = ("torch", "onnx", "openvino")
_NAMES = ("input_ids", "attention_mask", "token_type_ids")
# Number of sentences that calibrate OpenVINO's static quantisation, optimum-intel's default.
_CALIBRATION = 300


def prepare(peer: str, model: str, folder: str, sentences: list[str]) -> None:
    """Writes the graph that a peer reads into `folder`; raises whatever its packages raise."""
    runtime = peer.removesuffix("_int8")
    if runtime == "torch" or peer == "torch_bfloat16":
        return
    graph = Path(folder) / "float32.onnx"
    if not graph.exists():
        _export(model, graph)
    if peer == "onnx_int8":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # `export_dynamic_quantized_onnx_model` chooses these types for "avx512_vnni" and "avx2".
        vnni = {"avx512_vnni", "avx_vnni"} & set(Path("/proc/cpuinfo").read_text().split())
        kind = QuantType.QInt8 if vnni else QuantType.QUInt8
        quantize_dynamic(graph, Path(folder) / "onnx_int8.onnx", weight_type=kind)
    if peer == "openvino":
        import openvino

        openvino.save_model(openvino.convert_model(graph), f"{folder}/openvino.xml", False)
    if peer == "openvino_int8":
        import nncf
        import openvino

        tokenizer = _model(model).tokenizer
        rows = [
            dict(tokenizer(text, truncation=True, max_length=256, return_tensors="np"))
            for text in sentences[:_CALIBRATION]
        ]
        quantised = nncf.quantize(
            openvino.convert_model(graph), nncf.Dataset(rows), model_type=nncf.ModelType.TRANSFORMER
        )
        openvino.save_model(quantised, f"{folder}/openvino_int8.xml", False)


def open_peer(peer: str, model: str, folder: str) -> Any:
    """Returns a `SentenceTransformer` that computes as the peer does."""
    import torch

    if peer == "torch_bfloat16":
        return _model(model, model_kwargs={"torch_dtype": torch.bfloat16})
    loaded = _model(model)
    if peer == "torch_int8":
        layers = {torch.nn.Linear}
        torch.ao.quantization.quantize_dynamic(loaded, layers, torch.qint8, inplace=True)
    elif peer != "torch":
        compute = _onnx(peer, folder) if peer.startswith("onnx") else _openvino(peer, folder)
        _replace(loaded[0], compute)
    return loaded


def _model(model: str, **settings: Any) -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(model, device="cpu", **settings)


def _export(model: str, path: Path) -> None:
    import torch

    loaded = _model(model)
    network = loaded[0].auto_model.eval()
    features = loaded.tokenizer(["One sentence.", "Two."], padding=True, return_tensors="pt")

    class Tokens(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, mask: Any, types: Any) -> Any:
            outputs = self.network(input_ids=ids, attention_mask=mask, token_type_ids=types)
            return outputs.last_hidden_state

    torch.onnx.export(
        Tokens(),
        tuple(features[name] for name in _NAMES),
        str(path),
        input_names=list(_NAMES),
        output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "batch", 1: "seq"} for name in (*_NAMES, "last_hidden_state")},
        opset_version=17,
        dynamo=False,
    )


def _replace(module: Any, compute: Callable[[dict], Any]) -> None:
    """Lets a Transformer module take its token outputs from `compute`."""
    import torch

    def forward(features: dict[str, Any], **settings: Any) -> dict[str, Any]:
        del settings
        tokens = compute({name: features[name].numpy() for name in _NAMES})
        return {**features, "token_embeddings": torch.from_numpy(tokens)}

    module.forward = forward


def _onnx(peer: str, folder: str) -> Callable[[dict], Any]:
    import onnxruntime

    name = "onnx_int8.onnx" if peer == "onnx_int8" else "float32.onnx"
    session = onnxruntime.InferenceSession(f"{folder}/{name}", providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)[0]


def _openvino(peer: str, folder: str) -> Callable[[dict], Any]:
    import openvino

    # Otherwise OpenVINO computes in bfloat16 where the processor multiplies it.
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(f"{folder}/{peer}.xml", "CPU", settings)
    return lambda feeds: compiled(feeds)[0]
