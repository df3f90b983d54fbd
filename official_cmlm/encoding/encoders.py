"""Opens encoders of any kind: those of `SentenceEncoder.load`, TF-Hub exports, Python objects.

It is the only place where evaluation meets models: evaluation knows nothing of an encoder but the
`OpenedEncoder` that is returned here.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import flags

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_directory import (
    EncoderDirectory,
    EncodingSettings,
    encoder_digest,
)
from official_cmlm.checkpoints.find_encoder import find_encoder
from official_cmlm.common import files, progress
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import is_installed
from official_cmlm.common.languages import is_language_tag
from official_cmlm.common.worker_processes import Processes
from official_cmlm.configs.encoder import VectorOverride
from official_cmlm.evaluation.encoder import (
    CountTokens,
    OpenedEncoder,
    Role,
    add_prompt,
    fingerprint,
)
from official_cmlm.tokenization.vocabulary import utf8

if TYPE_CHECKING:
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder

FLAGS = flags.FLAGS

# TF-Hub folders and Python objects ignore these options, which do not change vectors.
_NOT_OF_VECTORS = ("backend", "workload", "revision")
# The roles of retrieval; `document` is also called by the other names.
_QUERY, _DOCUMENT, _DOCUMENT_TOO = "query", "document", ("passage", "corpus")


def by_language(text: str) -> dict[str, str]:
    """Reads `en:path,fr:path` as language -> path of its encoder; any other text is a path for "".

    >>> by_language("en:work/english,fr:my_encoders:French")
    {'en': 'work/english', 'fr': 'my_encoders:French'}
    >>> by_language("my_encoders:one")
    {'': 'my_encoders:one'}

    Raises:
      UserError: if a language is named twice.
    """
    pairs = [part.strip().partition(":") for part in text.split(",")]
    # A module of a Python object may have the name of a language, as in `en:encode`.
    several = len(pairs) > 1 or ":" in pairs[0][2] or Path(pairs[0][2]).expanduser().exists()
    if not several or not all(is_language_tag(name) and path for name, _, path in pairs):
        return {"": text}
    languages = [name.lower() for name, _, _ in pairs]
    if len(set(languages)) < len(languages):
        raise UserError(f"--encoder={text}: a language is named twice")
    return {name.lower(): path for name, _, path in pairs}


def open_encoder(
    path: str, max_seq_length: int | None = None, workers: int = 1, **options: Any
) -> OpenedEncoder:
    """Opens an encoder.

    Args:
      path: what `SentenceEncoder.load` takes (of a running training: its latest checkpoint), a
        folder of `export.export_tfhub`, or `package.module:object`, where the object is a
        function, has a method `encode`, or is a class whose instances do. Queries and documents of
        retrieval are embedded by its methods `encode_query` and `encode_document`, or with its
        `prompts`, if it has them.
      max_seq_length: in tokens; for all but Python objects. Default: the encoder's own.
      workers: number of processes that embed. Default 1: this one.
      **options: other arguments of `SentenceEncoder.load`, such as `pooling`; those that change
        vectors do not apply to the other kinds. The default of `workload` is `bulk`.

    Raises:
      UserError: if `path` is none of these, or has no such vector.
    """
    if workers > 1:
        return _open_in_processes(
            workers, {"path": path, "max_seq_length": max_seq_length} | options
        )
    folder = Path(os.path.expanduser(path))
    is_python = ":" in path and not folder.exists()
    if max_seq_length is not None and is_python:
        raise UserError(f"--max_seq_length does not apply to {path}, a Python object")
    precision = options.get("precision", "float32")
    settings = f"{max_seq_length} {precision}"
    if not is_model(path):
        for name, value in options.items():
            if name not in _NOT_OF_VECTORS and value not in (None, "float32"):
                raise UserError(
                    f"--{name}={value} does not apply to {path}, a TF-Hub folder or Python object"
                )
        return _python_object(path) if is_python else _tfhub_pair(folder, max_seq_length, settings)
    folder = find_encoder(path, options.pop("revision", None))
    try:
        return _sentence_encoder(folder, max_seq_length, settings, options)
    except UserError:
        # A folder that cannot be imported is opened by sentence-transformers, which wrote it.
        if not (folder / "modules.json").exists() or not is_installed("sentence_transformers"):
            raise
    return _sentence_transformers(folder, max_seq_length, settings)


def _open_in_processes(workers: int, arguments: dict[str, Any]) -> OpenedEncoder:
    """Opens an encoder in this process and in workers, which embed; each has its own copy."""
    opened = open_encoder(**arguments)
    encode = functools.partial(
        _embed_by_shares, Processes(workers, open_encoder, [arguments] * workers)
    )
    roles = dict(opened.roles)
    # Other kinds of encoders embed the texts of roles in this process.
    if opened.kind == "encoder_directory":
        for name, role in opened.roles.items():
            roles[name] = Role(functools.partial(encode, role=name), role.prompt)
    return dataclasses.replace(opened, encode=encode, roles=roles, workers=workers)


def _embed_by_shares(processes: Processes, texts: list[str], role: str = "") -> np.ndarray:
    """Embeds texts sorted by length; each process gets equally many, of similar lengths."""
    workers = processes.workers
    shares = [texts[i::workers] for i in range(workers)]
    work = functools.partial(_encode_share, role=role)
    parts = processes.map(work, [share for share in shares if share])
    vectors = np.empty([len(texts), parts[0].shape[1]], parts[0].dtype)
    for i, rows in enumerate(parts):
        vectors[i::workers] = rows
    return vectors


def _encode_share(opened: OpenedEncoder, texts: list[str], role: str) -> np.ndarray:
    return np.asarray((opened.roles[role] if role else opened).encode(texts))


def is_model(path: str) -> bool:
    """Returns whether `SentenceEncoder.load` takes a path, not a TF-Hub folder or Python object."""
    folder = Path(os.path.expanduser(path))
    if EncoderDirectory.is_at(folder):
        return True
    is_tfhub = (folder / "preprocess" / "saved_model.pb").exists()
    return not is_tfhub and (":" not in path or folder.exists())


def model_settings() -> dict[str, Any]:
    """Returns the flags of `cli.define_model` that change the vectors, by name."""
    names = ("model", "revision", "max_seq_length", "precision", "pooling", "sentence_vector")
    settings = {name: FLAGS[name].value for name in names}
    if settings["model"] and os.path.exists(settings["model"]):
        settings["model"] = os.path.abspath(settings["model"])
    return settings


def load_model(workload: str, settings: dict[str, Any] | None = None) -> "SentenceEncoder":
    """Loads an encoder by the backend and device of the flags; see `SentenceEncoder.load`.

    `settings` is a result of `model_settings`; the default is its present result.
    """
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder

    cli.quiet_tensorflow()
    settings = model_settings() if settings is None else settings
    chosen = {"backend": FLAGS.backend, "device": FLAGS.device, "workload": workload}
    return SentenceEncoder.load(**settings, **chosen)


def _sentence_encoder(
    folder: Path, max_seq_length: int | None, settings: str, options: dict[str, Any]
) -> OpenedEncoder:
    """Opens a folder by `SentenceEncoder.load`."""
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder

    vector = {field.name: options.get(field.name) for field in dataclasses.fields(VectorOverride)}
    name, override = folder.resolve().name, VectorOverride(**vector)
    if override:
        name, settings = f"{name} ({override})", f"{settings} {override}"
    encoder = SentenceEncoder.load(
        folder, max_seq_length, **(dict[str, Any](workload="bulk") | options)
    )
    digest = encoder_digest(folder, settings)

    # Evaluation itself counts the texts that are cut.
    encode = functools.partial(encoder.encode, on_long="ignore")
    return OpenedEncoder(
        name,
        "encoder_directory",
        digest,
        encode,
        functools.partial(_fine_tuned, folder, max_seq_length, override),
        _roles(encoder, encode, on_long="ignore"),
        encoder.max_seq_length,
        functools.partial(encoder.count_tokens, prompt=""),
        prompt=encoder.prompts.get(encoder.default_prompt_name or "", ""),
    )


def _fine_tuned(
    folder: Path, max_seq_length: int | None, override: VectorOverride, *examples: Any
) -> Callable[[list[str]], np.ndarray]:
    """Trains a classifier on the encoder; returns its prediction of texts' classes."""
    from official_cmlm.encoding.fine_tuning import FineTuningConfig, fine_tune

    config = FineTuningConfig(max_seq_length=max_seq_length, override=override)
    bar = functools.partial(progress.counter, unit="step", description="fine-tuning")
    return fine_tune(folder, *examples, config=config, progress=bar).predict


