"""Imports Hugging Face and sentence-transformers folders; NumPy is enough, no PyTorch."""

from pathlib import Path

import numpy as np

from official_cmlm.checkpoints.encoder_directory import NO_SETTINGS, check_vocabulary_size
from official_cmlm.checkpoints.huggingface_config import block_groups, encoder_config
from official_cmlm.checkpoints.huggingface_tensors import (
    ARCHITECTURES,
    encoder_names,
    from_huggingface,
    head_names,
    ignored,
    normal_name,
)
from official_cmlm.checkpoints.huggingface_tokenizer import model_max_length, read_vocabulary
from official_cmlm.checkpoints.imported_encoder import ImportedEncoder, ImportOptions, Tensors
from official_cmlm.checkpoints.published_files import read_json, read_tensors, weight_files
from official_cmlm.checkpoints.sentence_transformers_modules import (
    MODULES,
    Dense,
    read_modules,
)
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.errors import UserError
from official_cmlm.tokenization import SentencePieceVocabulary


def read_huggingface(path: Path, options: ImportOptions) -> ImportedEncoder:
    """Reads a folder, or one safetensors file and the other files of its folder.

    Raises:
      UserError: if something is missing, damaged, contradictory or not representable.
    """
    folder = path if path.is_dir() else path.parent
    modules = read_modules(folder) if (folder / MODULES).exists() else None
    transformer = modules.transformer if modules else folder
    files = weight_files(transformer) if path.is_dir() else {path: None}
    values = read_json(transformer / "config.json", required=True)
    config, model_type = encoder_config(transformer / "config.json", values)
    groups = block_groups(transformer / "config.json", values, config)
    config = config.replace(
        pooling=options.pooling or (modules.pooling if modules else config.pooling),
        normalize=modules.normalize if modules else False,
    )
    vocabulary = (
        options.vocabulary()
        if options.vocab_file
        else read_vocabulary(transformer, options.lower_case)
    )
    if isinstance(vocabulary, SentencePieceVocabulary):
        # Multilingual MiniLM and E5 have 35 rows more than entries.
        vocabulary = vocabulary.padded(config.vocab_size)
    check_vocabulary_size(str(transformer), vocabulary, config.vocab_size)
    if modules and modules.lower_case and not getattr(vocabulary, "lower_case", False):
        raise UserError(
            f"{transformer}: sentence_bert_config.json lower-cases texts for a cased tokenizer; "
            "that cannot be represented"
        )
    architecture = ARCHITECTURES[model_type]
    of_head = set(head_names(config, model_type).values()) | set(architecture.tied)
    known = set(encoder_names(config, model_type, groups).values()) | of_head
    if options.drop_head:
        known -= of_head
    tensors, others = read_tensors(files, lambda name: normal_name(name, architecture) in known)
    surplus = {normal_name(name, architecture) for name in others if not ignored(name)}
    if options.drop_surplus:
        surplus = set()
    if options.drop_head:
        surplus -= of_head
    renamed = {normal_name(name, architecture): tensor for name, tensor in tensors.items()}
    if len(renamed) < len(tensors):
        raise UserError(f"{transformer}: holds two encoders; name one of them")
    if not renamed:
        raise UserError(f"{transformer}: the weight files hold no tensors; download them again")
    encoder, head = from_huggingface(str(transformer), renamed, config, model_type, surplus, groups)
    notes = [] if modules or options.pooling else [f"pooling not given: {config.pooling}"]
    if modules and modules.dense:
        config, notes = _with_dense(transformer, config, modules.dense, encoder, notes)
    return ImportedEncoder(
        config=config,
        vocabulary=vocabulary,
        max_seq_length=_length(transformer, modules and modules.max_seq_length, config),
        encoder=encoder,
        head=head,
        notes=notes,
        for_sentences=bool(modules or options.pooling),
        encoding=modules.encoding if modules else NO_SETTINGS,
    )


def _with_dense(
    where: Path, config: EncoderConfig, dense: Dense, encoder: Tensors, notes: list[str]
) -> tuple[EncoderConfig, list[str]]:
    """Puts the weights of a module `Dense` into `encoder`; returns config and notes with it.

    BERT's pooler is such a layer: on the first token, with tanh and as many outputs as inputs.
    """
    hidden, size = dense.kernel.shape
    if hidden != config.hidden_size:
        raise UserError(
            f"{where}: has outputs of {config.hidden_size} components, the module Dense takes "
            f"{hidden}; fetch both again"
        )
    if config.pooling == "cls" and dense.activation == "tanh" and size == hidden:
        own = encoder["pooler_transform/kernel"]
        if own.any() and not np.array_equal(own, dense.kernel):
            notes = [*notes, "the module Dense takes the place of BERT's own pooler"]
        encoder |= {"pooler_transform/kernel": dense.kernel, "pooler_transform/bias": dense.bias}
        return config.replace(pooling="cls_pooler"), notes
    encoder |= {"dense/kernel": dense.kernel, "dense/bias": dense.bias}
    return config.replace(dense_size=size, dense_activation=dense.activation), notes


def _length(folder: Path, told: int | None, config: EncoderConfig) -> int:
    """Returns the default length for encoding in tokens, within the position table."""
    return min(told or model_max_length(folder) or config.max_seq_length, config.max_seq_length)
