"""The paper's main experiment as it is, at a batch that fits a CPU."""

import numpy as np
import pytest
import tensorflow as tf

from data_prep.readers import Document
from experiments import registry
from official_cmlm.tokenization import WordPieceVocabulary
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import make_documents, write_records


@pytest.mark.long
def test_english_base_takes_two_optimizer_steps(vocabulary, tmp_path):
    """Only the records and the batch size are changed; 12 × 768, LAMB, N = 15, 256 tokens."""
    filler = tuple(f"filler{i}" for i in range(30522 - len(vocabulary)))
    full = WordPieceVocabulary(vocabulary.tokens + filler, True, 1000)
    # Packed segments of 256 tokens need documents of many sentences.
    paragraphs = [paragraph for d in make_documents(60) for paragraph in d.paragraphs]
    write_records(tmp_path / "records", [Document("long", "en", paragraphs)], full)
    params = registry.load(
        "cmlm/english_base",
        params_override=f"task.train_data.input_path={tmp_path / 'records'},"
        "task.train_data.global_batch_size=1",
    )
    task = SentenceEncoderTask(params.task)
    model = task.build_model()
    optimizer = task.create_optimizer(params.trainer.optimization(), params.runtime)
    assert model.encoder.bert.get_embedding_table().shape == (30522, 768)
    table = model.encoder.bert.get_embedding_table().numpy()
    iterator = iter(task.build_inputs(params.task.train_data))
    step = tf.function(lambda batch: task.train_step(batch, model, optimizer)["loss"])
    losses = [float(step(next(iterator))) for _ in range(2)]
    assert int(optimizer.iterations) == 2
    # Random weights: about ln(30522) = 10.3 nats a token.
    assert all(9.5 < loss < 12 for loss in losses), losses
    assert np.abs(model.encoder.bert.get_embedding_table().numpy() - table).max() > 0