def _tfhub_pair(folder: Path, max_seq_length: int | None, settings: str) -> OpenedEncoder:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 - registers the ops of the preprocess module

    preprocess, encoder = (tf.saved_model.load(folder / part) for part in ("preprocess", "encoder"))
    length, prompt = max_seq_length, ""
    if length is None:
        length = int(preprocess(tf.constant([""]))["input_word_ids"].shape[1])
    if asset := getattr(preprocess, "encoder_config", None):
        path = asset.asset_path.numpy().decode()
        prompt = EncodingSettings.of_values(files.read_object(path), path).default_prompt
    # Tokens are nested in texts and words, or in texts alone.
    nested = preprocess.tokenize(tf.constant([""])).ragged_rank > 1

    def tokenize(texts: list[str]) -> list[np.ndarray]:
        # A tensor cannot hold lone surrogates; `SentenceEncoder` replaces them equally.
        tokens = preprocess.tokenize(tf.constant(utf8(texts), tf.string))
        tokens = tokens.merge_dims(1, -1) if nested else tokens
        return np.split(tokens.values.numpy(), tokens.row_splits.numpy()[1:-1]) if texts else []

    def encode_ids(rows: list[np.ndarray]) -> np.ndarray:
        ids = np.concatenate([np.zeros([0], np.int32), *rows])
        splits = np.cumsum([0, *map(len, rows)])
        words = [np.arange(len(ids) + 1)] if nested else []
        segment = tf.RaggedTensor.from_nested_row_splits(ids, [splits, *words])
        packed = preprocess.bert_pack_inputs([segment], seq_length=tf.constant(length))
        return encoder(packed)["default"].numpy()

    return OpenedEncoder(
        folder.resolve().name,
        "tfhub",
        encoder_digest(folder, settings),
        _in_batches(lambda texts: encode_ids(tokenize([prompt + text for text in texts]))),
        max_seq_length=length,
        count_tokens=lambda texts: np.array([len(ids) + 2 for ids in tokenize(texts)]),
        prompt=prompt,
        tokenize=tokenize,
        encode_ids=_in_batches(encode_ids),
    )


