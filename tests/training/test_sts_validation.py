"""STS scores during training, and the best checkpoint by them."""

import functools
import shutil

import numpy as np
import pytest
import tensorflow as tf

from experiments import registry
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, describe
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.evaluation.data import sts
from official_cmlm.evaluation.metrics.similarity import similarity_spearman
from official_cmlm.objectives.mlm import MlmConfig
from official_cmlm.training.checks import check_best_metric
from official_cmlm.training.progress import read_history
from official_cmlm.training.run import describe_run
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import WORDS, two_replicas
from tests.modeling.helpers import randomize
from tests.pairs_helpers import PROMPTS, write_prompted_encoder
from tests.training.helpers import task_config
from tests.training.tiny_training import STS_NAME, run_for_all, tiny_run, write_sts


def _words(rng, count):
    return " ".join(rng.choice(WORDS, count))


@pytest.fixture(scope="module")
def sts_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("sts") / STS_NAME
    write_sts(path)
    return path


def test_best_checkpoint_is_kept_by_its_score(trained):
    """Each validation writes the score; the best is an encoder directory that gives it again."""
    history = read_history(trained / "history.jsonl")
    scores = [line["sts_spearman"] for line in history if line["split"] == "validation"]
    assert len(scores) == 2 and all(-100 <= score <= 100 for score in scores)
    pairs = sts.read_sts_benchmark(trained.parent / STS_NAME)
    for folder, expected in ((trained, scores[-1]), (trained / "best", max(scores))):
        score = similarity_spearman(SentenceEncoder.load(folder).encode, pairs)
        assert score == pytest.approx(expected, abs=0.2)


@pytest.mark.long
def test_scores_follow_the_weights_under_two_replicas(records_dir, sts_file):
    """The scorer reads the weights as they are, also mirrored ones."""
    config = task_config(records_dir, {"mlm": MlmConfig()}, sts_file=str(sts_file))
    task = SentenceEncoderTask(config)
    with two_replicas().scope():
        model = task.build_model()
    score, scores = task.sts_scorer(model), []
    for seed in (0, 1, 0):
        randomize(model.encoder, seed)
        scores.append(score())
    assert scores[0] == scores[2] != scores[1]


@pytest.mark.long
def test_a_pretrained_start_keeps_its_length(records_dir, tmp_path):
    """The scores see words beyond the training's 24 tokens, also once the start is gone.

    Each pair differs beyond them alone, so that cut pairs would all have the cosine 1.
    """
    rng = np.random.default_rng(0)
    lines = []
    for i in range(12):
        same, *ends = (_words(rng, n) for n in (31, 10, 10))
        lines.append(f"g\tf\ty\t{i}\t{i % 5}\t{same} {ends[0]}\t{same} {ends[1]}")
    sts_file = tmp_path / "sts.csv"
    sts_file.write_text("\n".join(lines) + "\n")
    start, model_dir = tmp_path / "start", tmp_path / "model"
    plain = task_config(records_dir, {"mlm": MlmConfig()}, sts_file=str(sts_file))
    task = SentenceEncoderTask(plain)
    describe(start, task.encoder_config, task.vocabulary, 48, for_sentences=False)
    params = tiny_run(records_dir).replace(task=plain.as_dict())
    params.task.init_checkpoint = str(start)
    task = SentenceEncoderTask(params.task, logging_dir=str(model_dir))
    model = task.build_model()
    randomize(model.encoder, 0)
    whole, cut = (
        similarity_spearman(
            functools.partial(
                SentenceEncoder(model.encoder, task.vocabulary, length).encode, on_long="ignore"
            ),
            sts.read_sts_benchmark(sts_file),
        )
        for length in (48, 24)
    )
    assert task.sts_scorer(model)() == pytest.approx(whole) != cut
    describe_run(params, task, "train", str(model_dir))
    tf.train.Checkpoint(step=tf.Variable(0)).save(str(model_dir / "ckpt"))
    shutil.rmtree(start)
    assert task.sts_scorer(model)() == pytest.approx(whole)
    assert EncoderDirectory.open(model_dir).max_seq_length == 48


def test_scores_have_the_default_prompt_of_the_start(records_dir, sts_file, vocabulary, tmp_path):
    """The folder's `encode` puts it before each text, too."""
    start = write_prompted_encoder(tmp_path / "start", vocabulary, default="query")
    settings = {"sts_file": str(sts_file), "init_checkpoint": str(start)}
    task = SentenceEncoderTask(task_config(records_dir, {"mlm": MlmConfig()}, **settings))
    model = task.build_model()
    randomize(model.encoder, 0)
    pairs, plain = sts.read_sts_benchmark(sts_file), SentenceEncoder(model.encoder, vocabulary, 48)

    def encode_with_prompt(texts):
        return plain.encode([PROMPTS["query"] + text for text in texts])

    expected = similarity_spearman(encode_with_prompt, pairs)
    assert expected != pytest.approx(similarity_spearman(plain.encode, pairs))
    assert task.sts_scorer(model)() == pytest.approx(expected)


@pytest.mark.parametrize(("text", "message"), [("a,b\n", r"sts\.csv: 0 "), (None, "missing")])
def test_a_file_without_pairs_is_refused(records_dir, tmp_path, text, message):
    """Before the first step, by name."""
    path = tmp_path / "sts.csv"
    if text:
        path.write_text(text)
    with pytest.raises(UserError, match=message):
        SentenceEncoderTask(task_config(records_dir, {"mlm": MlmConfig()}, sts_file=str(path)))


@pytest.mark.parametrize(
    ("metric", "better"),
    [
        ("sts_spearman", "higher"),
        ("cmlm/masked_token_accuracy", "higher"),
        ("quick_thought/recall_at_1", "higher"),
        ("quick_thought/retrieval_loss", "lower"),
        ("validation_loss", "lower"),
    ],
)
def test_the_worst_checkpoint_is_not_kept(records_dir, sts_file, metric, better):
    """A metric compared the wrong way round is refused with the right one; so is any other word."""
    for direction in ("higher", "lower", "best"):
        params = run_for_all(records_dir, sts_file.parent)
        params.trainer.best_checkpoint_eval_metric = metric
        params.trainer.best_checkpoint_metric_comp = direction
        if direction == better:
            check_best_metric(params)
            continue
        with pytest.raises(
            UserError, match=f"'{direction}', but {better} values of {metric} are better; set"
        ):
            check_best_metric(params)


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("simcse/bert_base", "contrastive"),
        ("mirror_bert/word", "contrastive"),
        ("cmlm_cse/roberta_base", "cmlm_cse"),
        ("diff_cse/tiny", "diff_cse"),
    ],
)
def test_without_scored_pairs_alignment_and_uniformity_choose(name, objective):
    """A loss of two equal views would choose the encoder whose vectors are farthest apart."""
    params = registry.load(name)
    assert params.trainer.best_checkpoint_eval_metric == f"{objective}/alignment_uniformity"
    check_best_metric(params)
