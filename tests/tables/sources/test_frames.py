"""Data frames, series and loaders are taken as they are."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

from coulomb.ground.errors import InputError
from coulomb.tables import CorruptImage, open_columns, open_source
from coulomb.tables.sources import open_images

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
LABELS = ["cat", "dog", "cat", "dog", "bird", "cat"]
CLASSES = ["bird", "cat", "dog"]


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def frame(library, columns):
    if library == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    if library == "polars lazy":
        return pytest.importorskip("polars").LazyFrame(columns)
    return pd.DataFrame(columns, index=list("uvwxyz")) if library == "pandas" else pa.table(columns)


@pytest.fixture
def paths(tmp_path):
    for number, pixels in enumerate(PIXELS):
        (tmp_path / f"{number}.png").write_bytes(png(pixels))
    return [str(tmp_path / f"{number}.png") for number in range(len(PIXELS))]


def same(source):
    assert source.class_names == CLASSES and [CLASSES[label] for label in source.labels] == LABELS
    for number, pixels in enumerate(PIXELS):
        np.testing.assert_array_equal(source.image(number), pixels)


@pytest.mark.parametrize("library", ["pandas", "polars", "polars lazy", "arrow"])
def test_paths_and_bytes(paths, library):
    same(found := open_source(frame(library, {"path": paths, "label": LABELS, "place": list("aabbcc")})))
    assert found.other_columns() == {"place": list("aabbcc")} and found.item_id(2) == "2.png"
    same(found := open_source(frame(library, {"image": [*map(png, PIXELS)], "label": LABELS})))
    assert found.item_id(2) == "2" and found.header(0).width == 9
    structs = [{"bytes": png(pixels), "path": None} for pixels in PIXELS]
    same(open_source(frame(library, {"breed": LABELS, "image": structs}), labels="breed"))


def test_pictures_and_arrays_in_a_frame_of_pandas():
    same(open_source(pd.DataFrame({"image": [Image.fromarray(each) for each in PIXELS], "label": LABELS})))
    same(open_source(pd.DataFrame({"image": list(PIXELS), "label": LABELS})))


def test_bands_of_encoded_images_keep_their_values():
    stored = np.arange(48, dtype=np.uint16).reshape(6, 8) * 1000
    buffer = io.BytesIO()
    Image.fromarray(stored).save(buffer, "TIFF")
    source = open_source(pd.DataFrame({"image": [buffer.getvalue(), stored]}))
    assert all(np.array_equal(source.bands(row)[..., 0], stored) for row in range(2))


def test_relative_paths_are_of_the_current_folder_or_of_root(paths, tmp_path, monkeypatch):
    named = pd.DataFrame({"file": [f"{number}.png" for number in range(6)], "label": LABELS})
    same(open_source(named, root=tmp_path))
    with pytest.raises(InputError, match=r"none of the first 6 files exists, e\.g\. .*0\.png.*root="):
        open_source(named)
    monkeypatch.chdir(tmp_path)
    same(open_source(named))
    with pytest.raises(InputError, match=r"row 1, \.\./0\.png, leads outside"):
        open_source(pd.DataFrame({"file": ["../0.png"]}))


def test_missing_and_wrong_cells():
    source = open_source(pd.DataFrame({"image": [png(PIXELS[0]), None], "label": ["cat", None]}))
    assert source.labels.tolist() == [0, -1]
    with pytest.raises(CorruptImage, match="no image in the column 'image'"):
        source.image(1)
    with pytest.raises(InputError, match=r"no column of images among.*picture_of"):
        open_source(pd.DataFrame({"picture_of": ["x"]}))
    with pytest.raises(InputError, match="no label column 'breed'"):
        open_source(pd.DataFrame({"image": [png(PIXELS[0])]}), labels="breed")


def test_series_of_images(paths):
    for made in (pd.Series(paths), pd.Series([Image.fromarray(each) for each in PIXELS])):
        np.testing.assert_array_equal(open_images(made).image(3), PIXELS[3])
    np.testing.assert_array_equal(open_images(pytest.importorskip("polars").Series(paths)).image(3), PIXELS[3])


def test_columns_of_polars(paths):
    polars = pytest.importorskip("polars")
    made = {"image": paths, "caption": [f"a picture of a {label}" for label in LABELS], "v": [[1.0, 2.0]] * 6}
    for given in (polars.DataFrame(made), polars.LazyFrame(made)):
        table = open_columns(given, "image,caption,v")
        assert table.columns["caption"][2] == "a picture of a cat" and table.columns["v"].shape == (6, 2)
        np.testing.assert_array_equal(table.columns["image"].image(3), PIXELS[3])


IMAGES = TensorDataset(torch.from_numpy(PIXELS).permute(0, 3, 1, 2), torch.tensor([1, 2, 1, 2, 0, 1]))


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_data_set_of_a_loader(shuffle):
    source = open_source(DataLoader(IMAGES, batch_size=4, shuffle=shuffle))
    assert source.labels.tolist() == [1, 2, 1, 2, 0, 1]
    np.testing.assert_array_equal(source.image(5), PIXELS[5])


class Stream(IterableDataset):
    def __iter__(self):
        return iter(IMAGES)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (DataLoader(IMAGES, sampler=SubsetRandomSampler([0, 1])), "SubsetRandomSampler.*Subset"),
        (DataLoader(IMAGES, sampler=WeightedRandomSampler([1.0] * 6, 6)), "WeightedRandomSampler.*option sampler"),
        (DataLoader(IMAGES, batch_sampler=[[0], [1]]), "DataLoader with list"),
        (DataLoader(Stream()), "DataLoader of Stream"),
    ],
    ids=["subset", "weighted", "batches", "stream"],
)
def test_a_loader_whose_choice_would_be_lost_is_refused(loader, message):
    with pytest.raises(InputError, match=message):
        open_source(loader)


def test_a_streamed_data_set_is_refused():
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_dict({"image": [1]}).to_iterable_dataset()
    with pytest.raises(InputError, match=r"IterableDataset: a streamed data set.*streaming=True"):
        open_source(stream)
