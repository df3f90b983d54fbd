"""Experiments by name: every YAML file is found, typed and checked."""

import pytest

from experiments import registry
from official_cmlm.common.errors import UserError


def test_every_experiment_has_a_summary_and_cites_its_paper():
    for name, path in registry.experiment_files().items():
        assert registry.read_summary(path), name
        text = path.read_text(encoding="utf-8")
        assert any(source in text for source in ("§", "Table", "Figure", "footnote", "appendix")), (
            name
        )
        assert f"  {name} " in registry.list_files(registry.experiment_files())


def test_every_published_setting_names_its_accelerator():
    """In its own file or in that of an experiment that it is based on."""
    for name in registry.experiment_files():
        folder, _, rung = name.rpartition("/")
        if rung in ("tiny", "mini", "small") or folder in ("", "recipes"):
            continue
        bases = [file for _, file in registry.read_files(name)]
        assert any("\n# Sized for: " in file.read_text(encoding="utf-8") for file in bases), name


def test_an_experiment_has_the_papers_setting():
    config = registry.load("cmlm/english_base")
    data, encoder, cmlm = config.task.train_data, config.task.encoder, config.task.objectives.cmlm
    assert (data.global_batch_size, data.seq_length, data.swap_probability) == (2048, 256, 0.5)
    assert (cmlm.num_projections, cmlm.masking_rate, cmlm.max_predictions) == (15, 80 / 256, 80)
    assert (encoder.num_layers, encoder.hidden_size, encoder.vocab_size) == (12, 768, 30522)
    trainer, lamb = config.trainer, config.trainer.optimizer_config.optimizer.lamb
    assert trainer.optimizer_config.optimizer.type == "lamb"
    assert (lamb.beta_1, lamb.beta_2) == (0.9, 0.999)
    schedule, steps = trainer.schedule, trainer.train_steps
    assert (schedule.type, schedule.peak, schedule.end(), steps) == ("linear", 1e-3, 0.0, 1_000_000)
    assert (schedule.warmup(steps), schedule.length(steps)) == (10_000, 1_000_000)
    large = registry.load("cmlm/english_large").task.encoder
    assert (large.num_layers, large.hidden_size, large.num_attention_heads) == (24, 1024, 16)


def test_later_sources_win(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("trainer: {train_steps: 5}\ntask: {train_data: {seed: 1}}\n")
    second.write_text("trainer: {train_steps: 6}\n")
    config = registry.load("demo", [str(first), str(second)], "trainer.steps_per_loop=3")
    assert config.trainer.train_steps == 6
    assert config.task.train_data.seed == 1
    assert config.trainer.steps_per_loop == 3


@pytest.mark.parametrize(
    ("override", "loop", "interval"),
    [
        ("trainer.train_steps=300", 15, 15),
        ("trainer.train_steps=7", 1, 1),
        ("trainer.train_steps=50000", 100, 100),
        ("trainer.train_steps=300,trainer.summary_interval=100", 100, 100),
        ("trainer.train_steps=300,trainer.steps_per_loop=4", 4, 12),
        ("trainer.train_steps=300,trainer.steps_per_loop=50", 50, 50),
    ],
)
def test_a_short_training_has_a_curve(override, loop, interval):
    """20 reports at least, unless the interval is chosen; a chosen loop is kept."""
    trainer = registry.load("cmlm/tiny", params_override=override).trainer
    assert (trainer.steps_per_loop, trainer.summary_interval) == (loop, interval)


def test_buckets_end_with_a_sequence_length_that_is_set_alone(tmp_path, capsys):
    """The data where it was set change, with a line; buckets that are set too are kept."""
    override = "task.train_data.seq_length=50"
    task = registry.load("cmlm/tiny", params_override=override).task
    assert task.train_data.bucket_boundaries == [16, 24, 32, 48, 50]
    assert task.validation_data.bucket_boundaries[-1] == task.validation_data.seq_length == 128
    line = "task.train_data.bucket_boundaries: 16, 24, 32, 48, 50, as seq_length is 50\n"
    assert capsys.readouterr().err == line
    override = {"task": {"train_data": {"seq_length": 50, "bucket_boundaries": [8]}}}
    task = registry.load("cmlm/tiny", params_override=override).task
    assert task.train_data.bucket_boundaries == [8]
    (tmp_path / "own.yaml").write_text(
        "base: cmlm/tiny\ntask: {train_data: {seq_length: 200}}\n", encoding="utf-8"
    )
    task = registry.load(f"{tmp_path}/own.yaml").task
    assert task.train_data.bucket_boundaries == [16, 24, 32, 48, 64, 96, 128, 200]


def test_an_objective_can_be_taken_out():
    config = registry.load("demo", params_override="task.objectives.quick_thought=null")
    assert config.task.objectives.quick_thought is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("task.objectives.cmlm.masking_rat=0.5", "did you mean task.objectives.cmlm.masking_rate"),
        ("trainer.optimizer_config.optimizer.type=adm", "type must be one of .*adamw"),
        ("task.encoder.pooling=median", "encoder.pooling must be one of mean, max, cls"),
        ("nonsense", "expected a.b=value"),
    ],
)
def test_mistakes_are_named(override, message):
    with pytest.raises(UserError, match=message):
        registry.load("demo", params_override=override).task.check()


