"""Figures of the embeddings in a loss: equal to the metrics of the rows, at the updates that are due, without any effect."""

import logging
import math

import pytest
import torch
from torch import nn

from coulomb.ground.errors import CoulombWarning
from coulomb.integrations.embedding_figures import EmbeddingFigures
from coulomb.integrations.open_clip import ClipLoss, SigLipLoss
from coulomb.losses import InfoNCELoss, LearnableTemperature, NTXentLoss, SigmoidLoss, SupConLoss, VICRegLoss
from coulomb.metrics import alignment, effective_rank, feature_std, hardness, uniformity
from view_cases import normal

X, Y = (normal(24, 6, seed=seed).float() for seed in (0, 1))
PLACES = torch.arange(24)


def measured(call, *, model=None, update=1, **options):
    """The figures of one update in which ``call`` is made."""
    figures = EmbeddingFigures(**options)
    figures.listen(nn.Identity() if model is None else model)
    call()
    return figures.finish(update, 1)


def test_figures_are_the_metrics_of_the_embeddings():
    loss = InfoNCELoss(0.1)
    figures = measured(lambda: loss(X, Y), model=nn.ModuleList([loss]))
    shares = hardness(X, 0.1, Y, ids=PLACES, key_ids=PLACES)
    unit = nn.functional.normalize(X, dim=1)
    assert figures == pytest.approx(
        {
            "alignment": alignment(X, Y),
            "uniformity": uniformity(X),
            "embedding_rank": effective_rank(unit),
            "embedding_std": feature_std(X),
            "effective_negatives": shares.effective_negatives,
            "top1_gradient": shares.top1,
            "top10pct_gradient": shares.top10pct,
            "temperature": 0.1,
        },
        rel=1e-5,
    )


def scale(value):
    return torch.tensor(value, requires_grad=True)


