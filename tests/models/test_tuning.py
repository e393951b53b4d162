import copy

import pytest
from torch import nn

from coulomb.ground.errors import InputError
from coulomb.methods import MoCo
from coulomb.models import build_encoder, wrap_encoder
from coulomb.models.features import frozen
from coulomb.models.tuning import HeadFirst, Tune
from method_cases import built


@pytest.mark.parametrize(
    ("text", "kind", "number", "frozen"),
    [
        ("all", "all", None, False),
        ("last:2", "last", 2, False),
        ("lora:8", "lora", 8, False),
        ("norm", "norm", None, False),
        ("head", "head", None, True),
        ("none", "none", None, True),
        ("whiten", "whiten", None, True),
    ],
)
def test_each_kind_is_parsed(text, kind, number, frozen):
    tune = Tune.parse(text)
    assert (tune.kind, tune.number, tune.frozen) == (kind, number, frozen)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("whitten", "whiten"),
        ("", "one of all, last:K, head, lora:R"),
        ("last", "last:2"),
        ("last:0", "at least 1"),
        ("lora:-1", "at least 1"),
        ("lora:¹", "at least 1"),
        ("last:" + "9" * 5000, "at least 1"),
        ("none:3", "has no number"),
    ],
)
def test_other_values_are_refused_with_the_remedy(text, part):
    with pytest.raises(InputError, match=part):
        Tune.parse(text)


def encoder_of(name="resnet10"):
    return build_encoder(name, channels=3, image_size=16, width=12)


def trained(encoder):
    """Names of the parameters that train, up to the block."""
    return {".".join(n.split(".")[1:4]) for n, p in encoder.named_parameters() if p.requires_grad}


def moving(encoder):
    """Batch norms that use the statistics of the batch in training."""
    encoder.train()
    return {name for name, part in encoder.named_modules() if isinstance(part, nn.BatchNorm2d) and part.training}


def test_the_last_blocks_and_what_follows_them_train():
    encoder = encoder_of()
    Tune.parse("last:2").apply(encoder)
    assert {name[:8] for name in trained(encoder)} == {"stages.2", "stages.3"}
    assert {name[:17] for name in moving(encoder)} == {"backbone.stages.2", "backbone.stages.3"}
    vit = encoder_of("vit")
    Tune.parse("last:1").apply(vit)
    assert {name.split(".")[0] for name in trained(vit)} == {"blocks", "norm"}
    assert not vit.backbone.positions.requires_grad and not vit.backbone.blocks[4].norm1.weight.requires_grad
    everything = encoder_of()
    Tune.parse("last:4").apply(everything)
    assert not everything.backbone.stem[0].weight.requires_grad


def test_the_message_says_how_many_blocks_there_are():
    with pytest.raises(InputError, match="tune='last:99': resnet10 has 4 blocks; give last:1 to last:4"):
        Tune.parse("last:99").apply(encoder_of())


def test_only_scales_and_shifts_of_norms_train():
    encoder = encoder_of()
    sentence = Tune.parse("norm").apply(encoder)
    norms = [part for part in encoder.modules() if isinstance(part, nn.BatchNorm2d)]
    expected = {id(p) for part in norms for p in (part.weight, part.bias)}
    assert {id(p) for p in encoder.parameters() if p.requires_grad} == expected
    assert len(moving(encoder)) == len(norms)
    assert sentence.startswith(f"{sum(p.weight.numel() * 2 for p in norms):,} of ")
    assert sentence.endswith("; 12 of 12 batch norms follow the training images")
    vit = encoder_of("vit")
    Tune.parse("norm").apply(vit)
    assert all("norm" in name for name in trained(vit))
    with pytest.raises(InputError, match="has no norm with a scale"):
        Tune.parse("norm").apply(wrap_encoder(nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), channels=3, image_size=4))


@pytest.mark.parametrize("kind", ["head", "none", "whiten"])
def test_frozen_backbones(kind):
    encoder = encoder_of()
    Tune.parse(kind).apply(encoder)
    assert encoder.frozen and not trained(encoder) and not moving(encoder)


def test_all_changes_nothing_and_respects_what_a_module_froze_itself():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module[1].requires_grad_(False)
    encoder = wrap_encoder(module, channels=3, image_size=8)
    Tune.parse("all").apply(encoder)
    assert module[0].weight.requires_grad and not module[1].weight.requires_grad
    assert moving(encoder) == {"backbone.1"}
    Tune.parse("last:1").apply(encoder)
    assert not module[1].weight.requires_grad and not moving(encoder)


@pytest.mark.parametrize("text", ["all", "last:2", "norm"])
def test_frozen_statistics(text):
    encoder = encoder_of()
    Tune.parse(text).apply(encoder, norm_statistics="frozen")
    assert trained(encoder) and not moving(encoder)


def test_batch_norms_without_parameters_move_with_their_block():
    def network():
        blocks = [nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, affine=False)) for _ in range(2)]
        return wrap_encoder(nn.Sequential(*blocks, nn.Flatten()), channels=3, image_size=4)

    for text, expected in (("all", {"0", "1"}), ("last:1", {"1"})):
        encoder = network()
        Tune.parse(text).apply(encoder)
        assert moving(encoder) == {f"backbone.{block}.1" for block in expected}


def test_lora_trains_additions_with_frozen_statistics():
    pytest.importorskip("peft", reason="peft is not installed")
    encoder = encoder_of()
    sentence = Tune.parse("lora:2").apply(encoder)
    assert not moving(encoder)
    assert "12 convolutions adapted with rank 2" in sentence
    assert sentence.endswith("; 0 of 12 batch norms follow the training images")


def test_modes_are_kept_by_copies_and_by_contexts_in_eval_mode():
    encoder = encoder_of()
    Tune.parse("last:1").apply(encoder)
    expected = {f"backbone.stages.3.0.{norm}" for norm in ("bn1", "bn2", "shortcut.1")}
    assert moving(encoder) == expected
    assert moving(copy.deepcopy(encoder)) == expected
    encoder.eval()
    assert not any(part.training for part in encoder.modules())
    with frozen(encoder.train()):
        assert not any(part.training for part in encoder.modules())
    assert {n for n, part in encoder.named_modules() if isinstance(part, nn.BatchNorm2d) and part.training} == expected


def test_the_head_alone_and_then_what_trained_before():
    method = built(MoCo, encoder_of(), embedding_dim=4)
    Tune.parse("last:1").apply(method.tower.encoder)
    before = {name: p.requires_grad for name, p in method.named_parameters()}
    phase = HeadFirst(method)
    phase.set(True)
    assert {name.split(".")[1] for name, p in method.named_parameters() if p.requires_grad} == {"head"}
    assert not any(part.training for part in method.train().tower.encoder.backbone.modules())
    assert not any(part.training for part in method.momentum_encoder.module.encoder.backbone.modules())
    phase.set(False)
    assert {name: p.requires_grad for name, p in method.named_parameters()} == before
    assert len(moving(method.tower.encoder)) == 3


def test_a_method_without_head_cannot_train_it_alone():
    method = nn.Module()
    method.encoder = encoder_of()
    with pytest.raises(InputError, match="has no head"):
        HeadFirst(method).set(True)
