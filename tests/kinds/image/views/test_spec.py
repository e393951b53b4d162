import itertools
import json

import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.kinds.image.views import PRESETS, ViewSpec, make_views


def test_names():
    assert set(PRESETS) == {"natural", "small-natural", "digits", "documents", "single-channel", "captioned"}
    assert PRESETS["documents"]() == PRESETS["digits"]()


def test_simclr_strengths():
    natural, small = PRESETS["natural"](), PRESETS["small-natural"]()
    assert (natural.jitter, natural.brightness, natural.contrast, natural.saturation, natural.hue) == (
        0.8,
        0.8,
        0.8,
        0.8,
        0.2,
    )
    assert (small.brightness, small.contrast, small.saturation, small.hue, small.blur) == (0.4, 0.4, 0.4, 0.1, 0.0)
    assert natural.gray == small.gray == 0.2 and natural.blur == 0.5 and natural.blur_sigma == (0.1, 2.0)


def test_digits_are_never_mirrored(seeded):
    """The stroke of an L is left of the middle in every view."""
    letter = torch.zeros(1, 1, 32, 32)
    letter[:, :, 6:26, 9:13] = 1
    letter[:, :, 22:26, 9:23] = 1
    at = torch.arange(32.0)
    for view in make_views("digits", channels=1, noise=0, jitter=0, blur=0, cutout=0)(
        letter.expand(500, -1, -1, -1), seeded(), n=2
    ):
        upper = view[:, 0, :20]
        mass = upper.sum((1, 2))
        stroke = (upper.sum(1) * at).sum(1) / mass
        whole = (view[:, 0].sum(1) * at).sum(1) / view[:, 0].sum((1, 2))
        seen = mass > 5
        assert seen.float().mean() > 0.99
        assert ((stroke < whole + 1.5)[seen]).float().mean() > 0.99


def test_overrides_and_own_specifications():
    assert make_views("natural", crop_area=(0.5, 1)).spec.crop_area == (0.5, 1)
    views = make_views(ViewSpec(flip=1.0), size=8, channels=2, blur=0.1)
    assert (views.spec.flip, views.spec.blur, views.preset) == (1.0, 0.1, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cats",), "unknown views preset 'cats'; the presets are natural, small-natural"),
        ((3,), "preset=3"),
    ],
)
def test_unknown_presets_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        make_views(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blurr": 1}, "'blurr'; did you mean 'blur'"),
        ({"exposure": 1}, "'exposure'; the options are side, crop_area"),
        ({"blur": 1.5}, "blur=1.5: must be at least 0 and at most 1"),
        ({"blur": "often"}, "blur='often'"),
        ({"flip": True}, "flip=True"),
        ({"hue": 0.6}, "hue=0.6"),
        ({"rotate": float("nan")}, "rotate=nan"),
        ({"crop_area": (0.5, 0.2)}, "lower limit is above"),
        ({"crop_area": (0.0, 1.0)}, "crop_area=0.0"),
        ({"crop_area": 0.5}, "must be a pair"),
        ({"padding": "wrap"}, "padding='wrap': must be one of reflection, border, zeros"),
        ({"hue_model": "hvs"}, "hue_model='hvs': must be one of hsv, linear; did you mean 'hsv'"),
        ({"elastic_grid": 4.5}, "elastic_grid=4.5: expected int"),
        ({"channels": 1, "gray": 0.2}, "gray=0.2 needs three channels"),
    ],
)
def test_errors_for_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        make_views("natural", **options)


def test_description_lists_all_operations_and_those_left_out():
    described = json.loads(json.dumps(make_views("natural", size=64).describe()))
    assert [row["operation"] for row in described["operations"]] == ["crop", "flip", "jitter", "gray", "blur"]
    blur = described["operations"][-1]
    assert blur["probability"] == 0.5
    assert blur["parameters"] == {
        "sigma": {"range": [0.1, 2.0], "unit": "pixels"},
        "kernel": {"range": 7, "unit": "pixels"},
    }
    assert described["left_out"] == []
    gray = make_views("natural", channels=1).describe()
    assert [row["operation"] for row in gray["left_out"]] == ["saturation", "hue", "gray"]
    assert "three channels" in gray["left_out"][0]["reason"]
    jitter = next(row for row in gray["operations"] if row["operation"] == "jitter")
    assert set(jitter["parameters"]) == {"brightness", "contrast"}


def test_every_field_of_the_specification_is_documented():
    """Every field is followed by a docstring."""
    import ast
    import inspect
    from dataclasses import fields

    body = ast.parse(inspect.getsource(ViewSpec)).body[0].body
    documented = {
        a.target.id
        for a, b in itertools.pairwise(body)
        if isinstance(a, ast.AnnAssign) and isinstance(b, ast.Expr) and isinstance(b.value, ast.Constant)
    }
    assert documented == {field.name for field in fields(ViewSpec)}