def _sentence_transformers(
    folder: Path, max_seq_length: int | None, settings: str
) -> OpenedEncoder:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(os.fspath(folder))
    if max_seq_length is not None:
        model.max_seq_length = max_seq_length
    options = {"show_progress_bar": False, "convert_to_numpy": True}
    encode = functools.partial(model.encode, **options)
    has_parts = any(type(module).__name__ in ("Router", "Asym") for module in model)
    return OpenedEncoder(
        folder.resolve().name,
        "sentence_transformers",
        encoder_digest(folder, settings),
        encode,
        roles=_roles(model, encode, has_parts, **options),
        max_seq_length=getattr(model, "max_seq_length", None),
        count_tokens=_tokens_of(getattr(model, "tokenizer", None)),
        prompt=(model.prompts or {}).get(getattr(model, "default_prompt_name", None)) or "",
    )


def _tokens_of(tokenizer: Any) -> CountTokens | None:
    """Returns a counter of tokens by a tokenizer of the package transformers; None for others."""

    def count_tokens(texts: list[str]) -> np.ndarray:
        # `verbose` enables the warning that a text is longer than the model reads.
        tokens = tokenizer(list(texts), truncation=False, padding=False, verbose=False)
        return np.array([len(ids) for ids in tokens["input_ids"]])

    try:
        return count_tokens if count_tokens(["a", ""]).shape == (2,) else None
    except Exception:
        # A model may have anything in this place, such as a splitter at white space.
        return None


