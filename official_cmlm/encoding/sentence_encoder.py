"""`SentenceEncoder`: strings in, NumPy vectors out."""

import dataclasses
import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from official_cmlm.checkpoints.encoder_directory import (
    COMPATIBLE,
    NO_SETTINGS,
    EncoderDirectory,
    EncodingSettings,
    write_settings,
)
from official_cmlm.checkpoints.find_encoder import find_encoder
from official_cmlm.common import progress
from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.common.files import read_array
from official_cmlm.common.worker_processes import Processes
from official_cmlm.configs.encoder import VectorOverride
from official_cmlm.encoding.backends import WORKLOADS, Backend, Computation, open_folder
from official_cmlm.encoding.token_batches import (
    CutTexts,
    TextReader,
    batches,
    common_starts,
    cut_rows,
    in_threads,
    join_rows,
    lengths_of,
    long_windows,
    pad_rows,
)
from official_cmlm.evaluation.encoder import check_roles
from official_cmlm.tokenization import Tokenizer, TokenRows, Vocabulary, build_tokenizer
from official_cmlm.vectors.embeddings import Ranges, quantize, similarity, similarity_pairwise
from official_cmlm.vectors.nearest import unit

if TYPE_CHECKING:
    import tensorflow as tf

    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

ON_LONG = ("cut", "error", "ignore")
# Role of retrieval -> names of its prompt in sentence-transformers' folders, the first one first.
_ROLES = {"query": ("query",), "document": ("document", "passage", "corpus")}


class TextCutWarning(UserWarning):
    """A warning that texts were cut at `max_seq_length`.

    Attributes:
      texts: number of these texts.
      tokens: number of tokens that were cut off, or a lower bound of it.
    """

    def __init__(self, message: str, texts: int = 0, tokens: int = 0) -> None:
        super().__init__(message)
        self.texts, self.tokens = texts, tokens


