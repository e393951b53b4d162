import torch

import method_cases
from coulomb.losses import BarlowTwinsLoss
from coulomb.methods.barlow import BarlowTwins
from coulomb.models import ViewRows
from method_cases import built


def test_it_is_the_loss_of_the_head():
    method = built(BarlowTwins, method_cases.encoder(), weight=0.1, embedding_dim=5).eval()
    seen = method_cases.views()
    embeddings = [method.tower(view) for view in seen]
    torch.testing.assert_close(method(ViewRows.of(seen)), BarlowTwinsLoss(0.1)(*embeddings))


def test_it_learns_and_resumes():
    loss, spread, rank = method_cases.trained_on_blobs(BarlowTwins, head_hidden_dim=32, weight=0.05)
    assert loss < built(BarlowTwins, method_cases.plain_encoder(), embedding_dim=16).no_signal(128, 2) / 2
    assert spread > 0.8 and rank > 8
    method_cases.assert_resumes(lambda: built(BarlowTwins, method_cases.encoder(), embedding_dim=5, head_hidden_dim=8))
