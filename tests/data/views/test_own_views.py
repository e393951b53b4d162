import pytest
import torch

from coulomb.data.views import OwnViews, TakingTurns, make_views, views_from_config
from coulomb.errors import InputError

CANVAS = torch.rand(4, 3, 40, 40)


def test_a_function_of_your_own(seeded):
    views = OwnViews(lambda images, generator: images * torch.rand(1, generator=generator), size=32, channels=3)
    first, second = views(CANVAS, seeded(), 2)
    assert first.shape == (4, 3, 32, 32) and not torch.equal(first, second)
    assert torch.equal(first, views(CANVAS, seeded(), 1)[0])
    assert "lambda" in views.describe()["own"]
    with pytest.raises(InputError, match="pass it in again"):
        views_from_config(views.to_config())


def test_a_function_may_write_into_its_argument(seeded):
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
def test_what_it_returns_is_checked(seeded, make, message):
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
