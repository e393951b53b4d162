"""Towers, and the views of a batch as rows."""

import torch

from coulomb.kinds.text import Tokens
from coulomb.models import Tower, ViewRows
from method_cases import encoder, views


def test_views_of_a_batch_are_rows_view_by_view():
    first, second, third = seen = views(3, batch=4)
    rows = ViewRows.of(seen)
    assert rows.instances == 4 and torch.equal(rows["image"], torch.cat([first, second, third]))
    assert all(torch.equal(a, b) for a, b in zip(rows.split(rows["image"]), seen, strict=True))
    embeddings = torch.randn(12, 5)
    assert torch.equal(rows.by_instance(embeddings), torch.stack(embeddings.chunk(3), dim=1))


def test_columns_have_the_views_that_they_have():
    rows = ViewRows({"image": torch.randn(6, 4), "caption": torch.randn(3, 2)}, 3)
    assert [len(rows.split(rows[name])) for name in ("image", "caption")] == [2, 1]


def test_a_batch_without_readable_samples_has_no_views():
    rows = ViewRows.of([torch.zeros(0, 1, 8, 8)] * 2)
    assert rows.instances == 0 and sum(len(view) for view in rows.split(rows["image"])) == 0


def test_a_tower_is_encoder_and_head():
    network, images = encoder(), views(1)[0]
    tower = Tower(network, embedding_dim=5, head_layers=1, head_hidden_dim=7).eval()
    assert torch.equal(tower(images), tower.head(network(images))) and tower(images).shape == (6, 5)
    assert (tower.column, tower.feature_dim, tower.hidden_dim) == ("image", network.feature_dim, 7)
    bare = Tower(network, head_layers=0).eval()
    assert torch.equal(bare(images), network(images)) and bare.embedding_dim == network.feature_dim
    network.column = "features"  # of a frozen backbone
    assert tower.column == bare.column == "features"


def test_views_of_texts_are_rows_padded_to_the_longest():
    short = Tokens(torch.tensor([[1, 2]]), torch.ones(1, 2, dtype=torch.bool))
    long = Tokens(torch.tensor([[3, 4, 5]]), torch.ones(1, 3, dtype=torch.bool))
    rows = ViewRows.of([short, long], "caption")
    assert rows.instances == 1 and rows["caption"].ids.tolist() == [[1, 2, 0], [3, 4, 5]]
    assert rows["caption"].mask.tolist() == [[True, True, False], [True] * 3]
