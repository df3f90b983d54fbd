"""Settings without a meaning, refused by name; NaN and infinity: `test_validation.py`."""

import pytest

from official_cmlm.configs.data import DataConfig
from official_cmlm.objectives import objectives
from tests.conftest import tiny_encoder_config
from tests.objectives.helpers import refuses

# Fields that several objectives have stand with one of them.
WRONG = {
    "mlm": {"weight": [0.0, -0.5], "masking_rate": [-0.1, 0.0, 1.5], "max_predictions": [0]},
    "cmlm": {"num_projections": [0], "architecture": ["add"], "max_predictions": [-1]},
    "quick_thought": {
        "logit_scale": [0.0],
        "margin": [-0.1],
        "encoders": ["both"],
        "batches": ["texts"],
        "context_size": [0],
    },
    "declutr": {
        "num_anchors": [0],
        "num_positives": [0],
        "min_span_length": [0],
        "max_span_length": [33],
        "sampling": ["overlapping"],
        "anchor_beta": [[4]],
        "min_document_tokens": [39],
    },
    "diff_cse": {
        "detection": ["both"],
        "replaced_token_weight": [-1.0],
        "discriminator": ["bert"],
    },
    "bitext_retrieval": {"hard_negative_weight": [-101.0, 1e30]},
    "nli": {"hypothesis_language": ["other"]},
    "nsp": {"random_probability": [-0.1]},
    "contrastive": {
        "temperature": [0.0, -0.05, 9e-5],
        "negatives": ["all"],
        "augmentation": ["crop"],
        "projection_head": ["linear"],
        "span_characters": [0],
        "repetition_rate": [0.0, 1.5],
    },
    "cmlm_cse": {
        "mlm_weight": [-0.005],
        "contrastive_weight": [-1.0],
        "lexical_layers": [0, 3],
        "fusion_layers": [0],
    },
}


@pytest.mark.parametrize(
    ("name", "field", "wrong"),
    [
        (name, field, wrong)
        for name, fields in WRONG.items()
        for field, values in fields.items()
        for wrong in values
    ],
)
def test_a_setting_without_meaning_is_refused(name, field, wrong):
    where = f"task.objectives.{name}"
    # Two blocks, all of which an extractor may copy.
    config = objectives()[name].config_class(**{field: wrong})
    if name == "cmlm_cse" and field != "lexical_layers":
        config.lexical_layers = 2
    refuses(lambda: config.check(tiny_encoder_config(), where), f"{where}.{field}", wrong)


NOTHING = {"mlm_weight": 0.0, "contrastive_weight": 0.0}
RUNS = {"batches": "runs", "margin": 0.0}
SMALL = {"lexical_layers": 1}
# Objective, settings, encoder, and the parts of the message.
CONTRADICTIONS = [
    # Projected vectors, the identity among them, have no place beside narrow embeddings of tokens.
    ("cmlm", {}, {"embedding_width": 6}, ["encoder.embedding_width is 6", "encoder.hidden_size"]),
    ("cmlm_cse", SMALL | NOTHING, {}, NOTHING),
    # The papers' 8 layers do not fit an encoder of 2.
    ("cmlm_cse", {}, {}, ["task.objectives.cmlm_cse.lexical_layers", "encoder.num_layers", 8, 2]),
    ("diff_cse", {}, {}, ["task.objectives.diff_cse.lexical_layers", "encoder.num_layers", 8, 2]),
    ("declutr", NOTHING, {}, NOTHING),
    # An offset takes rows from the position table.
    ("declutr", {"max_span_length": 47}, {"position_offset": 2}, ["declutr.max_span_length", 46]),
    ("declutr", {"max_span_length": 49}, {}, ["task.encoder.max_position_embeddings", 49, 48]),
    ("distillation", {"cosine_weight": 0.0, "similarity_weight": 0.0}, {}, ["are 0"]),
    ("distillation", {"matryoshka_dims": [4096]}, {}, ["matryoshka_dims is [4096]", 16]),
    # RoBERTa has one type of tokens, DistilBERT none.
    ("nsp", {}, {"type_vocab_size": 1}, ["encoder.type_vocab_size is 1"]),
    ("nsp", {}, {"type_vocab_size": 0}, ["encoder.type_vocab_size is 0"]),
    ("quick_thought", {"batches": "runs"}, {}, ["batches: runs", "margin"]),
    ("quick_thought", RUNS | {"ignore_equal_texts": True}, {}, ["batches: runs"]),
    ("quick_thought", {"matryoshka_dims": [8, 4]}, {}, ["[8, 4]", "ascending"]),
    ("quick_thought", {"matryoshka_dims": [4, 4]}, {}, ["[4, 4]", "once"]),
    ("quick_thought", {"matryoshka_dims": [4, 17]}, {}, ["[4, 17]", 16]),
    ("quick_thought", {"matryoshka_dims": [0, 4]}, {}, ["matryoshka_dims[0]", 0]),
    (
        "quick_thought",
        {"matryoshka_dims": [4, 8], "matryoshka_weights": [1.0]},
        {},
        ["matryoshka_weights", 1, 2],
    ),
    (
        "quick_thought",
        {"matryoshka_dims": [4], "matryoshka_weights": [0.0]},
        {},
        ["matryoshka_weights[0]", 0.0],
    ),
    ("quick_thought", {"matryoshka_weights": [1.0]}, {}, ["matryoshka_weights", 1, 0]),
    # The exported vector is the one before the projection head.
    *(
        (name, {"matryoshka_dims": [4], **own}, {}, [f"{name}.projection_head", "none"])
        for name, own in (("contrastive", {}), ("cmlm_cse", SMALL), ("diff_cse", SMALL))
    ),
    (
        "diff_cse",
        SMALL | {"replaced_token_weight": 0.0, "contrastive_weight": 0.0},
        {},
        ["replaced_token_weight", "contrastive_weight"],
    ),
]


@pytest.mark.parametrize(("name", "settings", "encoder", "parts"), CONTRADICTIONS)
def test_settings_that_contradict_each_other_are_refused(name, settings, encoder, parts):
    where, config = f"task.objectives.{name}", objectives()[name].config_class(**settings)
    refuses(lambda: config.check(tiny_encoder_config(**encoder), where), where, *parts)


@pytest.mark.parametrize(
    ("name", "settings", "field", "wrong", "part"),
    [
        # It works on a sentence's own text.
        ("contrastive", {"augmentation": "span_mask"}, "segment", "packed", "span_mask"),
        ("declutr", {}, "seq_length", 500, "declutr.max_span_length 512"),
        # Two tokens and three special ones.
        ("nsp", {}, "seq_length", 4, "nsp needs 5"),
        # Neighbours of unlike length would be in different batches, and have no loss.
        ("quick_thought", RUNS, "bucket_boundaries", [12, 24], "bucket_boundaries: []"),
    ],
)
def test_data_that_a_method_cannot_read_are_refused(name, settings, field, wrong, part):
    """The field of the data is named."""
    config, data = objectives()[name].config_class(**settings), DataConfig(**{field: wrong})
    check = lambda: config.check_records(data, None, "task.train_data")  # noqa: E731
    refuses(check, f"task.train_data.{field} is {wrong}", part)
