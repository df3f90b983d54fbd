"""Distillation: the student follows the vectors in the records; against plain loops."""

import itertools

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from official_cmlm.losses.blocks import sum_at_once, sum_in_blocks
from official_cmlm.losses.distillation import neighbour_divergence, similarity_error
from official_cmlm.objectives.bitext_retrieval import BitextRetrievalConfig
from official_cmlm.objectives.distillation import DistillationConfig, PairDistillationConfig
from official_cmlm.records.manifest import load_folders
from official_cmlm.training.task import SentenceEncoderTask
from tests.modeling.helpers import output_of
from tests.objectives.helpers import Spy, embed, make_batch, make_task, random_model, refuses
from tests.oracles.contrastive_numpy import cosine
from tests.training.all_objectives import TEACHER_SIZE, teach
from tests.training.helpers import task_config


def _output(model, name, batch):
    return output_of(model.objectives[name], batch, Spy(model.encoder))


def _loss(students, teachers, mapped=None, dims=()):
    """Computes the default loss by loops over texts and pairs of texts."""
    mapped = students if mapped is None else mapped
    rows = range(len(students))
    distance = np.mean([1 - cosine(mapped[i], teachers[i]) for i in rows])
    errors = [
        np.mean(
            [
                (cosine(students[i][:d], students[j][:d]) - cosine(teachers[i], teachers[j])) ** 2
                for i, j in itertools.product(rows, rows)
            ]
        )
        for d in (len(students[0]), *dims)
    ]
    return distance + 4 * np.mean(errors)


def test_the_loss_of_sentences_is_that_of_loops(folders):
    """With shorter vectors, and a layer to the width of the teacher's."""
    config = DistillationConfig(matryoshka_dims=[4, 8], teacher_size=TEACHER_SIZE)
    task = make_task(folders / "taught_documents", "distillation", config)
    model, batch = random_model(task), make_batch(task)
    students = embed(model, batch["segment"])
    kernel = model.objectives["distillation"].to_teacher.kernel.numpy()
    expected = _loss(students, batch["teacher_vector"].numpy(), students @ kernel, (4, 8))
    assert float(_output(model, "distillation", batch).loss) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("targets", ["own", "first", "translation"])
def test_translations_follow_the_first_text_or_their_own(folders, targets):
    config = PairDistillationConfig(targets=targets, teacher_size=TEACHER_SIZE)
    task = make_task(folders / "taught_bitext", "pair_distillation", config)
    model, batch = random_model(task), make_batch(task)
    students = np.concatenate([embed(model, batch[side]) for side in ("first", "second")])
    first, second = batch["first_vector"].numpy(), batch["second_vector"].numpy()
    assert not np.allclose(first, second)
    teachers = np.concatenate([first, second if targets == "own" else first])
    if targets == "translation":
        students, teachers = students[len(first) :], first
    kernel = model.objectives["pair_distillation"].to_teacher.kernel.numpy()
    expected = _loss(students, teachers, students @ kernel)
    loss = _output(model, "pair_distillation", batch).loss
    assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_retrieval_and_distillation_of_the_same_pairs_share_a_batch(folders):
    """Each text is then encoded once; retrieval without stored negatives has another batch."""

    def groups(**settings):
        objectives = {
            "bitext_retrieval": BitextRetrievalConfig(**settings),
            "pair_distillation": PairDistillationConfig(teacher_size=TEACHER_SIZE),
        }
        return SentenceEncoderTask(task_config(folders / "taught_bitext", objectives)).train_groups

    (group,) = groups()
    assert group.objectives == ("bitext_retrieval", "pair_distillation")
    assert group.view.sequences == ("first", "second", "negative")
    assert set(group.view.scalars) == {"has_negative", "first_vector", "second_vector"}
    pairs, triples = groups(hard_negatives=False)
    assert "negative" in triples.view.sequences and "negative" not in pairs.view.sequences


def test_neighbours_diverge_as_those_of_loops(folders):
    config = DistillationConfig(
        cosine_weight=0,
        similarity_weight=0,
        neighbour_weight=2,
        neighbour_temperature=0.1,
        teacher_size=TEACHER_SIZE,
    )
    task = make_task(folders / "taught_documents", "distillation", config)
    model, batch = random_model(task), make_batch(task)
    students, teachers = embed(model, batch["segment"]), batch["teacher_vector"].numpy()
    total = 0.0
    for i in range(len(students)):
        others = [j for j in range(len(students)) if j != i]
        p, q = (
            scipy.special.softmax([cosine(vectors[i], vectors[j]) / 0.1 for j in others])
            for vectors in (teachers, students)
        )
        total += scipy.stats.entropy(p, q)
    loss = _output(model, "distillation", batch).loss
    assert float(loss) == pytest.approx(2 * total / len(students), rel=1e-4)


@pytest.mark.parametrize("of_neighbours", [False, True])
def test_blocks_give_the_same_error_and_gradients(of_neighbours):
    student, teacher = (tf.random.stateless_normal([7, n], [1, n]) for n in (5, 3))

    def error(rows):
        reduction = sum_at_once if rows is None else lambda *a: sum_in_blocks(*a, block=rows * 7)
        with tf.GradientTape() as tape:
            tape.watch(student)
            if of_neighbours:
                value = neighbour_divergence(student, teacher, 0.1, reduction)
            else:
                value = similarity_error(student, teacher, reduction)
        return value.numpy(), tape.gradient(value, student).numpy()

    for value, expected in zip(error(2), error(None)):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-6)


def test_vectors_of_another_size_are_refused(folders, tmp_path):
    """Records without vectors, other sizes, folders of two teachers."""
    documents, taught = folders / "documents", folders / "taught_documents"

    def task(folder, **settings):
        return make_task(folder, "distillation", DistillationConfig(**settings))

    refuses(lambda: task(documents), "no teacher's vectors", "add-vectors")
    refuses(lambda: task(taught, teacher_size=5), TEACHER_SIZE, 5)
    fits = task(taught)
    model = fits.build_model()
    refuses(lambda: _output(model, "distillation", make_batch(fits)), "teacher_size", TEACHER_SIZE)
    teach(folders / "with_text", tmp_path / "other", 5)
    refuses(lambda: load_folders([str(taught), str(tmp_path / "other")]), "teachers' vectors")
