"""Fixtures of the exports' tests."""

from pathlib import Path

import pytest


@pytest.fixture
def saved(monkeypatch):
    """Exports give their modules here by folder, in place of saving them, which takes seconds."""
    import tensorflow as tf
    import tf_keras

    modules = {}

    def save(module, folder, **_):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "saved_model.pb").write_text(f"{len(modules)}")
        if asset := getattr(module, "encoder_config", None):
            # The file itself is temporary.
            module.described = Path(asset.asset_path.numpy().decode()).read_text()
        modules["serving/" * folder.name.isdecimal() + folder.name] = module

    monkeypatch.setattr(tf.saved_model, "save", save)
    monkeypatch.setattr(tf_keras.Model, "save", save)
    return modules
