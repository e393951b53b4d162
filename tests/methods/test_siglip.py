import math

import pytest
import torch

import method_cases
from coulomb.losses import SigmoidLoss
from coulomb.methods.siglip import SigLIP
from coulomb.models import ViewRows
from method_cases import built


def test_it_is_the_sigmoid_loss_of_the_head():
    method = built(SigLIP, method_cases.encoder(), scale=4.0, bias=-1.0, embedding_dim=5).eval()
    seen = method_cases.views()
    embeddings = [method.tower(view) for view in seen]
    torch.testing.assert_close(method(ViewRows.of(seen)), SigmoidLoss(4.0, -1.0)(*embeddings))


def test_no_signal_is_the_best_loss_of_equal_images():
    same = ViewRows.of([torch.full((6, 1, 8, 8), 0.5)] * 2)
    best = -math.log(5)  # the logarithm of one positive against five negatives
    losses = [
        float(built(SigLIP, method_cases.encoder(), bias=best + shift - 10, embedding_dim=5).eval()(same).detach())
        for shift in (-0.1, 0, 0.1)
    ]
    assert losses[1] == min(losses) == pytest.approx(built(SigLIP, method_cases.encoder()).no_signal(6, 2), rel=1e-5)


def test_scale_and_bias_learn_without_decay():
    from coulomb.training.optimizers import parameter_groups

    method = built(SigLIP, method_cases.encoder())
    decayed = {id(p) for group in parameter_groups(method, 0.1) if group["weight_decay"] for p in group["params"]}
    assert not decayed & {id(p) for p in method.criterion.parameters()}
    assert not list(built(SigLIP, method_cases.encoder(), learnable=False).criterion.parameters())


def test_it_learns_and_resumes():
    _, spread, rank = method_cases.trained_on_blobs(SigLIP, scale=5.0, bias=-5.0, learnable=False)
    assert spread > 0.8 and rank > 8
    method_cases.assert_resumes(lambda: built(SigLIP, method_cases.encoder(), embedding_dim=5))
