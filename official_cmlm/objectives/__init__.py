"""Objectives: one file each, registered by importing this package."""

from official_cmlm.objectives import (  # noqa: F401 - they register
    bitext_retrieval,
    cmlm,
    cmlm_cse,
    contrastive,
    declutr,
    diff_cse,
    distillation,
    graded_similarity,
    mlm,
    nli,
    nsp,
    quick_thought,
)
from official_cmlm.objectives.base import Objective, ObjectiveConfig, ObjectiveOutput, objectives

__all__ = ["Objective", "ObjectiveConfig", "ObjectiveOutput", "objectives"]
