"""Learning rates: the papers' formulas, written out again, step by step."""

import json
import math
import re

import numpy as np
import pytest
import yaml
from official.modeling import optimization

from experiments import chains, registry
from official_cmlm.common.errors import UserError
from official_cmlm.configs.schedule import learning_rates, resume_notes, schedule_notes
from official_cmlm.configs.yaml_loading import parse_yaml
from official_cmlm.training.config import SentenceEncoderTrainerConfig


def cmlm(peak=1e-3, most=10_000):
    """Returns CMLM §3: "warm-up in the first 10,000 steps and linear decay afterwards"."""

    def rates(step, steps):
        warmup = min(most, math.ceil(steps / 10))
        rising = peak * np.maximum(step, 1) / warmup
        return np.where(step < warmup, rising, peak * (steps - step) / (steps - warmup))

    return rates


def simcse(peak):
    """Returns the reference run's rates: Hugging Face's linear decay without warm-up."""
    return lambda step, steps: peak * (1 - step / steps)


def mirror_bert(peak):
    """Returns the reference code's rates, which are constant."""
    return lambda step, steps: np.full(step.shape, peak)


def declutr(peak):
    """Returns Howard and Ruder 2018, §3.2, as AllenNLP computes it; DeCLUTR §4.1: cut 0.1."""

    def rates(step, steps):
        cut, ratio = int(steps * 0.1), 32
        p = np.where(step < cut, step / max(cut, 1), 1 - (step - cut) / (steps - cut))
        return peak * (1 + p * (ratio - 1)) / ratio

    return rates


def _each(folder, names, *setting):
    return dict.fromkeys([f"{folder}/{name}" for name in names.split()], setting)


# Published steps, and the rate at each.
PUBLISHED = {
    **_each("cmlm", "english_base english_large", 1_000_000, cmlm()),
    **_each("mlm", "english_base english_large", 1_000_000, cmlm()),
    **_each("bitext", "s2 s3 f_mbert", 1_000_000, cmlm()),
    "cmlm/multilingual_base": (2_000_000, cmlm()),
    "mlm/multilingual_base": (2_000_000, cmlm()),
    "bitext/s1": (2_000_000, cmlm()),
    "nsp/english_base": (1_000_000, cmlm()),
    "quick_thought/english_base": (1_000_000, cmlm()),
    "quick_thought/published": (114_466, cmlm()),
    # Reimers and Gurevych 2019, §3.1, in their code: a tenth of the steps, rounded up.
    "nli/cross_lingual": (368_158, cmlm(2e-5, most=368_158)),
    "simcse/bert_base": (15_625, simcse(3e-5)),
    "cmlm_cse/bert_base": (15_625, simcse(3e-5)),
    "cmlm_cse/roberta_base": (1_953, simcse(1e-5)),
    "diff_cse/bert_base": (31_250, simcse(7e-6)),
    **_each("mirror_bert", "sentence_bert sentence_roberta sentence_drophead "
            "sentence_bert_padded sentence_drophead_padded sentence_roberta_drophead",
            50, mirror_bert(2e-5)),
    **_each("mirror_bert", "phrase word ablation/phrase_no_dropout_no_span_mask "
            "ablation/word_no_dropout", 100, mirror_bert(2e-5)),
    "mirror_bert/ablation/random_strings": (100, mirror_bert(5e-5)),
    **_each("declutr", "base small", 31_116, declutr(5e-5)),
    **_each("declutr/ablation", "learning_rate_0001 small_learning_rate_0001",
            31_116, declutr(1e-4)),
}  # fmt: skip


