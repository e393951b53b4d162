import copy
import json

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.kinds.text import Tokens
from coulomb.models import build_text_encoder, load_encoder, save_encoder
from coulomb.models.saving import random_encoder
from coulomb.models.tuning import Tune

pytest.importorskip("tokenizers")

TEXTS = [
    "a red flower and its leaves",
    "two cats on a sofa",
    "the sofa is red",
    "a cat",
    "leaves of a tree in the autumn",
]
NAMES = ("static-random", "transformer-small")


def network(name, **options):
    small = {"depth": 2, "width": 16, "heads": 2} if name == "transformer-small" else {"width": 8}
    return build_text_encoder(name, texts=TEXTS * 3, **small | options)


def tokens(net, texts=TEXTS):
    return net.tokenize(texts).stack(range(len(texts)))


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_the_other_texts_do_not_change_features(name):
    net = network(name).eval()
    batch = tokens(net)
    features = net(batch)
    assert features.shape == (5, net.feature_dim)
    padded = Tokens(
        torch.nn.functional.pad(batch.ids, (0, 7), value=3), torch.nn.functional.pad(batch.mask, (0, 7), value=False)
    )
    torch.testing.assert_close(net(padded), features, rtol=0, atol=1e-5)
    alone = torch.cat([net(tokens(net, [text])) for text in TEXTS])
    torch.testing.assert_close(alone, features, rtol=0, atol=1e-5)


def test_static_features_are_the_mean_of_token_vectors_in_any_order():
    net = network("static-random")
    batch = tokens(net)
    table = net.backbone.vectors.weight
    expected = torch.stack([table[ids[mask]].mean(0) for ids, mask in zip(batch.ids, batch.mask, strict=True)])
    torch.testing.assert_close(net(batch), expected)
    flipped = Tokens(batch.ids.flip(1), batch.mask.flip(1))
    torch.testing.assert_close(net(flipped), expected)


def test_a_transformer_reads_the_order_of_tokens():
    net = network("transformer-small").eval()
    assert (net(tokens(net, ["red cat"])) - net(tokens(net, ["cat red"]))).abs().max() > 1e-3