def _roles(
    model: Any, encode: Callable[..., np.ndarray], has_parts: bool = False, **options: Any
) -> dict[str, Role]:
    """Returns the roles of a `SentenceEncoder` or a `SentenceTransformer`, which apply prompts.

    A prompt may be excluded from the mean of tokens, and a model may have parts of its own for
    queries and documents (`has_parts`); a role exists only with a prompt or with such parts.
    """
    prompts = {name: prompt for name, prompt in (model.prompts or {}).items() if prompt}
    roles = {
        name: Role(functools.partial(encode, prompt_name=name), prompt)
        for name, prompt in prompts.items()
    }
    for name in (_QUERY, _DOCUMENT):
        method = getattr(model, f"encode_{name}", None)
        others = _DOCUMENT_TOO if name == _DOCUMENT else ()
        # The library itself prefers an empty prompt `document` to one called `passage`.
        key = next((key for key in (name, *others) if key in prompts), None)
        # Without a prompt for queries, `encode_query` omits the default prompt too.
        if method and (key or has_parts or getattr(model, "default_prompt_name", None) is not None):
            method = functools.partial(method, prompt_name=key, **options)
            roles[name] = Role(method, prompts.get(key, ""))
    return _with_document(roles)


def _with_document(roles: dict[str, Role]) -> dict[str, Role]:
    """Adds the role `document` where only another name of it exists, such as `passage`."""
    same = [roles[name] for name in (_DOCUMENT, *_DOCUMENT_TOO) if name in roles]
    return roles | ({_DOCUMENT: same[0]} if same else {})


def _python_object(path: str) -> OpenedEncoder:
    module_name, _, attribute = path.partition(":")
    hint = "name package.module:object, where object is a function or has encode(list of str)"
    module = cli.import_user_module(module_name, hint)
    try:
        encoder = functools.reduce(getattr, attribute.split("."), module)
        encoder = encoder() if isinstance(encoder, type) else encoder
    except Exception as error:
        # The user's object may raise any exception.
        raise UserError(
            f"{path}: cannot be imported ({type(error).__name__}: {error}); {hint}"
        ) from None
    encode = getattr(encoder, "encode", encoder)
    if not callable(encode):
        raise UserError(f"{path}: neither a function nor anything with encode(list of str)")
    prompts = getattr(encoder, "prompts", None)
    prompts = {} if prompts is None else prompts
    if not isinstance(prompts, Mapping) or not all(
        isinstance(name, str) and isinstance(prompt, str | None) for name, prompt in prompts.items()
    ):
        raise UserError(f"{path}: prompts must be name -> string, got {prompts!r:.80}")
    roles = _with_document(
        {name: add_prompt(encode, text) for name, text in prompts.items() if text}
    )
    settings = "".join(f" {name}={role.prompt}" for name, role in roles.items())
    for name in (_QUERY, _DOCUMENT):
        if callable(method := getattr(encoder, f"encode_{name}", None)):
            roles[name] = Role(method, roles[name].prompt if name in roles else "")
            settings += f" {name} {fingerprint(method)}"
    # The digest can cover only some of its vectors and the source of its module.
    source = getattr(module, "__file__", None)
    facts = f"{path} {fingerprint(encode)}{settings}"
    digest = files.digest([Path(source)] if source else [], facts)
    return OpenedEncoder(path, "python", digest, encode, roles=roles)


def _in_batches(encode: Callable[[list], np.ndarray]) -> Callable[[list], np.ndarray]:
    """Encodes 64 texts at a time; they are sorted by length, so there is little padding."""
    # Without texts there is one empty batch, which has the right width.
    return lambda texts: np.concatenate(
        [encode(texts[start : start + 64]) for start in range(0, max(len(texts), 1), 64)]
    )
