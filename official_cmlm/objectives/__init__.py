"""Objectives: one file each, registered by importing this package."""

from official_cmlm.objectives import cmlm, mlm, quick_thought  # noqa: F401 - they register
from official_cmlm.objectives.base import Objective, ObjectiveConfig, ObjectiveOutput, objectives

__all__ = ["Objective", "ObjectiveConfig", "ObjectiveOutput", "objectives"]