@pytest.mark.parametrize(
    ("loss", "call", "temperature"),
    [
        (NTXentLoss(0.3), lambda f: f(torch.stack([X, Y], 1)), 0.3),
        (NTXentLoss(LearnableTemperature(0.2)), lambda f: f(X, Y), 0.2),
        (InfoNCELoss(), lambda f: f(X, Y, scale=scale(8.0)), 1 / 8),
        (InfoNCELoss(), lambda f: f(X, positive=Y, negatives=normal(50, 6).float()), 0.07),
        (SupConLoss(0.1), lambda f: f(torch.stack([X, Y], 1), PLACES // 2), 0.1),
        (ClipLoss(), lambda f: f(nn.functional.normalize(X), nn.functional.normalize(Y), scale(20.0)), 1 / 20),
        (SigLipLoss(), lambda f: f(nn.functional.normalize(X), nn.functional.normalize(Y), scale(5.0), 0.0), 1 / 5),
        (SigmoidLoss(), lambda f: f(X, Y), 1 / 10),
        (SigmoidLoss(4.0, learnable=False), lambda f: f(X, Y), 1 / 4),
    ],
)
def test_every_kind_of_loss_is_read(loss, call, temperature):
    figures = measured(lambda: call(loss), model=nn.Sequential(loss))
    assert figures["temperature"] == pytest.approx(temperature)
    assert figures["alignment"] == pytest.approx(alignment(X, Y), rel=1e-5)
    weighs = not isinstance(loss, SigmoidLoss | SigLipLoss)  # the negatives of a sigmoid share no gradient
    assert ("effective_negatives" in figures) == weighs


def test_a_loss_of_another_library_is_named():
    class Theirs(nn.Module):
        def forward(self, embeddings, labels):
            return torch.zeros(())

    loss = Theirs()
    figures = measured(lambda: loss(X, PLACES), loss=loss, temperature=0.5)
    assert figures == pytest.approx(
        {
            "uniformity": uniformity(X),
            "embedding_rank": effective_rank(nn.functional.normalize(X, dim=1)),
            "embedding_std": feature_std(X),
            "temperature": 0.5,
        },
        rel=1e-5,
    )
    both = measured(lambda: loss([[X], [Y]], None), loss=loss, temperature=0.5)  # lists of columns
    assert both["effective_negatives"] == pytest.approx(
        hardness(X, 0.5, Y, ids=PLACES, key_ids=PLACES).effective_negatives
    )


class OfTexts(nn.Module):
    """A loss as in sentence-transformers: called with texts, it computes the embeddings itself, in mini-batches or not."""

    def __init__(self, cached):
        super().__init__()
        self.cached, self.scale = cached, 20.0

    def forward(self, sentence_features, labels):
        if self.cached:
            reps = [[part[:10], part[10:]] for part in (X, Y)]
            return self.calculate_loss(reps, labels, with_backward=False)
        return self.compute_loss_from_embeddings([X, Y], labels)

    def compute_loss_from_embeddings(self, embeddings, labels):
        return embeddings[0].sum()

    def calculate_loss(self, reps, labels, *, with_backward=False):
        return reps[0][0].sum()


@pytest.mark.parametrize("cached", [True, False])
def test_losses_that_compute_embeddings_themselves_are_read(cached):
    loss = OfTexts(cached)
    figures = measured(lambda: loss([{"input_ids": torch.zeros(24, 3).long()}], None), loss=loss)
    assert figures["alignment"] == pytest.approx(alignment(X, Y), rel=1e-5)
    assert figures["temperature"] == pytest.approx(1 / 20)
    assert not set(vars(loss)) & {"compute_loss_from_embeddings", "calculate_loss"}
    loss([{}], None)  # as before


def test_a_loss_of_coulomb_within_a_named_one_is_read():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.formula = NTXentLoss(0.3)

        def forward(self, texts):
            return self.formula(X, Y)

    loss = Outer()
    assert measured(lambda: loss(["a"]), loss=loss)["temperature"] == pytest.approx(0.3)


def test_a_loss_without_temperature_has_no_hardness():
    loss = VICRegLoss()
    assert set(measured(lambda: loss(X, Y), model=nn.Sequential(loss))) == {
        "alignment",
        "uniformity",
        "embedding_rank",
        "embedding_std",
    }


def test_a_sample_of_rows_is_measured():
    loss = VICRegLoss()
    figures = measured(lambda: loss(X, Y), model=nn.Sequential(loss), rows=8)
    assert figures["alignment"] == pytest.approx(alignment(X[::3], Y[::3]), rel=1e-5)


def test_observe_measures_embeddings_of_a_loss_that_is_a_function():
    figures = EmbeddingFigures(every=2)
    for update in (1, 2, 3, 4):
        if figures.is_due(update):
            figures.listen(nn.Identity())
        figures.observe(X.clone().requires_grad_() + update, Y, temperature=0.2)
        if figures.is_due(update):
            seen = figures.finish(update, 1)
            assert seen["alignment"] == pytest.approx(alignment(X + update, Y), rel=1e-5)
            assert seen["temperature"] == 0.2


def test_due_are_the_first_update_and_every_so_many_th_once():
    figures = EmbeddingFigures(every=3)
    due = []
    for update in (1, 1, 2, 3, 3, 4, 5, 6):  # batches of the same update, with gradient accumulation
        if figures.is_due(update):
            due.append(update)
            figures.listen(nn.Identity())
            figures.observe(X)
            figures.finish(update, 1)
    assert due == [1, 3, 6]


def test_only_the_first_call_of_an_update_is_measured_and_hooks_are_removed():
    loss = InfoNCELoss(0.1)
    first = measured(lambda: (loss(X, Y), loss(Y, Y)), model=nn.Sequential(loss))
    assert first["alignment"] > 0.1
    assert not loss._forward_hooks


def test_nothing_to_measure_is_said_once():
    figures = EmbeddingFigures()
    figures.listen(nn.Linear(2, 2))
    with pytest.warns(CoulombWarning, match="^update 1: no loss was called with embeddings"):
        assert figures.finish(1, 1) == {}


def test_embeddings_that_are_not_finite_are_left_out():
    class Theirs(nn.Module):
        def forward(self, x, y):
            return x.sum()

    loss = Theirs()
    figures = EmbeddingFigures(loss)
    figures.listen(loss)
    loss(X, Y)
    figures.finish(1, 1)
    figures.listen(loss)
    loss(X / 0, Y)
    assert figures.finish(50, 1) == {}


def run(figures, loss, x, y, updates=10):
    for update in range(1, updates + 1):
        figures.listen(nn.Sequential(loss))
        loss(x, y)
        figures.finish(figures.every * update, 1)


def test_collapsed_embeddings_and_a_loss_without_signal_are_warned_of(caplog):
    with caplog.at_level(logging.WARNING, "coulomb"):
        collapsed = EmbeddingFigures()
        run(collapsed, NTXentLoss(), 1 + X / 1000, 1 + Y / 1000)
        (sentence,) = collapsed.warnings
        assert sentence.startswith("complete-collapse at epoch 1: All samples have nearly the same embedding.")
        assert sentence in caplog.text and "--lr" not in sentence
        unrelated = EmbeddingFigures()
        run(unrelated, NTXentLoss(1.0), torch.eye(24), torch.eye(24).roll(1, 0))
        assert [one.split()[0] for one in unrelated.warnings] in (["no-signal"], ["learning-rate-too-high"])


def test_a_healthy_training_gives_no_warning():
    figures = EmbeddingFigures()
    run(figures, NTXentLoss(), X, X + 0.1 * Y)
    assert figures.warnings == []


def test_the_loss_of_constant_embeddings_is_that_of_the_loss():
    ones = torch.ones(24, 6)
    for loss, given in (
        (NTXentLoss(), (ones, ones)),
        (NTXentLoss(), (torch.ones(24, 3, 6),)),
        (InfoNCELoss(symmetric=True), (ones, ones)),
        (ClipLoss(), (ones / math.sqrt(6), ones / math.sqrt(6), 10.0)),
    ):
        figures, lines = EmbeddingFigures(), []
        figures._watcher.read = lambda line, lines=lines: lines.append(line) or []
        run(figures, loss, given[0], *given[1:2], updates=1) if len(given) == 2 else None
        if len(given) != 2:
            figures.listen(nn.Sequential(loss))
            loss(*given)
            figures.finish(1, 1)
        assert lines[0]["no_signal"] == pytest.approx(lines[0]["loss"], rel=1e-6)


def test_arguments_are_checked():
    for options, match in (
        ({"every": 0}, "^every .*0"),
        ({"rows": 1}, "^rows .*1"),
        ({"temperature": 0}, "^temperature"),
    ):
        with pytest.raises(ValueError, match=match):
            EmbeddingFigures(**options)
    with pytest.raises(TypeError, match="^loss must be a module"):
        EmbeddingFigures(lambda x, y: x)
