"""Settings without a meaning, refused by name; `tests/test_validation.py` has NaN and infinity."""

import pytest

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
    "diff_cse": {"detection": ["both"], "replaced_token_weight": [-1.0]},
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
    """The message names the field and what it was set to."""
    where = f"task.objectives.{name}"
    # Two blocks, all of which an extractor may copy.
    config = objectives()[name].config_class(**{field: wrong})
    if name == "cmlm_cse" and field != "lexical_layers":
        config.lexical_layers = 2
    refuses(lambda: config.check(tiny_encoder_config(), where), f"{where}.{field}", wrong)