class SentenceEncoder:
    """Encodes sentences with a trained encoder.

    Examples:
      >>> encoder = SentenceEncoder.load("my_encoder")          # doctest: +SKIP
      >>> vectors = encoder.encode(["One.", "Another one."])    # doctest: +SKIP
      >>> vectors.shape, vectors.dtype                          # doctest: +SKIP
      ((2, 768), dtype('float32'))

    Attributes:
      backend: computes the vectors; see `official_cmlm.encoding.backends`.
      vocabulary: the encoder's vocabulary.
      max_seq_length: longer texts are cut to this many tokens, `[CLS]` and `[SEP]` included.
      prompts: name -> text that `encode(prompt_name=name)` puts before each sentence.
      default_prompt_name: name of the prompt that is used without `prompt_name`; None: no prompt.
      similarity_fn_name: how `similarity` compares embeddings.
      ranges: the range of each dimension, for embeddings of 8 bits; None: not calibrated, or only
        for another pooling or other weights. See `calibrate`.
      compatible_with: unit vectors of some texts, float32 `[texts, dim]`, by an encoder whose
        `Index` this one may search; None: there is none.
    """

    compatible_with: np.ndarray | None = None
    # `load` replaces it by what it was told.
    _name = "in memory"

    def __init__(
        self,
        model: "SentenceEncoderModel | Backend",
        vocabulary: Vocabulary,
        max_seq_length: int,
        precision: str = "float32",
        tokenizer: Tokenizer | None = None,
        settings: EncodingSettings | None = None,
    ) -> None:
        """Makes an encoder from objects in memory.

        Args:
          model: a Keras encoder, which the backend `tensorflow` computes, or another backend.
          vocabulary: its vocabulary.
          max_seq_length: see the attribute.
          precision: precision of the arithmetic of a Keras encoder; see `load`.
          tokenizer: turns texts into ids. Default: built by `tokenization.build_tokenizer`.
          settings: prompts and the like. Default: none.

        Raises:
          ValueError: for another precision or a length that the position table does not cover.
        """
        settings = settings or NO_SETTINGS
        if isinstance(model, Backend):
            backend = model
        else:
            from official_cmlm.encoding.backends.tensorflow import TensorFlowBackend

            backend = TensorFlowBackend(model, precision)
            settings = dataclasses.replace(settings, normalize=model.config.normalize)
        rows = backend.max_positions
        if not 3 <= max_seq_length <= rows:
            raise UserError(
                f"max_seq_length must be 3 to {rows} (the position table), got {max_seq_length}"
            )
        self.backend = backend
        self.vocabulary = vocabulary
        self.max_seq_length = max_seq_length
        self._tokenizer = tokenizer or build_tokenizer(vocabulary)
        self._normalizes = settings.normalize
        self.prompts = dict.fromkeys(_ROLES, "") | dict(settings.prompts)
        self.default_prompt_name = settings.default_prompt_name
        self.similarity_fn_name = settings.similarity_fn_name
        self._id = dataclasses.replace(backend.embedding_id, weights=settings.weights)
        self.ranges = settings.ranges
        # The arguments of `_open` that make this encoder again.
        self._loaded: dict[str, Any] | None = None
        self._other_ranges: tuple[Ranges, str] | None = None
        if self.ranges is not None and (why := self.ranges.origin.difference(self._id)):
            self.ranges, self._other_ranges = None, (self.ranges, why)

    @classmethod
    def load(
        cls,
        model: str | os.PathLike,
        max_seq_length: int | None = None,
        precision: str = "float32",
        pooling: str | None = None,
        sentence_vector: str | None = None,
        backend: str = "auto",
        layer: int | None = None,
        device: str | None = None,
        workload: str = "queries",
        revision: str | None = None,
    ) -> "SentenceEncoder":
        """Loads an encoder; TensorFlow is imported only if a backend needs it.

        Args:
          model: an encoder directory (the `--model_dir` of a training, or an import); a
            sentence-transformers or Hugging Face folder, which is imported into the cache; a folder
            of ONNX graphs; an installed package of weights, such as `all-MiniLM-L6-v2`; or a name
            `org/model` of the Hugging Face hub, whose cache comes first.
          max_seq_length: in tokens; default is the encoder's own, the longest that was trained.
          precision: precision of the arithmetic; `encode` has an argument for stored embeddings.
            `float32` (default); with the backend `onnx` also `int8`: products of 8-bit integers,
            about twice as fast; with `tensorflow` also `bfloat16`: products of 8-bit mantissas with
            float32 sums, about twice as fast on processors that have them (AVX512-BF16, AMX) and
            slower on others; the embeddings then differ in the third digit. Figures of speed and
            accuracy are in benchmarks/results/encode.md.
          pooling: how token outputs become the vector, one of `configs.encoder.POOLINGS`. Default:
            as the encoder was trained, or imported.
          sentence_vector: `pooled`, or `projected_mean`, the mean of CMLM's projections, which a
            training with the objective `cmlm` has. Default: the encoder's own.
          backend: computes the vectors, one of `encoding.backends.BACKENDS`: `onnx`, ONNX
            Runtime; `tensorflow`, which `SentenceEncoder.model` needs; `auto` (default), the
            fastest for the workload.
          layer: number of the layer whose outputs are pooled, from 1. Default: the last one.
          device: `cpu` (default), or another device of the backend, such as `cuda` or `cuda:1`.
          workload: what `auto` chooses for: `queries` (default), the time of single texts, or
            `bulk`, the texts a second, which is measured once an encoder and machine.
          revision: branch, tag or commit of a name of the hub.

        Raises:
          UserError: if nothing has that name, it cannot be read, or it lacks the vector; for an
            unknown backend or device.
          ValueError: for another precision, workload, or a length that the position table does not
            cover.
        """
        if precision in ("uint8", "binary", "ubinary"):
            raise ValueError(
                f"precision {precision} is one of embeddings: encode(…, precision={precision!r}); "
                "here it is that of the arithmetic"
            )
        if workload not in WORKLOADS:
            raise ValueError(f"workload must be {' or '.join(WORKLOADS)}, got {workload!r}")
        override = VectorOverride(pooling, sentence_vector, layer)
        computation = Computation(max_seq_length, precision, override, device, workload)
        with guard_reading(model):
            encoder = cls._open(backend, find_encoder(model, revision), computation)
        encoder._name = os.fspath(model)
        return encoder

    @classmethod
    def _open(cls, backend: str, folder: Path, computation: Computation) -> "SentenceEncoder":
        opened = open_folder(backend, folder, computation)
        encoder = cls(
            opened.backend,
            opened.vocabulary,
            opened.max_seq_length,
            tokenizer=opened.tokenizer,
            settings=opened.settings,
        )
        names = {"backend": opened.backend.name, "folder": folder}
        encoder._loaded = names | {"computation": computation}
        path = folder / COMPATIBLE
        if path.exists() and not computation.override:
            vectors = read_array(path, "delete it, or write it again")
            if vectors.dtype != np.float16:
                raise UserError(f"{path}: holds {vectors.dtype}, not float16; delete it")
            encoder.compatible_with = vectors.astype(np.float32)
        return encoder

    def save_settings(self, folder: str | os.PathLike) -> None:
        """Stores prompts, similarity and ranges in an encoder directory, in place of those there.

        Ranges are stored with the pooling and a digest of the weights that they belong to. Without
        ranges the folder's file of ranges is removed, unless it came with this encoder and belongs
        to another pooling or other weights.

        Raises:
          UserError: if the folder is not an encoder directory, or the prompts are not strings.
        """
        ranges = self.ranges
        if ranges is None and self._other_ranges:
            ranges = self._other_ranges[0]
        elif ranges is not None and ranges.origin.weights is None:
            # An encoder in memory counts as the folder's encoder.
            origin = dataclasses.replace(
                ranges.origin, weights=EncoderDirectory.open(folder).weights_digest
            )
            ranges = dataclasses.replace(ranges, origin=origin)
        settings = EncodingSettings(
            self.prompts,
            self.default_prompt_name,
            self.similarity_fn_name,
            self._normalizes,
            ranges,
        )
        write_settings(folder, settings)

    def token_rows(
        self,
        sentences: Sequence[str],
        *,
        role: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> TokenRows:
        """Returns the ids of each sentence after its prompt, for `encode_rows`.

        The ids are not cut and lack special tokens, so ids from another source can replace them.

        Args:
          sentences, prompt_name, prompt: see `encode`.
          role: `query` or `document`: the prompt of `encode_query` or `encode_document`.

        Returns:
          int32 ids, a row for each sentence.

        Raises:
          TypeError, UserError: as `encode`.
        """
        if role is not None:
            prompt = self.find_prompt(role)
        return join_rows(self._reader(prompt_name, prompt).whole(_check_list(sentences)))

    def encode_rows(self, rows: TokenRows, batch_size: int = 64) -> np.ndarray:
        """Embeds rows of `token_rows`, each cut to `max_seq_length` with its special tokens.

        Returns:
          float32 `[n, dimension]`, as `encode` without options, whose errors are raised too.
        """
        cut = cut_rows(rows, self.max_seq_length - 2)
        return self._compute_all([cut], batch_size, len(rows.row_splits) - 1)

    def __repr__(self) -> str:
        return (
            f"SentenceEncoder({self._name!r}, dimension={self.dimension}, "
            f"max_seq_length={self.max_seq_length}, backend={self.backend.name!r})"
        )

    @property
    def dimension(self) -> int:
        """Width of the embeddings."""
        return self.backend.dimension

    def get_sentence_embedding_dimension(self) -> int:
        """Returns `dimension`, by the name that sentence-transformers has for it."""
        return self.dimension

    @property
    def device(self) -> str:
        """Name of the device that computes, such as `cpu`."""
        return getattr(self.backend, "device", None) or "cpu"

    @property
    def model(self) -> "SentenceEncoderModel":
        """The Keras encoder; from now on vectors follow its variables, somewhat more slowly.

        Raises:
          UserError: if the backend has none.
        """
        if not hasattr(self.backend, "model"):
            raise UserError(
                f"encoder.model: the backend {self.backend.name} has no Keras model; load the "
                'encoder with backend="tensorflow"'
            )
        return self.backend.model

    def encode(
        self,
        sentences: str | Iterable[str],
        batch_size: int = 64,
        show_progress_bar: bool | Callable[[int], object] | None = False,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        on_long: str = "cut",
        output_value: str = "sentence_embedding",
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        precision: str = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: str | None = None,
        pool: Processes | None = None,
    ) -> Any:
        """Embeds sentences; the order of the rows is the order of the sentences.

        The names are those of sentence-transformers' `SentenceTransformer.encode`.

        Examples:
          >>> encoder.encode("One.").shape                          # doctest: +SKIP
          (768,)

        Args:
          sentences: a string, a list of strings, or another collection of them; empty strings are
            allowed, and a lone surrogate, which has no UTF-8, counts as `?`. Sentences are batched
            by length, so that there is little padding.
          batch_size: maximum sentences a batch; long sentences come in smaller batches.
          show_progress_bar: draw a progress bar with the time left on standard error; or a function
            that is called with the number of sentences of each finished batch.
          prompt_name: key of `prompts`; its text is put before each sentence. Default:
            `default_prompt_name`.
          prompt: another text in place of it; "" for no prompt.
          on_long: treatment of sentences with more than `max_seq_length` tokens, prompt included:
            `cut`, with one `TextCutWarning` that counts them; `error`; or `ignore`, which cuts
            silently. `encode_long` cuts nothing.
          output_value: `sentence_embedding`, or `token_embeddings`, the last layer's outputs,
            special tokens and prompt included, where the backend can give them.
          normalize_embeddings: scale each vector to length 1, for cosine similarity.
          truncate_dim: keep this many first dimensions, before they are scaled. Default: all.
          precision: precision of the returned embeddings, one of `embeddings.PRECISIONS`; see
            `embeddings.quantize`. `int8` and `uint8` need `ranges`. Default `float32`. (`load` has
            an argument for the arithmetic.)
          convert_to_numpy: only read to refuse False without `convert_to_tensor`.
          convert_to_tensor: return `torch.Tensor`s in place of arrays.
          device: only read to refuse another device than `device`; `load` selects it.
          pool: processes of `start_multi_process_pool`, which compute in place of this one.

        Returns:
          float32 `[n, dimension]`, or as `truncate_dim` and `precision` say; an empty list gives
          the same number of columns, a single string its row. For tokens: a list of float32
          `[tokens, hidden]`; for a single string, the only item of that list.

        Raises:
          TypeError: if `sentences` holds something other than strings.
          ValueError: if `batch_size` is below 1, or another argument has an unknown value.
          UserError: if an embedding is not finite, as with weights that overflow; if a sentence is
            too long and `on_long` is `error`; if the prompt is unknown, or ranges are missing; if
            the backend has no embeddings of tokens, or torch is not installed.
        """
        texts = _check_sentences(sentences)
        # A wrong argument is an error before any work.
        convert = _conversion(convert_to_numpy, convert_to_tensor)
        if device is not None and str(device) != self.device:
            raise UserError(
                f"device={device}: the encoder is on {self.device}; "
                f"SentenceEncoder.load(…, device={str(device)!r}) loads it there"
            )
        changed = normalize_embeddings or truncate_dim or precision != "float32"
        tokens = self._gives_tokens(output_value, bool(changed))
        finish = self._finisher(normalize_embeddings, truncate_dim, precision)
        cut, windows = self._windows(texts, prompt_name, prompt, on_long)
        with _progress_bar(show_progress_bar, len(texts)) as bar:
            embeddings: Any
            if tokens:
                computed = self._compute(windows, batch_size, bar, tokens=True, pool=pool)
                embeddings = [convert(rows) for window in computed for rows in window]
            else:
                vectors = self._compute_all(windows, batch_size, len(texts), bar, pool=pool)
                embeddings = convert(finish(vectors))
        self._report(cut, on_long)
        return embeddings[0] if isinstance(sentences, str) else embeddings

    def encode_iter(
        self,
        sentences: Iterable[str],
        batch_size: int = 64,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        on_long: str = "cut",
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        precision: str = "float32",
        pool: Processes | None = None,
    ) -> Iterator[np.ndarray]:
        """Embeds a stream of any length: yields the row of `encode` of each sentence, in order.

        A few thousand sentences are read ahead of the row that is yielded, so memory does not grow
        with the stream. `TextCutWarning` comes after the last row.

        Examples:
          >>> with open("lines.txt") as file:                       # doctest: +SKIP
          ...     for vector in encoder.encode_iter(file): ...

        Args:
          sentences: strings, for example the lines of a file.
          batch_size, prompt_name, prompt, on_long, normalize_embeddings: see `encode`.
          truncate_dim, precision, pool: see `encode`.

        Raises:
          TypeError: for a single string, and when a sentence is not a string.
          ValueError, UserError: as `encode`.
        """
        if isinstance(sentences, str):
            raise TypeError("encode_iter takes an iterable of strings, got a single string")
        finish = self._finisher(normalize_embeddings, truncate_dim, precision)
        cut, windows = self._windows(_check_each(sentences), prompt_name, prompt, on_long)

        def rows() -> Iterator[np.ndarray]:
            for vectors in self._compute(windows, batch_size, pool=pool):
                yield from finish(vectors)
            self._report(cut, on_long)

        return rows()

    def encode_query(self, sentences: str | Iterable[str], **options: Any) -> Any:
        """Embeds queries of retrieval: `encode` with the prompt `query`, if there is one.

        Otherwise they get no prompt, not even the default one. A prompt among the options, which
        are those of `encode`, has priority.
        """
        return self.encode(sentences, **self._with_prompt("query", options))

    def encode_document(self, sentences: str | Iterable[str], **options: Any) -> Any:
        """Embeds documents of retrieval: `encode` with their prompt.

        It is the first of `document`, `passage` and `corpus` that is not empty; otherwise documents
        get no prompt.

        Args:
          sentences, **options: see `encode`; a prompt among the options has priority.
        """
        return self.encode(sentences, **self._with_prompt("document", options))

    def find_prompt(self, role: str) -> str:
        """Returns the prompt of `query`, `document` or another name; empty if there is none."""
        return find_prompt(self.prompts, role)

    def encode_long(
        self,
        texts: str | Sequence[str],
        batch_size: int = 64,
        show_progress_bar: bool | Callable[[int], object] | None = False,
        *,
        overlap: int | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        precision: str = "float32",
    ) -> np.ndarray:
        """Embeds texts of any length: the mean over windows of `max_seq_length` tokens.

        Each window begins `max_seq_length - 2 - overlap` tokens (fewer with a prompt) after the one
        before it; the last one ends with the text. Windows are weighted by their numbers of tokens.
        Every window gets the prompt. An encoder that scales its embeddings to length 1 scales the
        mean too. A text that fits into one window has the vector of `encode`.

        Args:
          texts: one text, or a list of them.
          overlap: tokens that a window shares with the one before it. Default: an eighth of it.
          batch_size: see `encode`; batches consist of windows.
          show_progress_bar, prompt_name, prompt, normalize_embeddings: see `encode`.
          truncate_dim, precision: see `encode`.

        Returns:
          The result of `encode`; for one text only its row.

        Raises:
          ValueError: for an overlap as long as a window.
          TypeError, UserError: as `encode`.
        """
        several = _check_sentences(texts)
        # A wrong argument is an error before any work.
        finish = self._finisher(normalize_embeddings, truncate_dim, precision)
        reader = self._reader(prompt_name, prompt)
        rows = join_rows(reader.whole(several))
        # Without texts, NumPy splits nothing into one part.
        ids = np.split(rows.values, rows.row_splits[1:-1])[: len(several)]
        ahead = [0] * len(several)
        if reader.prompt:
            ahead = common_starts(self._tokenizer.tokenize([reader.prompt]).values, ids)
        width = self.max_seq_length - 2 - max(ahead, default=0)
        if width < 1 or (overlap is not None and not 0 <= overlap < width):
            raise ValueError(
                f"overlap must be 0 to {width - 1} tokens, as a window holds {width} of the text, "
                f"got {overlap or 0}"
            )
        windows, owners = long_windows(ids, ahead, self.max_seq_length - 2, overlap)
        with _progress_bar(show_progress_bar, len(owners)) as bar:
            vectors = self._compute_all([windows], batch_size, len(owners), bar, owners=owners)
        lengths = np.diff(windows.row_splits) - np.array(ahead, np.int64)[owners]
        weights = np.maximum(lengths, 1).astype(np.float64)
        sums = np.zeros([len(several), self.dimension], np.float64)
        np.add.at(sums, owners, vectors * weights[:, np.newaxis])
        totals = np.bincount(owners, weights, len(several))
        means = (sums / totals[:, np.newaxis]).astype(np.float32)
        alone = np.bincount(owners, minlength=len(several)) == 1
        if self._normalizes:
            means = unit(means, in_place=True)
        # A text of a single window keeps that window's vector bit for bit.
        first = np.searchsorted(owners, np.flatnonzero(alone))
        means[alone] = vectors[first]
        done = finish(means)
        return done[0] if isinstance(texts, str) else done

    def calibrate(
        self,
        sentences: Sequence[str],
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        **options: Any,
    ) -> Ranges:
        """Finds the range of each dimension, which `precision="int8"` and `"uint8"` need.

        The attribute `ranges` keeps it; `save_settings` stores it.

        Args:
          sentences: thousands of texts of the kind that will be embedded.
          normalize_embeddings, truncate_dim: the arguments that `encode` will get.
          **options: further arguments of `encode`.

        Raises:
          ValueError: for fewer than two texts.
        """
        options |= {"normalize_embeddings": normalize_embeddings, "truncate_dim": truncate_dim}
        vectors = self.encode(sentences, **options)
        self.ranges, self._other_ranges = Ranges.of(vectors, normalize_embeddings, self._id), None
        return self.ranges

    def similarity(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Computes the similarity of each row of `a` with each of `b` by `similarity_fn_name`.

        Args:
          a, b: embeddings, float `[n, dim]` and `[m, dim]`.

        Returns:
          float32 `[n, m]`, see `embeddings.similarity`.
        """
        return similarity(a, b, self.similarity_fn_name)

    def similarity_pairwise(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Computes the similarity of each row of `a` with the same row of `b`.

        Args:
          a, b: embeddings, float `[n, dim]`.

        Returns:
          float32 `[n]`, see `embeddings.similarity_pairwise`.
        """
        return similarity_pairwise(a, b, self.similarity_fn_name)

    def start_multi_process_pool(self, target_devices: Sequence[str] | None = None) -> Processes:
        """Starts processes that load this encoder, for `encode(…, pool=…)`.

        The pool is also a context manager, which ends them:

        Examples:
          >>> with encoder.start_multi_process_pool() as pool:      # doctest: +SKIP
          ...     vectors = encoder.encode(texts, pool=pool)

        Args:
          target_devices: the device of each process, as `load` takes them. Default: one process a
            core, each on the encoder's own device.

        Raises:
          UserError: if the encoder was not made by `load`, as processes load it again.
        """
        if self._loaded is None:
            raise UserError("processes load the encoder again: make it by SentenceEncoder.load")
        from official_cmlm.common.processor import usable_cores

        devices = list(target_devices or [None] * usable_cores())
        computation, loads = self._loaded["computation"], []
        for device in devices:
            own = device in (None, self.device)
            there = computation if own else dataclasses.replace(computation, device=device)
            loads.append(self._loaded | {"computation": there})
        return Processes(len(devices), SentenceEncoder._open, loads)

    @staticmethod
    def stop_multi_process_pool(pool: Processes) -> None:
        """Ends the processes of `start_multi_process_pool`."""
        pool.close()

    def count_tokens(
        self,
        sentences: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """Counts the tokens of each sentence before it is cut, special ones and prompt included.

        `encode` cuts sentences with more tokens than `max_seq_length`. Arguments and errors are
        those of `encode`.

        Returns:
          int64 `[n]`.
        """
        windows = self._reader(prompt_name, prompt).whole(_check_list(sentences))
        return np.concatenate([np.zeros([0], np.int64), *map(lengths_of, windows)])

    def tokenize(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Returns the padded ids of texts, without any prompt, cut at `max_seq_length`.

        Returns:
          `input_ids`, `attention_mask` and `token_type_ids`, int64 `[n, longest]`, as the method of
          sentence-transformers of this name, with arrays in place of tensors.
        """
        ids, mask = self._ids_and_mask(texts)
        return {
            "input_ids": ids.astype(np.int64),
            "attention_mask": mask.astype(np.int64),
            "token_type_ids": np.zeros(ids.shape, np.int64),
        }

    def inputs(self, sentences: Sequence[str]) -> "dict[str, tf.Tensor]":
        """Returns the inputs of `model` for these sentences, e.g. to train it further.

        Returns:
          `input_word_ids`, `input_mask` and `input_type_ids`, int32 `[n, longest]`; `[0, 2]` for
          an empty list.
        """
        import tensorflow as tf

        ids, mask = self._ids_and_mask(sentences)
        return {
            "input_word_ids": tf.constant(ids),
            "input_mask": tf.constant(mask, tf.int32),
            "input_type_ids": tf.zeros(ids.shape, tf.int32),
        }

    def _ids_and_mask(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns ids without a prompt, int32 `[n, longest]`, and a bool mask, false at padding."""
        windows = self._reader(None, "").windows(_check_list(texts))
        ids, lengths = pad_rows(join_rows(windows), self.vocabulary.special_ids)
        return ids, np.arange(ids.shape[1]) < lengths[:, np.newaxis]

    def _reader(self, prompt_name: str | None, prompt: str | None) -> TextReader:
        prompt = self._prompt(prompt_name, prompt)
        return TextReader(self.vocabulary, self._tokenizer, self.max_seq_length, prompt)

    def _windows(
        self, texts: Iterable[str], prompt_name: str | None, prompt: str | None, on_long: str
    ) -> tuple[CutTexts, Iterable[TokenRows]]:
        """Returns a count of cut texts, which grows as windows are read, and windows of rows."""
        if on_long not in ON_LONG:
            raise ValueError(f"on_long must be one of {', '.join(ON_LONG)}; got {on_long!r}")
        cut = CutTexts(self.max_seq_length)
        windows: Iterable[TokenRows] = self._reader(prompt_name, prompt).windows(texts, cut)
        if on_long != "error":
            return cut, windows
        if isinstance(texts, list):
            # All windows are read before anything is computed.
            windows = list(windows)
            _refuse(cut)
        return cut, (rows for rows in windows if not _refuse(cut))

    def _compute(
        self,
        windows: Iterable[TokenRows],
        batch_size: int,
        bar: Any = None,
        *,
        tokens: bool = False,
        pool: Processes | None = None,
        owners: np.ndarray | None = None,
    ) -> Iterator[Any]:
        """Yields the vectors of each window's rows, in order; a window is read ahead meanwhile.

        Args:
          windows: ids.
          batch_size: see `encode`.
          bar: a progress bar, which gets the rows of each batch; None without one.
          tokens: whether vectors are of tokens, a list of float32 `[tokens, hidden]`, in place of
            float32 `[rows, dimension]`.
          pool: computes in place of the backend.
          owners: number of each row's text, where rows are parts of texts.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        name = "token_embeddings" if tokens else "embed"
        special, backend = self.vocabulary.special_ids, self.backend
        compute = (
            functools.partial(pool.call, _in_process, name) if pool else getattr(backend, name)
        )

        def jobs() -> Iterator[tuple]:
            start = 0
            for rows in windows:
                lengths = lengths_of(rows)
                missing = len(lengths)
                vectors = [None] * missing if tokens else self._zeros(missing)
                # Padding is computed too, so batches are made by the padded length.
                sizes = np.maximum(lengths, backend.padded_length)
                limits = (batch_size, backend.batch_tokens, backend.call_tokens)
                for chosen in batches(sizes, *limits):
                    missing -= len(chosen)
                    yield rows, chosen, start + chosen, vectors, not missing
                start += len(lengths)

        def run(
            rows: TokenRows, chosen: np.ndarray, numbers: np.ndarray, vectors: Any, is_last: bool
        ) -> tuple[Any, int, bool]:
            ids, lengths = pad_rows(rows, special, chosen)
            computed = compute(ids, lengths)
            if tokens:
                for index, row, length in zip(chosen, computed, lengths):
                    vectors[index] = row[:length]
            else:
                _check_finite(computed, numbers if owners is None else owners[numbers])
                vectors[chosen] = computed
            return vectors, len(chosen), is_last

        # Results come in the order of the batches, so with its last batch a window is complete.
        for vectors, count, is_last in in_threads(
            run, jobs(), pool.workers if pool else backend.concurrent
        ):
            if bar is not None:
                bar.update(count)
            if is_last:
                yield vectors

    def _compute_all(
        self, windows: Iterable[TokenRows], batch_size: int, count: int, *args: Any, **options: Any
    ) -> np.ndarray:
        """Returns the `count` rows of all windows; the other arguments are those of `_compute`."""
        embeddings, start = None, 0
        for vectors in self._compute(windows, batch_size, *args, **options):
            if len(vectors) == count:
                # A copy of a window that has all rows would take as much memory again.
                return vectors
            embeddings = self._zeros(count) if embeddings is None else embeddings
            embeddings[start : start + len(vectors)] = vectors
            start += len(vectors)
        return self._zeros(count) if embeddings is None else embeddings

    def _report(self, cut: CutTexts, on_long: str) -> None:
        if on_long == "cut" and cut.texts:
            message = (
                f"{cut}, which are cut off; encode_long reads all, on_long='ignore' cuts silently"
            )
            warning = TextCutWarning(message, cut.texts, cut.tokens)
            warnings.warn(warning, stacklevel=_stacklevel())

    def _gives_tokens(self, output_value: str, changed: bool) -> bool:
        """Returns whether `encode` returns vectors of tokens; raises for wrong output values."""
        if output_value == "sentence_embedding":
            return False
        if output_value != "token_embeddings":
            raise ValueError(
                "output_value must be one of sentence_embedding, token_embeddings; got "
                f"{output_value!r}"
            )
        if changed:
            raise ValueError(
                "normalize_embeddings, truncate_dim and precision are for sentence_embedding"
            )
        if not hasattr(self.backend, "token_embeddings"):
            raise UserError(
                f"token_embeddings: the backend {self.backend.name} has none; load the encoder "
                'with backend="onnx"'
            )
        return True

    def _zeros(self, count: int) -> np.ndarray:
        return np.zeros([count, self.dimension], np.float32)

    def _finisher(
        self, normalize: bool, truncate_dim: int | None, precision: str
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Returns a function that shortens, scales and quantises, as sentence-transformers does.

        Wrong options are errors now, not at its call.
        """
        if truncate_dim is not None and not 1 <= truncate_dim <= self.dimension:
            raise ValueError(f"truncate_dim must be 1 to {self.dimension}, got {truncate_dim}")
        ranges, width = self.ranges, truncate_dim or self.dimension
        if precision in ("int8", "uint8"):
            if ranges is not None:
                ranges = ranges.cut(width, normalize)
            elif self._other_ranges:
                raise UserError(
                    f"precision {precision}: the stored ranges are of other vectors: "
                    f"{self._other_ranges[1]}; call calibrate(texts)"
                )

        def finish(embeddings: np.ndarray) -> np.ndarray:
            if width != self.dimension:
                embeddings = embeddings[:, :width].copy()
            if normalize:
                unit(embeddings, in_place=True)
            return quantize(embeddings, precision, ranges)

        finish(self._zeros(0))
        return finish

    def _prompt(self, name: str | None, prompt: str | None) -> str:
        """Returns the text that is put before each sentence."""
        if prompt is not None:
            return prompt
        name = self.default_prompt_name if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            raise UserError(
                f"no prompt {name!r:.60}; the encoder has {', '.join(sorted(self.prompts))}"
            )
        return self.prompts[name]

    def _with_prompt(self, role: str, options: dict[str, Any]) -> dict[str, Any]:
        """Adds the prompt of a role to options of `encode` without a prompt."""
        if options.get("prompt") is None and options.get("prompt_name") is None:
            options["prompt"] = self.find_prompt(role)
        return options


def read_prompts(folder: str | os.PathLike, roles: Sequence[str]) -> tuple[str, ...]:
    """Returns an encoder directory's prompts of two roles, without loading the encoder.

    Args:
      folder: the encoder directory.
      roles: of the first and of the second text; see `SentenceEncoder.find_prompt`.

    Raises:
      UserError: if it is not an encoder directory, or as `check_roles` does.
    """
    prompts = EncoderDirectory.open(folder).settings.prompts
    names = dict.fromkeys([*_ROLES, *prompts])
    check_roles(roles, [name for name in names if find_prompt(prompts, name)])
    return tuple(find_prompt(prompts, role) for role in roles)


def find_prompt(prompts: Mapping[str, str], role: str) -> str:
    """Returns the prompt of a role among an encoder's; see `SentenceEncoder.find_prompt`."""
    names = _ROLES.get(role, (role,))
    return next(filter(None, map(prompts.get, names)), "")


def _stacklevel() -> int:
    """Returns the `stacklevel` of a warning for the first caller outside of this module."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals is globals():
        level, frame = level + 1, frame.f_back
    return level


def _in_process(encoder: SentenceEncoder, name: str, *batch: np.ndarray) -> np.ndarray:
    """Computes a batch in another process."""
    return getattr(encoder.backend, name)(*batch)


def _refuse(cut: CutTexts) -> None:
    if cut.texts:
        raise UserError(
            f"{cut}; shorten them, load the encoder with a larger max_seq_length, or take "
            "encode_long"
        )


def _conversion(convert_to_numpy: bool, convert_to_tensor: bool) -> Callable[[np.ndarray], Any]:
    """Returns the function that converts an array to what `encode` returns."""
    if not convert_to_tensor:
        if not convert_to_numpy:
            raise UserError(
                "convert_to_numpy=False: vectors are arrays here, or tensors with "
                "convert_to_tensor=True"
            )
        return lambda array: array
    try:
        import torch
    except ModuleNotFoundError:
        raise UserError(
            "convert_to_tensor=True needs the package torch, which is not installed; install it, "
            "or take the NumPy arrays"
        ) from None
    return torch.from_numpy


def _check_sentences(sentences: str | Iterable[str]) -> list[str]:
    """Lists a single string, or the strings of any iterable; raises `TypeError` for other items."""
    return list(_check_each([sentences] if isinstance(sentences, str) else sentences))


def _check_list(sentences: Iterable[str]) -> list[str]:
    if isinstance(sentences, str):
        raise TypeError("expected a list of strings, got a single string; pass [text]")
    return _check_sentences(sentences)


def _check_each(sentences: Iterable[str]) -> Iterator[str]:
    if isinstance(sentences, bytes):
        raise TypeError(f"encode takes strings, got bytes: {sentences!r:.60}")
    for index, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise TypeError(
                f"encode takes strings, item {index} is {type(sentence).__name__}: {sentence!r:.60}"
            )
        yield sentence


def _check_finite(vectors: np.ndarray, chosen: np.ndarray) -> None:
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise UserError(
            f"the embedding of sentence {int(chosen[~finite][0])} is not finite: the encoder's "
            "weights are too large; train it again with a lower learning rate"
        )


def _progress_bar(
    show: bool | Callable[[int], object] | None, total: int
) -> AbstractContextManager:
    """Returns a bar of finished sentences, or a context of None."""
    if callable(show):
        return nullcontext(SimpleNamespace(update=show))
    return progress.bar(total, "sentence", "encode") if show else nullcontext()