def reference(net, ids):
    """The transformer on one text without padding, from its layers."""
    x = net.embed(ids) + net.positions[: len(ids)]
    for block in net.blocks:
        query, key, value = block.query_key_value(block.norm1(x)).chunk(3, dim=1)
        heads = []
        for head in range(block.heads):
            part = slice(head * query.shape[1] // block.heads, (head + 1) * query.shape[1] // block.heads)
            scores = query[:, part] @ key[:, part].T / (part.stop - part.start) ** 0.5
            heads.append(scores.softmax(1) @ value[:, part])
        x = x + block.mix(torch.cat(heads, dim=1))
        x = x + block.mlp(block.norm2(x))
    return net.norm(x).mean(0)


def test_the_transformer_equals_its_formula():
    net = network("transformer-small").double().eval()
    batch = tokens(net)
    expected = torch.stack(
        [reference(net.backbone, ids[mask]) for ids, mask in zip(batch.ids, batch.mask, strict=True)]
    )
    torch.testing.assert_close(net(batch), expected, rtol=0, atol=1e-10)


def test_views_of_simcse_differ_through_dropout_only():
    net, still = network("transformer-small"), network("static-random")
    net.train(), still.train()
    batch = tokens(net)
    first, second = net.kind.views(batch, torch.Generator())
    assert first is second is batch
    assert not torch.equal(net(first), net(second))
    net.eval()
    assert torch.equal(net(first), net(second))
    assert torch.equal(still(tokens(still)), still(tokens(still)))


@pytest.mark.parametrize("name", NAMES)
def test_saving_and_loading_is_exact(name, tmp_path):
    net = network(name, longest=9)
    net.attach_adapter({"kind": "linear", "in": net.feature_dim, "out": 5}, seed=3)
    save_encoder(net, tmp_path)
    loaded = load_encoder(tmp_path)
    net.eval()
    assert not loaded.training and loaded.longest == 9 and loaded.config == net.config and loaded.column == "text"
    assert loaded.tokenizer.to_str() == net.tokenizer.to_str()
    assert torch.equal(loaded(tokens(loaded)), net(tokens(net)))
    other = random_encoder(tmp_path, seed=8)
    assert other.tokenizer.to_str() == net.tokenizer.to_str() and other.feature_dim == net.backbone_dim
    assert not torch.allclose(other.backbone_features(tokens(net)), net.backbone_features(tokens(net)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cells": "sounds"}, "'cells' is 'sounds'"),
        ({"longest": None}, "'longest'"),
        ({"longest": 0}, "longest=0"),
        ({"name": "gpt"}, "no encoder of texts"),
        ({"options": {}}, "no encoder of texts"),
        ({"options": {"vocabulary": 3, "width": 8}}, "ids up to"),
        ({"options": {"vocabulary": 400, "depth": 3}}, "depth"),
        ({"feature_dim": 9}, "9 features"),
        ({"tokenizer": "0"}, "tokenizer.json.*SHA-256"),
        ({"longest": 10**9}, "longest=1000000000"),
    ],
)
def test_damaged_descriptions_are_refused(change, message, tmp_path):
    save_encoder(network("static-random"), tmp_path)
    path = tmp_path / "encoder.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=message):
        load_encoder(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"version": "1.0"}', None])
def test_damaged_tokenizers_are_refused(content, tmp_path):
    import hashlib

    save_encoder(network("static-random"), tmp_path)
    path, description = tmp_path / "tokenizer.json", tmp_path / "encoder.json"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
        entries = json.loads(description.read_text()) | {"tokenizer": hashlib.sha256(content).hexdigest()}
        description.write_text(json.dumps(entries))
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        load_encoder(tmp_path)


@pytest.mark.parametrize("cells", [torch.zeros(2, 3), ["a text"], None])
def test_something_else_than_tokens_is_refused(cells):
    with pytest.raises(InputError, match="takes coulomb.kinds.text.Tokens"):
        network("static-random")(cells)


def test_texts_longer_than_the_network_are_refused_and_cut_by_tokenize():
    net = network("transformer-small", longest=4)
    with pytest.raises(InputError, match="at most 4"):
        net(Tokens(torch.zeros(1, 5, dtype=torch.int64), torch.ones(1, 5, dtype=torch.bool)))
    column = net.tokenize(TEXTS)
    assert column.cut.tolist() == [True, True, False, False, True] or column.cut.sum() >= 3
    assert net(column.stack(range(5))).shape == (5, 16)


@pytest.mark.parametrize("name", NAMES)
def test_micro_batches_have_the_gradient_of_the_batch(name):
    plain = network(name).double().eval()
    cached = copy.deepcopy(plain)
    cached.micro_batch = 2
    texts = [TEXTS[3], " ".join(TEXTS[:2]), "cat", *TEXTS[:2]]  # whose order of lengths is not its own inverse
    target = torch.randn(5, plain.feature_dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for net in (plain, cached):
        features = net(tokens(net, texts))
        (features * target).sum().square().backward()
    torch.testing.assert_close(cached(tokens(cached, texts)), plain(tokens(plain, texts)), rtol=0, atol=1e-12)
    for one, two in zip(plain.parameters(), cached.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("tune", "trained"),
    [("none", []), ("last:1", ["blocks.1", "norm."]), ("norm", ["norm"]), ("all", [""])],
)
def test_tuning_trains_what_it_says(tune, trained):
    net = network("transformer-small")
    Tune.parse(tune).apply(net)
    for name, parameter in net.backbone.named_parameters():
        expected = any(part in name if part == "norm" else name.startswith(part) for part in trained)
        assert parameter.requires_grad is expected, name


def test_lora_adapts_a_transformer_and_is_merged_when_saved(tmp_path):
    pytest.importorskip("peft")
    net = network("transformer-small").eval()
    before = net(tokens(net))
    assert "8 linear layers" in Tune.parse("lora:2").apply(net)
    torch.testing.assert_close(net.eval()(tokens(net)), before)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if ".lora_B." in name:
                parameter.fill_(0.1)
    save_encoder(net, tmp_path)
    torch.testing.assert_close(load_encoder(tmp_path)(tokens(net)), net(tokens(net)), rtol=0, atol=1e-5)
    assert (net(tokens(net)) - before).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("tune", "message"), [("norm", "no norm"), ("lora:2", "no linear layer"), ("last:2", "1 blocks")]
)
def test_what_static_vectors_do_not_have(tune, message):
    with pytest.raises(InputError, match=message):
        Tune.parse(tune).apply(network("static-random"))


def test_stacks_of_a_column_feed_the_network_as_single_texts_do():
    net = network("transformer-small").eval()
    column = net.tokenize(TEXTS)
    kind = net.kind
    stack = kind.stack([kind.read(column, row).value for row in range(5)])
    assert torch.equal(net(stack), net(column.stack(np.arange(5))))