def _steps(total):
    """Returns eight steps of a training, and those around the ends and the warm-up."""
    near = [
        w + i for w in (0, total // 10, -(-total // 10), 2000, 10_000, total) for i in range(-1, 2)
    ]
    spread = range(0, total, max(1, total // 8))
    return np.array(sorted({*(step for step in near if 0 <= step < total), *spread}))


def _same(trainer, formula, total):
    if trainer.train_epochs and not trainer.train_steps:
        # Mirror-BERT §3: 10,000 strings in batches of 200.
        trainer = trainer.replace(train_steps=trainer.train_epochs * 50)
    assert trainer.train_steps == total
    steps = _steps(total)
    expected = formula(steps, total)
    np.testing.assert_allclose(
        learning_rates(trainer, steps), expected, rtol=2e-5, atol=1e-6 * expected.max()
    )


@pytest.mark.parametrize("name", PUBLISHED)
def test_rates_are_the_papers(name):
    """At the published length, and at another by `trainer.train_steps` alone."""
    steps, formula = PUBLISHED[name]
    trainer = registry.load(name).trainer
    _same(trainer, formula, steps)
    shorter = trainer.replace(train_steps=37)
    _same(shorter, formula, 37)
    assert len(schedule_notes(shorter)) == 1


@pytest.mark.parametrize("name", chains.stage_files())
def test_rates_of_chains(name):
    """CMLM §4.4: a first stage of 1.5 million steps; all stages at once by `train_steps`."""
    for number, stage in enumerate(chains.read_stages(name)):
        steps, formula = (1_500_000, cmlm()) if number == 0 else PUBLISHED[stage.experiment]
        for common, total in (({}, steps), ({"trainer": {"train_steps": 40}}, 40)):
            overrides = chains.merge(stage.params_override, common)
            config = registry.load(stage.experiment, params_override=overrides)
            _same(config.trainer, formula, total)


def _trainer(steps=1000, **schedule):
    trainer = SentenceEncoderTrainerConfig(train_steps=steps)
    trainer.override({"schedule": {"peak": 0.5, **schedule}, "optimizer_config": {
        "optimizer": {"type": "sgd"}
    }})  # fmt: skip
    return trainer


def test_cosine():
    """Loshchilov and Hutter 2017, Eq. 5, after a warm-up."""
    steps = np.arange(0, 1000, 13)
    done = np.maximum(steps - 100, 0) / 900
    falling = 0.05 + 0.5 * (0.5 - 0.05) * (1 + np.cos(np.pi * done))
    expected = np.where(steps < 100, 0.5 * np.maximum(steps, 1) / 100, falling)
    trainer = _trainer(type="cosine", warmup_share=0.1, end_share=0.1)
    np.testing.assert_allclose(learning_rates(trainer, steps), expected, rtol=1e-4)


def test_one_word_changes_the_schedule():
    last = {"linear": 0.5 / 1000, "slanted_triangular": 0.0162, "constant": 0.5, "cosine": 1.2e-6}
    for word, rate in last.items():
        rates = learning_rates(_trainer(type=word), [0, 100, 999])
        first = 0.5 / 32 if word == "slanted_triangular" else 0.5
        assert rates[0] == pytest.approx(first) and rates[2] == pytest.approx(rate, rel=0.05)


def test_a_constant_rate_after_a_warmup():
    rates = learning_rates(_trainer(type="constant", warmup_steps=4), range(7))
    np.testing.assert_allclose(rates, [0.125, 0.125, 0.25, 0.375, 0.5, 0.5, 0.5])


def test_shares_are_whole_steps():
    """Rounded up, down in a slanted triangle, and never off by one for a float's last bit."""
    counts = {30: 3, 31: 4, 300: 30, 1000: 100, 5: 1}
    for steps, warmup in counts.items():
        assert _trainer(warmup_share=0.1).schedule.warmup(steps) == warmup
        slanted = _trainer(type="slanted_triangular").schedule
        assert slanted.warmup(steps) == steps // 10
    assert _trainer(warmup_share=0.29).schedule.warmup(100) == 29
    assert _trainer(warmup_share=0.1, max_warmup_steps=7).schedule.warmup(1000) == 7
    assert _trainer(warmup_share=0.1, warmup_steps=9).schedule.warmup(1000) == 9
    # Shares are of the decay's length where it is given.
    assert _trainer(warmup_share=0.1, decay_steps=500).schedule.warmup(1000) == 50


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"peak": None}, "trainer.schedule.peak is not given"),
        ({"type": "constant", "decay_steps": 5}, "decay_steps is given, but .*type is constant"),
        ({"type": "constant", "end_share": 0.0}, "end_share is given, but .*type is constant"),
        ({"warmup_steps": 50, "decay_steps": 50}, "warmup_steps is 50, but .*decay_steps.*is 50"),
    ],
)
def test_contradictions_are_refused(schedule, message):
    text = json.dumps({"trainer": {"schedule": schedule}})
    with pytest.raises(UserError, match=message):
        registry.load("demo", params_override=text)


@pytest.mark.parametrize(
    ("field", "instead"),
    [
        ("learning_rate.polynomial.initial_learning_rate=0.1", "trainer.schedule.peak"),
        ("learning_rate.polynomial.decay_steps=10", "trainer.schedule.peak"),
        ("warmup.polynomial.warmup_steps=10", "trainer.schedule.warmup_steps"),
    ],
)
def test_a_field_that_would_have_no_effect_is_refused(field, instead):
    with pytest.raises(UserError, match=f"given beside trainer.schedule; set {instead} instead"):
        registry.load("demo", params_override=f"trainer.optimizer_config.{field}")


