import io
from pathlib import Path

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.kinds.image.views import TakingTurns, contact_sheet, make_views
from coulomb.kinds.image.views.describe import GAP, HEADER

REAL = Path(__file__).parents[5] / "shared" / "data" / "cifar10-jpeg-test.parquet"


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("size", [16, 32, 128])
def test_rows_and_columns(seeded, channels, size):
    canvas = torch.rand(3, channels, 40, 40)
    views = make_views("small-natural", size=size, channels=channels)
    sheet = np.asarray(contact_sheet(canvas, views, seeded(), n=4))
    tile = {16: 96, 32: 96, 128: 128}[size]
    assert sheet.shape == (HEADER + 3 * (tile + GAP), GAP + 5 * (tile + GAP) + GAP, 3)
    first = sheet[HEADER : HEADER + tile, GAP : GAP + tile]
    original = (views.plain(canvas)[0] * 255).round().byte()
    original = original[:3] if channels >= 3 else original[:1].expand(3, -1, -1)
    factor = tile // size
    assert np.array_equal(first[::factor, ::factor], original.permute(1, 2, 0).numpy())
    assert np.array_equal(first, first[::factor, ::factor].repeat(factor, 0).repeat(factor, 1))


def test_views_are_those_of_the_generator(seeded):
    canvas, views = torch.rand(2, 3, 32, 32), make_views("natural")
    sheet = np.asarray(contact_sheet(canvas, views, seeded(), n=2))
    second = views(canvas, seeded(), 2)[1][1]
    left = GAP + 2 * (96 + GAP) + GAP
    tile = sheet[HEADER + 96 + GAP : HEADER + 2 * 96 + GAP, left : left + 96][::3, ::3]
    assert np.array_equal(tile, (second * 255).round().byte().permute(1, 2, 0).numpy())


def test_views_of_several_sizes_are_refused(seeded):
    with pytest.raises(InputError, match="views of one size"):
        contact_sheet(torch.rand(1, 3, 32, 32), TakingTurns([make_views(size=32), make_views(size=16)]), seeded())


def test_views_of_photos_keep_their_subject(seeded):
    """Views of a photo are on average nearer to it than views of other photos."""
    if not REAL.exists():
        pytest.skip("needs the real images of ../shared/data")
    import pyarrow.parquet as pq
    from PIL import Image

    batch = next(pq.ParquetFile(REAL).iter_batches(batch_size=200, columns=["image"]))
    pictures = [np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in batch.column(0).to_pylist()]
    canvas = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)
    views = make_views("small-natural")
    first, second = (view.flatten(1) - view.flatten(1).mean(0) for view in views(canvas, seeded(), 2))
    similarity = torch.nn.functional.normalize(first) @ torch.nn.functional.normalize(second).T
    others = (similarity.sum() - similarity.trace()) / (200 * 199)
    assert similarity.diagonal().mean() > others + 0.3
    assert contact_sheet(canvas[:2], views, seeded(), n=2).size[0] > 0
