import torch

from coulomb.losses import SupConLoss
from coulomb.methods import SupCon
from method_cases import encoder, views

LABELS = torch.tensor([0, 0, 1, 1, -1, 2])


def test_supcon_uses_labels():
    method = SupCon(encoder(), temperature=0.3, embedding_dim=5).eval()
    seen = views()
    embeddings = torch.stack([method.head(method.encoder(view)) for view in seen], dim=1)
    torch.testing.assert_close(method(seen, LABELS), SupConLoss(temperature=0.3)(embeddings, LABELS))
    assert method(seen, LABELS) != method(seen, torch.zeros(6, dtype=torch.long))
