"""Options of every loss: checked whenever they are set, and suggested for the names that other libraries use."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch

import coulomb.losses
from coulomb.ground.names_elsewhere import RENAMED, REPLACED
from coulomb.losses import ArcFaceLoss, LearnableTemperature, NTXentLoss, PaCoLoss, SupConLoss, TripletLoss
from coulomb.losses.options import Loss

CLASSES = [getattr(coulomb.losses, name) for name in coulomb.losses.__all__ if name.endswith("Loss")]
NEEDED = {  # arguments without a default
    "ArcFaceLoss": {"num_classes": 3, "dim": 4},
    "BalancedSoftmaxLoss": {"class_counts": [1, 2]},
    "MatryoshkaLoss": {"loss": NTXentLoss(), "dims": [2, 4]},
    "NCELoss": {"num_instances": 10},
}
NUMBER = [None, "1", -1, math.nan, math.inf, 10**400, True, [0.5], torch.ones(2), torch.ones((), requires_grad=True)]
FLAG = [None, "no", 0, 1.0]
WHOLE = [None, 1.5, 0, -1, 10**400, True]
WRONG = {
    "alpha": NUMBER,
    "base_temperature": [0, *NUMBER[1:]],
    "beta": NUMBER,
    "bias": [None, "1", math.nan, math.inf, 10**400, True, [0.5], torch.ones(2)],
    "class_counts": [{}, "many", [0, 1], [[1, 2]], [10**400]],
    "contrast_mode": [None, "first"],
    "covariance": NUMBER,
    "diagnose": FLAG,
    "dims": [None, 4, "2,4", [], [0], [2, 2], [1.5], [True]],
    "directions": [None, "query_to_doc", 1, [], ["doc_to_query"], ["query_to_doc", "doc_to_image"]],
    "distance": [None, "l2"],
    "easy_margin": FLAG,
    "gamma": NUMBER,
    "gather": [None, "yes"],
    "guide_margin": [None, "1", math.nan, math.inf, 10**400, True, [0.5], torch.ones(2)],
    "guide_margin_kind": [None, "relativ"],
    "hardness_mode": ["hard", 1],
    "hardness_strength": NUMBER,
    "in_batch": FLAG,
    "invariance": NUMBER,
    "kl": FLAG,
    "label_smoothing": [1, *NUMBER],
    "learnable": FLAG,
    "loss": [None, "InfoNCELoss", torch.nn.MSELoss(), NTXentLoss],
    "margin": NUMBER,
    "mining": [None, "easy"],
    "momentum": [1, *NUMBER],
    "no_positive": [None, "ignore"],
    "normalize": FLAG,
    "normalized": FLAG,
    "normalizer": ["fixed", 0, *NUMBER[2:]],
    "num_instances": WHOLE,
    "overlap": [None, "all"],
    "partition_mode": [None, "separate"],
    "positives": [None, "inside"],
    "reduction": [None, "avg", 1, ["mean"]],
    "same_id": [None, "negative"],
    "scale": [0, *NUMBER],
    "sigma": [0, *NUMBER],
    "soft": FLAG,
    "stop_gradient": FLAG,
    "supervised_temperature": [0, *NUMBER],
    "symmetric": FLAG,
    "t": [0, *NUMBER],
    "tau_plus": [1, *NUMBER],
    "teacher_temperature": [0, *NUMBER],
    "temperature": [0, *NUMBER],
    "top_k": WHOLE,
    "variance": NUMBER,
    "weight": NUMBER,
    "weighted": FLAG,
    "weights": [1, "1,2", [1, -1], [1, math.nan]],
}
OPTIONS = [(cls, name) for cls in CLASSES for name in cls.checks if hasattr(cls(**NEEDED.get(cls.__name__, {})), name)]


def made(cls, **options):
    return cls(**NEEDED.get(cls.__name__, {}) | options)


def test_the_tables_cover_every_loss_and_option():
    assert all(issubclass(cls, Loss) for cls in CLASSES)
    for cls in CLASSES:
        loss = made(cls)
        plain = {name for name in vars(loss) if not name.startswith("_")} - {"training"}
        assert plain <= set(cls.checks) <= set(WRONG)


@pytest.mark.parametrize(("cls", "name"), OPTIONS, ids=str)
def test_invalid_values_raise_at_construction_and_assignment(cls, name):
    loss = made(cls)
    before = repr(loss)
    for wrong in WRONG[name]:
        with pytest.raises((TypeError, ValueError), match=f"^{name}\\b"):
            setattr(loss, name, wrong)
        with pytest.raises((TypeError, ValueError), match=f"^{name}\\b"):
            made(cls, **{name: wrong})
    assert repr(loss) == before


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), np.array(0.5), torch.tensor(0.5)], ids=repr)
def test_numpy_and_torch_scalars_are_accepted(value):
    x, y = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0)).unbind()
    loss = NTXentLoss(value)
    assert type(loss.temperature) is float
    assert torch.equal(loss(x, y), NTXentLoss(0.5)(x, y))
    loss.temperature = np.int64(1)
    assert torch.equal(loss(x, y), NTXentLoss(1.0)(x, y))
    assert LearnableTemperature(value)().item() == pytest.approx(0.5)
    assert coulomb.losses.HardContrastiveLoss(top_k=np.int64(3)).top_k == 3


def test_a_temperature_can_be_replaced_by_a_learnable_one():
    loss = NTXentLoss()
    loss.temperature = LearnableTemperature(0.3)
    assert [name for name, _ in loss.named_parameters()] == ["temperature.log_scale"]
    for wrong in [("hot",), (0.07, None), (10**400,), (0.07, 0.01, math.nan)]:
        with pytest.raises((TypeError, ValueError), match="initial|minimum|maximum"):
            LearnableTemperature(*wrong)


@pytest.mark.parametrize("cls", CLASSES)
def test_copies_keep_their_options(cls):
    loss = made(cls, **({"reduction": "sum"} if "reduction" in cls.checks else {}))
    assert repr(copy.deepcopy(loss)) == repr(pickle.loads(pickle.dumps(loss))) == repr(loss)


@pytest.mark.parametrize(
    ("cls", "name", "message"),
    [
        (NTXentLoss, "memory_bank_size", r"InfoNCELoss\(\)\(query, positive, queue\.keys\(\)\)"),
        (NTXentLoss, "gather_distributed", "use 'gather'"),
        (coulomb.losses.InfoNCELoss, "gather_across_devices", "use 'gather'"),
        (coulomb.losses.InfoNCELoss, "scale", r"use 'temperature' \(temperature is 1/scale\)"),
        (ArcFaceLoss, "embedding_size", "use 'dim'"),
        (ArcFaceLoss, "s", "use 'scale'"),
        (ArcFaceLoss, "m", "use 'margin'"),
        (coulomb.losses.SigmoidLoss, "logit_bias", "use 'bias'"),
        (coulomb.losses.SigmoidLoss, "temperature", r"use 'scale' \(scale is 1/temperature\)"),
        (coulomb.losses.VICRegLoss, "std_coeff", "use 'variance'"),
        (coulomb.losses.BarlowTwinsLoss, "lambd", "use 'weight'"),
        (TripletLoss, "distance_metric", r"use 'distance' \('cosine' or 'euclidean'\)"),
        (TripletLoss, "triplet_margin", "use 'margin'"),
        (TripletLoss, "type_of_triplets", "use 'mining'"),
        (PaCoLoss, "smooth", "use 'label_smoothing'"),
        (PaCoLoss, "supt", "use 'supervised_temperature'"),
        (SupConLoss, "distance", "cosine similarity"),
        (SupConLoss, "temprature", "did you mean 'temperature'"),
        (SupConLoss, "swap", "its options are temperature, base_temperature, "),
    ],
)
def test_names_from_other_libraries_suggest_ours(cls, name, message):
    with pytest.raises(TypeError, match=rf"^{cls.__name__} has no option '{name}'; .*{message}"):
        made(cls, **{name: 1})


def test_every_suggested_name_is_an_option_of_a_loss():
    options = {name for cls in CLASSES for name in cls.__init__.__wrapped__.__code__.co_varnames}
    assert {option for option, _ in RENAMED.values()} <= options
    assert not set(REPLACED) & set(RENAMED)


def test_a_margin_in_degrees_raises():
    with pytest.raises(
        ValueError, match=r"margin=28\.6: the margin is an angle in radians.*28\.6 degrees are margin=0\.4992"
    ):
        ArcFaceLoss(3, 4, margin=28.6)


def test_subclasses_can_add_options():
    class Mine(TripletLoss):
        def __init__(self, flavour, **options):
            super().__init__(**options)
            self.flavour = flavour

    assert Mine("sweet", margin=0.5).flavour == "sweet"
    with pytest.raises(TypeError, match="Mine has no option 'triplet_margin'; use 'margin'"):
        Mine("sweet", triplet_margin=0.5)
