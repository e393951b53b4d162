import torch

import method_cases
from coulomb.losses import VICRegLoss
from coulomb.methods.vicreg import VICReg
from coulomb.models import ViewRows
from method_cases import built


def test_it_is_the_loss_of_the_head():
    method = built(VICReg, method_cases.encoder(), invariance=3.0, variance=2.0, covariance=0.5, embedding_dim=5).eval()
    seen = method_cases.views()
    embeddings = [method.tower(view) for view in seen]
    torch.testing.assert_close(method(ViewRows.of(seen)), VICRegLoss(3.0, 2.0, 0.5)(*embeddings))


def test_it_learns_and_resumes():
    _, spread, rank = method_cases.trained_on_blobs(
        VICReg, head_hidden_dim=32, invariance=1.0, variance=1.0, covariance=0.04
    )
    assert spread > 0.8 and rank > 8
    method_cases.assert_resumes(lambda: built(VICReg, method_cases.encoder(), embedding_dim=5, head_hidden_dim=8))


def test_without_the_variance_term_it_collapses():
    loss, spread, _ = method_cases.trained_on_blobs(VICReg, head_hidden_dim=32, variance=0.0)
    assert loss < 0.1
    assert spread < 0.9
