import pytest
import torch

import method_cases
from coulomb.ground.errors import InputError
from coulomb.losses import DecoupledLoss
from coulomb.methods.dcl import DCL
from coulomb.models import ViewRows
from method_cases import built


@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_decoupled_loss_of_the_head(weighted):
    method = built(DCL, method_cases.encoder(), temperature=0.3, weighted=weighted, sigma=0.2, embedding_dim=5).eval()
    seen = method_cases.views()
    embeddings = [method.tower(view) for view in seen]
    torch.testing.assert_close(method(ViewRows.of(seen)), DecoupledLoss(0.3, weighted, 0.2)(*embeddings))


def test_the_floor_is_the_loss_of_a_simplex():
    corners = torch.eye(6) - 1 / 6
    assert DecoupledLoss(0.3)(corners, corners).item() == pytest.approx(
        built(DCL, method_cases.encoder(), temperature=0.3).floor(6, 2), rel=1e-5
    )
    assert built(DCL, method_cases.encoder(), weighted=True).floor(6, 2) is None


def test_it_learns_and_resumes():
    _, spread, rank = method_cases.trained_on_blobs(DCL)
    assert spread > 0.8 and rank > 8
    method_cases.assert_resumes(lambda: built(DCL, method_cases.encoder(), embedding_dim=5))


def test_it_needs_two_views():
    with pytest.raises(InputError, match="n_views=3: DCL needs exactly 2"):
        built(DCL, method_cases.encoder())(ViewRows.of(method_cases.views(3)))
