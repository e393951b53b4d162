import torch

from coulomb.losses import SupConLoss
from coulomb.methods import SupCon
from coulomb.models import ViewRows
from method_cases import built, encoder, views

LABELS = torch.tensor([0, 0, 1, 1, -1, 2])


def test_supcon_uses_labels():
    method = built(SupCon, encoder(), temperature=0.3, embedding_dim=5).eval()
    seen = views()
    embeddings = torch.stack([method.tower(view) for view in seen], dim=1)
    torch.testing.assert_close(method(ViewRows.of(seen), LABELS), SupConLoss(temperature=0.3)(embeddings, LABELS))
    assert method(ViewRows.of(seen), LABELS) != method(ViewRows.of(seen), torch.zeros(6, dtype=torch.long))