def test_a_missing_config_file_is_named():
    with pytest.raises(UserError, match=r"nowhere\.yaml: no such file"):
        registry.load("demo", ["nowhere.yaml"])


def test_a_users_own_file_is_an_experiment(tmp_path):
    """A path that ends in .yaml is an experiment; its base is a shipped one or a file beside it."""
    (tmp_path / "first.yaml").write_text("base: cmlm/tiny\ntrainer: {train_steps: 7}\n")
    (tmp_path / "second.yaml").write_text("base: first.yaml\ntask: {train_data: {seed: 3}}\n")
    config = registry.load(str(tmp_path / "second.yaml"), params_override="trainer.max_to_keep=9")
    shipped = registry.load("cmlm/tiny")
    assert (config.trainer.train_steps, config.task.train_data.seed) == (7, 3)
    assert config.trainer.max_to_keep == 9
    assert config.task.encoder.as_dict() == shipped.task.encoder.as_dict()


def test_a_file_wins_over_a_shipped_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo.yaml").write_text("trainer: {train_steps: 7}\n")
    assert registry.load("demo.yaml").trainer.train_steps == 7
    assert registry.load("demo").trainer.train_steps == 920


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: no/such\n", "base: no experiment is called 'no/such'"),
        ("base: [1]\n", r"base: no experiment is called \[1\]"),
        ("base: own.yaml\n", "its bases lead back"),
    ],
)
def test_mistakes_of_a_users_own_file_are_named(tmp_path, text, message):
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        registry.load(str(tmp_path / "own.yaml"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.yaml", r"no experiment is called 'nowhere\.yaml'"),
        ("cmlm/english_bse", "did you mean cmlm/english_base, .*--experiment=. lists all"),
        ("x" * 9000, "no experiment is called 'x{79}; --experiment"),
    ],
)
def test_an_unknown_experiment_is_a_short_line(name, message):
    with pytest.raises(UserError, match=message) as caught:
        registry.load(name)
    assert len(str(caught.value)) < 300


def test_sizes_of_small_experiments_are_those_of_turc():
    """Layers and widths of Turc et al. 2019, heads of 64, and the vocabulary of the records."""
    sizes = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512)}
    files = registry.experiment_files()
    ladder = [n for n in files if n.rpartition("/")[2] in sizes and n != "declutr/small"]
    assert len(ladder) == 3 * 7 + 4
    for name in ladder:
        encoder = registry.load(name).task.encoder
        assert (encoder.num_layers, encoder.hidden_size) == sizes[name.rpartition("/")[2]]
        assert encoder.hidden_size == 64 * encoder.num_attention_heads
        assert encoder.intermediate_size == 4 * encoder.hidden_size
        assert encoder.vocab_size == 0
