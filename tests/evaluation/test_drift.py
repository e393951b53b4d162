"""Drift figures of invented features."""

import pytest
import torch
from torch.nn.functional import normalize

from coulomb.evaluation.drift import drift_figures
from metrics_oracles import normal

START = normal(60, 6).abs().float()


def found(trained, untrained=None, start=START, **options):
    by_name = (trained, start, normal(len(start), 6, 9).float() if untrained is None else untrained)
    networks = [lambda part, features=features: (features, None) for features in by_name]
    return drift_figures(*networks, None, **options)


def test_unchanged_features():
    figures = found(START.clone(), untrained=START.clone())
    assert figures["distance"] == pytest.approx(0, abs=1e-6) and figures["cka"] == pytest.approx(1)
    assert figures["recovered"] == figures["recovered_untrained"] == 1 and figures["images"] == 60


def test_scale_is_the_distance_of_two_images():
    unit = normalize(START, dim=1)
    pairs = (unit @ unit.T)[~torch.eye(60, dtype=torch.bool)]
    figures = found(START.roll(1, 0))  # every image has the features of another one
    assert figures["between"] == pytest.approx(float(1 - pairs.mean()), abs=1e-6)
    assert figures["distance"] == pytest.approx(figures["between"], rel=0.1)
    assert figures["recovered"] < 0.3 and abs(figures["cka"]) < 0.2


def test_rotation_moves_features_and_loses_nothing():
    rotated = START @ torch.linalg.qr(normal(6, 6, 3))[0].float()
    figures = found(rotated)
    assert figures["distance"] > 0.3 and figures["cka"] == pytest.approx(1, abs=1e-4) and figures["recovered"] > 0.99


def test_features_behind_an_adapter_have_no_distance():
    figures = found(START[:, :2], same_space=False)
    assert figures["distance"] is None and 0 < figures["recovered"] < 1


def test_too_few_images():
    assert found(torch.eye(3), torch.eye(3), torch.eye(3)) is None
    few = found(torch.eye(4), torch.eye(4), torch.eye(4))
    assert few["images"] == 4 and few["recovered"] is None