def test_a_later_source_may_choose_a_rate_of_model_garden(tmp_path):
    """It takes the place of the schedule of the experiment; so configurations of before load."""
    own = tmp_path / "own.yaml"
    own.write_text(
        "trainer: {optimizer_config: {learning_rate: {type: exponential, exponential: "
        "{initial_learning_rate: 0.5, decay_steps: 1, decay_rate: 0.5}}}}\n"
    )
    trainer = registry.load("demo", [str(own)]).trainer
    np.testing.assert_allclose(learning_rates(trainer, range(3)), [0.5, 0.25, 0.125])
    with pytest.raises(UserError, match="learning_rate is given beside trainer.schedule"):
        registry.load("demo", [str(own)], "trainer.schedule={peak: 0.1}")


def test_written_settings_can_be_read_again(tmp_path):
    """`params.yaml` says what the schedule is, not what it came to: a later length is followed."""
    before = registry.load("demo", params_override="trainer.schedule.warmup_share=0.2")
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(before.as_dict()))
    after = registry.load("demo", [str(path)], "trainer.train_steps=100").trainer
    _same(after, lambda s, n: np.where(s < 20, 1.8e-3 * np.maximum(s, 1) / 20,
                                       1.8e-3 * (n - s) / (n - 20)), 100)  # fmt: skip


def test_a_missing_learning_rate_is_refused():
    trainer = SentenceEncoderTrainerConfig(train_steps=5)
    with pytest.raises(UserError, match=r"no learning rate: .* set trainer.schedule={peak: 1e-4}"):
        trainer.optimization()
    advice = parse_yaml("{peak: 1e-4}", "")
    trainer.override({"schedule": advice, "optimizer_config": {"optimizer": {"type": "sgd"}}})
    assert trainer.optimization().learning_rate.type == "polynomial"


def _own(steps, decay_steps, warmup_steps):
    """Makes a trainer with Model Garden's own settings."""
    rate = {"initial_learning_rate": 0.5, "end_learning_rate": 0.0, "decay_steps": decay_steps}
    warmup = {"type": "polynomial", "polynomial": {"warmup_steps": warmup_steps}}
    config = {"optimizer": {"type": "sgd"}, "warmup": warmup}
    config["learning_rate"] = {"type": "polynomial", "polynomial": rate}
    return SentenceEncoderTrainerConfig(
        train_steps=steps, optimizer_config=optimization.OptimizationConfig(config)
    )


@pytest.mark.parametrize(
    ("trainer", "line"),
    [
        (
            _trainer(40, warmup_steps=10_000),
            "warm-up of 10,000 steps is not over when the training ends after 40, .* never reaches "
            "its peak and ends at 0.0019; lower warmup_steps .* of trainer.schedule$",
        ),
        (_trainer(40, decay_steps=1000), "to 0 until step 1,000, .* ends after 40, at 0.48; lower"),
        (_trainer(40, decay_steps=30), "is 0 from step 30 on, so the last 10 steps train nothing"),
        (_own(40, 1000, 10), "until step 1,000, .* lower decay_steps of trainer.optimizer_config$"),
        (_own(40, 40, 100), "warm-up of 100 steps is not over .* of trainer.optimizer_config$"),
        (_own(40, 40, 10), None),
        (_trainer(40, type="constant"), None),
        (_trainer(40, type="slanted_triangular", decay_steps=30), None),
        (_trainer(0, warmup_steps=10), None),
    ],
)  # fmt: skip
def test_unlikely_schedules_are_announced(trainer, line):
    # The first line says what the schedule is.
    told = trainer.schedule is not None and trainer.train_steps and "never reaches" not in str(line)
    notes = schedule_notes(trainer)[1 if told else 0 :]
    if line is None:
        assert notes == []
    else:
        assert len(notes) == 1 and re.search(line, notes[0]) and "\n" not in notes[0]


def test_a_longer_training_resumed():
    (line,) = resume_notes(_trainer(1000), _trainer(2000), 500)
    assert "0.38 from step 500 on, 0.25 was planned" in line and "was 1,000, is 2,000" in line
    assert resume_notes(_trainer(1000), _trainer(1000), 500) == []
    assert resume_notes(_trainer(1000), _trainer(500), 500) == []
    constant = _trainer(1000, type="constant"), _trainer(2000, type="constant")
    assert resume_notes(*constant, 500) == []
