import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.kinds.image.views import OwnViews, TakingTurns, Views, ViewSpec, make_views, views_from_config
from coulomb.kinds.image.views.canvas import chunks

EVERYTHING = ViewSpec(
    crop_area=(0.2, 1.0),
    crop_ratio=(0.75, 1.33),
    flip=0.5,
    flip_vertical=0.5,
    affine=0.5,
    rotate=20,
    translate=0.1,
    zoom=(0.8, 1.2),
    shear=10,
    elastic=0.5,
    elastic_amplitude=0.05,
    jitter=0.8,
    brightness=0.4,
    contrast=0.4,
    saturation=0.4,
    hue=0.1,
    gray=0.2,
    blur=0.5,
    solarize=0.3,
    noise=0.5,
    cutout=0.5,
)


def canvases(batch=12, channels=3, size=32, seed=0):
    return torch.randint(
        0, 256, (batch, channels, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("canvas_size", "size"), [(32, 32), (32, 16), (17, 24), (80, 20)])
@pytest.mark.parametrize("batch", [1, 7])
def test_shapes_range_and_type(seeded, channels, canvas_size, size, batch):
    made = Views(EVERYTHING, size, channels)(canvases(batch, channels, canvas_size), seeded(), n=3)
    assert len(made) == 3
    for view in made:
        assert view.shape == (batch, channels, size, size) and view.dtype == torch.float32
        assert view.min() >= 0 and view.max() <= 1
    assert not torch.equal(made[0], made[1])


def test_smaller_views_beside_a_plain_view_of_full_size(seeded):
    views = Views(replace(EVERYTHING, side=0.75), 32)
    made = views(canvases(), seeded(), n=2)
    assert [view.shape for view in made] == [(12, 3, 24, 24)] * 2
    assert views.plain(canvases()).shape == (12, 3, 32, 32)
    assert views.describe()["size"] == 24
    again = views_from_config(views.to_config())
    assert torch.equal(again(canvases(), seeded(), n=1)[0], made[0])


def test_smaller_views_show_what_views_of_full_size_show(seeded):
    """Up to the kinks of the canvas between its 4 × 4 values, which bilinear interpolation smooths differently."""
    canvas = torch.nn.functional.interpolate(torch.rand(8, 3, 4, 4, generator=seeded()), 64, mode="bilinear")
    makers = [make_views("small-natural", 64, side=side, jitter=0, gray=0) for side in (1.0, 0.5)]
    large, small = (views(canvas, seeded(), n=1)[0] for views in makers)
    assert torch.allclose(torch.nn.functional.avg_pool2d(large, 2), small, atol=0.02)


@pytest.mark.parametrize("preset", ["natural", "small-natural", "digits", "single-channel"])
def test_views_depend_on_the_seed(seeded, preset):
    views, canvas = make_views(preset), canvases()
    first, again, other = (views(canvas, seeded(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("images_per_chunk", [1, 3, 5])
def test_chunks_change_nothing(monkeypatch, seeded, images_per_chunk):
    canvas, aspect = canvases(13), torch.linspace(0.5, 2, 13)
    whole = Views(EVERYTHING)(canvas, seeded(), aspect=aspect)

    def cut(batch, values, device):
        return [slice(i, min(batch, i + images_per_chunk)) for i in range(0, batch, images_per_chunk)]

    monkeypatch.setattr("coulomb.kinds.image.views.make.chunks", cut)
    parts = Views(EVERYTHING)(canvas, seeded(), aspect=aspect)
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=0)


def test_chunks_cover_the_batch():
    for batch in (1, 7, 1000):
        cuts = list(chunks(batch, 3 * 32 * 32, torch.device("cpu")))
        assert [i for cut in cuts for i in range(batch)[cut]] == list(range(batch))
    assert len(list(chunks(1000, 3 * 32 * 32, torch.device("cpu")))) > 1


def test_view_of_a_sample_does_not_depend_on_the_batch_size(seeded):
    """Each sample has its own row of random numbers, so its first view does not depend on the batch size."""
    spec = ViewSpec(crop_area=(0.2, 1), flip=0.5, jitter=0.8, brightness=0.4, hue=0.1, blur=0.5)
    canvas = canvases(12)
    torch.testing.assert_close(
        Views(spec)(canvas, seeded(), n=1)[0][:5], Views(spec)(canvas[:5], seeded(), n=1)[0], atol=2e-6, rtol=0
    )


def test_switching_off_one_operation_does_not_change_others(seeded):
    canvas = canvases()
    blurred = make_views("natural", blur=1.0)(canvas, seeded(), n=1)[0]
    sharp = make_views("natural", blur=0.0)(canvas, seeded(), n=1)[0]
    assert (blurred.mean((2, 3)) - sharp.mean((2, 3))).abs().max() < 0.05 < (blurred - sharp).abs().max()


def test_parameters_differ_between_samples(seeded):
    """Views of copies of one image all differ."""
    canvas = canvases(1).expand(64, -1, -1, -1)
    view = make_views("small-natural")(canvas, seeded(), n=1)[0].flatten(1)
    distances = torch.cdist(view, view) + torch.eye(64) * 9
    assert distances.min() > 0.1


def test_the_global_generators_are_untouched(seeded):
    torch.manual_seed(5), np.random.seed(5)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    Views(EVERYTHING)(canvases(), seeded())
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("spec", [EVERYTHING, ViewSpec()], ids=["everything", "nothing"])
def test_the_canvas_is_not_modified(seeded, floats, spec):
    canvas = canvases() / 255 if floats else canvases()
    kept = canvas.clone()
    for view in Views(spec)(canvas, seeded()):
        view.zero_()
    assert torch.equal(canvas, kept)


def test_uint8_and_float_canvases_agree(seeded):
    canvas = canvases()
    for a, b in zip(Views(EVERYTHING)(canvas, seeded()), Views(EVERYTHING)(canvas / 255, seeded()), strict=True):
        assert ((a - b).abs() > 1e-5).float().mean() < 1e-3  # except near the threshold of the solarization


def test_no_gradient_and_no_autocast(seeded):
    canvas = (canvases() / 255).requires_grad_()
    plain = make_views("digits", padding="border")(canvas.detach(), seeded())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = make_views("digits", padding="border")(canvas, seeded())
        assert make_views("digits").plain(torch.rand(2, 3, 40, 40)).dtype == torch.float32
    assert all(torch.equal(a, b) and not b.requires_grad for a, b in zip(plain, made, strict=True))


@pytest.mark.parametrize(
    ("name", "spec", "tell"),
    [
        ("flip", ViewSpec(flip=0.3), lambda a, b: torch.isclose(a, b.flip(3), atol=1e-5).flatten(1).all(1)),
        ("gray", ViewSpec(gray=0.2), lambda a, b: torch.isclose(a[:, 0], a[:, 1]).flatten(1).all(1)),
        ("jitter", ViewSpec(jitter=0.8, brightness=0.5), lambda a, b: (a - b).abs().amax((1, 2, 3)) > 1e-5),
        ("blur", ViewSpec(blur=0.5, blur_sigma=(1, 2)), lambda a, b: (a - b).abs().amax((1, 2, 3)) > 1e-5),
        ("solarize", ViewSpec(solarize=0.2), lambda a, b: (a - b).abs().amax((1, 2, 3)) > 1e-5),
        ("noise", ViewSpec(noise=0.4, noise_std=(0.02, 0.1)), lambda a, b: (a - b).abs().amax((1, 2, 3)) > 1e-5),
        ("affine", ViewSpec(affine=0.6, rotate=30), lambda a, b: (a - b).abs().amax((1, 2, 3)) > 1e-4),
        ("elastic", ViewSpec(elastic=0.7, elastic_amplitude=0.1), lambda a, b: (a - b).abs().amax((1, 2, 3)) > 1e-4),
        ("cutout", ViewSpec(cutout=0.3, cutout_side=(0.4, 0.5)), lambda a, b: (a == 0.5).flatten(1).sum(1) > 20),
    ],
)
def test_probabilities(seeded, name, spec, tell):
    """4000 samples: within four standard deviations of the given probability."""
    canvas = canvases(4000, size=12)
    view = Views(spec, size=12)(canvas, seeded(), n=1)[0]
    p = getattr(spec, name)
    share = tell(view, canvas / 255).float().mean().item()
    assert abs(share - p) < 4 * (p * (1 - p) / 4000) ** 0.5


def test_crops_restore_the_aspect_ratio(seeded):
    """The view of a wide image on a square canvas shows a part of its width at the original aspect ratio."""
    ramp = ((torch.arange(64) + 0.5) / 64).expand(16, 1, 64, 64).contiguous()
    views = Views(ViewSpec(crop_area=(0.25, 0.25)), 32, 1)
    slope = [
        v.diff(dim=3).mean().item()
        for v in views(ramp, seeded(), 1, None) + views(ramp, seeded(), 1, torch.full((16,), 2.0))
    ]
    assert slope[0] == pytest.approx(0.5 / 32, rel=0.05)  # half the width of a square image
    assert slope[1] == pytest.approx(0.25**0.5 * 2**0.5 / 2 / 32, rel=0.05)


@pytest.mark.parametrize(
    ("canvas", "message"),
    [
        (torch.rand(0, 3, 8, 8), "at least one image"),
        (torch.rand(3, 8, 8), r"\[B, C, H, W\]"),
        (torch.rand(2, 1, 8, 8), "channels=1"),
        (torch.rand(2, 3, 8, 8) * 255, r"\[0, 1\]"),
        (torch.full((2, 3, 8, 8), float("nan")), r"\[0, 1\]"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int64), "int64"),
        (np.zeros((2, 3, 8, 8)), "ndarray"),
    ],
)
def test_errors_for_bad_canvases(seeded, canvas, message):
    with pytest.raises(InputError, match=message):
        make_views("natural")(canvas, seeded())
    with pytest.raises(InputError, match=message):
        make_views("natural").plain(canvas)


def test_errors_for_bad_calls(seeded):
    views = make_views("natural")
    with pytest.raises(InputError, match="generator is None"):
        views(canvases(), None)
    with pytest.raises(InputError, match="n=0"):
        views(canvases(), seeded(), n=0)
    with pytest.raises(InputError, match="size=1"):
        Views(ViewSpec(), size=1)
    with pytest.raises(InputError, match="channels=0"):
        Views(ViewSpec(), channels=0)


def test_configuration_round_trip(seeded):
    views = make_views("natural", size=24, blur=0.25)
    config = json.loads(json.dumps(views.to_config()))
    again = views_from_config(config)
    assert again.spec == views.spec and again.to_config() == views.to_config()
    assert all(torch.equal(a, b) for a, b in zip(views(canvases(), seeded()), again(canvases(), seeded()), strict=True))
    with pytest.raises(InputError, match="has no channels, size"):
        Views.from_config({"spec": {}})
    with pytest.raises(InputError, match="unknown view option 'sharpen'"):
        Views.from_config({"size": 8, "channels": 3, "spec": {"sharpen": 1}})


def test_the_default_dtype_does_not_matter(seeded):
    expected = Views(EVERYTHING)(canvases(), seeded())
    torch.set_default_dtype(torch.float64)
    try:
        made = Views(EVERYTHING)(canvases(), seeded())
        assert make_views("natural", size=20).plain(canvases()).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b in zip(expected, made, strict=True):
        assert b.dtype == torch.float32
        assert (
            (a - b).abs() > 1e-4
        ).float().mean() < 1e-3  # except near the threshold of the solarization and the edges of cutout


CANVAS = torch.rand(4, 3, 40, 40)


def test_own_views(seeded):
    views = OwnViews(lambda images, generator: images * torch.rand(1, generator=generator), size=32, channels=3)
    first, second = views(CANVAS, seeded(), 2)
    assert first.shape == (4, 3, 32, 32) and not torch.equal(first, second)
    assert torch.equal(first, views(CANVAS, seeded(), 1)[0])
    assert "lambda" in views.describe()["own"]
    with pytest.raises(InputError, match="pass it again"):
        views_from_config(views.to_config())


def test_views_function_may_modify_its_argument(seeded):
    views = OwnViews(lambda images, generator: images.mul_(0.5), size=32, channels=3)
    first, second = views(CANVAS, seeded(), 2)
    assert torch.equal(first, views.plain(CANVAS) * 0.5) and torch.equal(second, first)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda images, generator: images[:, :1], "must return a tensor"),
        (lambda images, generator: None, "NoneType"),
        (lambda images, generator: images + 1, r"\[0, 1\]"),
    ],
)
def test_output_of_a_views_function_is_checked(seeded, make, message):
    with pytest.raises(InputError, match=message):
        OwnViews(make, 32, 3)(CANVAS, seeded())


def test_taking_turns(seeded):
    plain, turned = make_views("natural", crop_area=(1, 1)), make_views("natural", size=16)
    views = TakingTurns([plain, turned])
    assert [v.shape[-1] for v in views(CANVAS, seeded(), 3)] == [32, 16, 32]
    assert torch.equal(views(CANVAS, seeded(), 2)[0], plain(CANVAS, seeded(), 1)[0])
    assert torch.equal(views.plain(CANVAS), plain.plain(CANVAS))
    again = views_from_config(views.to_config())
    assert all(torch.equal(a, b) for a, b in zip(again(CANVAS, seeded()), views(CANVAS, seeded()), strict=True))
    assert len(views.describe()["taking_turns"]) == 2
    with pytest.raises(InputError, match="same number of channels"):
        TakingTurns([plain, make_views("digits", channels=1)])
    with pytest.raises(InputError, match="at least one"):
        TakingTurns([])
