import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables import open_source


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    Image.new("L", (4, 4), 1).save(folder / "a.png")
    Image.new("L", (4, 4), 2).save(folder / "sub" / "b.png")
    Image.new("L", (4, 4), 3).save(tmp_path / "outside.png")
    return folder


def listed(folder, text, name="list.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_csv_with_and_without_labels(data):
    source = open_source(listed(data, "path,label\nsub/b.png,dog\na.png,\n"))
    assert [source.item_id(i) for i in range(2)] == ["sub/b.png", "a.png"]
    assert source.labels.tolist() == [0, -1]
    assert source.class_names == ["dog"]
    assert [int(source.image(i)[0, 0, 0]) for i in range(2)] == [2, 1]
    assert source.root == data.resolve()
    assert open_source(listed(data, "\ufefffilename\na.png\n")).labels is None  # with the byte order mark of Excel
    assert open_source(listed(data, "image\ttarget\na.png\t3\n", "l.tsv")).labels.tolist() == [3]


def test_label_column_by_name(data):
    path = listed(data, "path,label,breed\na.png,0,pug\n")
    assert open_source(path, labels="breed").class_names == ["pug"]
    with pytest.raises(InputError, match="no label column 'color'; there are path, label, breed"):
        open_source(path, labels="color")


def test_parquet_list(data):
    pq.write_table(pa.table({"file": ["a.png", "sub/b.png"], "class": [1, None]}), data / "list.parquet")
    source = open_source(data / "list.parquet")
    assert source.kind == "file list"
    assert source.labels.tolist() == [1, -1]


@pytest.mark.parametrize("path", ["../outside.png", "sub/../../outside.png", "ABSOLUTE", ".", "sub/.."])
def test_paths_cannot_lead_outside(data, path):
    value = str(data.parent / "outside.png") if path == "ABSOLUTE" else path
    with pytest.raises(InputError, match=r"row 2, .* leads outside the data folder .*root="):
        open_source(listed(data, f"path\na.png\n{value}\n"))


def test_root_of_a_file_list(data):
    path = listed(data, f"path\n../outside.png\n{data / 'a.png'}\n")
    with pytest.raises(InputError, match="leads outside"):
        open_source(path)
    inside = listed(data, f"path\noutside.png\n{data / 'a.png'}\n")
    source = open_source(inside, root=data.parent)
    assert [source.item_id(i) for i in range(2)] == ["outside.png", "data/a.png"]
    with pytest.raises(InputError, match="no such folder"):
        open_source(inside, root=data / "nowhere")


def test_link_out_of_the_folder_is_refused_when_read(data):
    (data / "link.png").symlink_to(data.parent / "outside.png")
    source = open_source(listed(data, "path\nlink.png\na.png\n"))
    with pytest.raises(CorruptImage, match="link leads outside"):
        source.image(0)
    assert np.asarray(source.image(1)).max() == 1


def test_missing_files(data):
    source = open_source(listed(data, "path\na.png\ngone.png\n"))
    with pytest.raises(CorruptImage, match="gone.png: no such file"):
        source.image(1)
    with pytest.raises(InputError, match="none of the first 2 files exists"):
        open_source(listed(data, "path\ngone.png\nalso.png\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path\n", "the list is empty"),
        ("", "no column of paths"),
        ("picture,label\na.png,1\n", "no column of paths among picture, label"),
        ("path,label\na.png\n", "line 2 has 1 fields and the header 2"),
        ("path,path\na.png,b\n", "appears twice"),
        ("path\nhttp://example.org/a.png\n", "is a URL"),
        ("path,label\na.png,1.5\n", "label 1.5 of image 0 is not an integer"),
        ("path,label\n,1\n", "row 1 has no usable path"),
        ("path,label\na.png,-7\n", "outside the range"),
    ],
)
def test_error_for_a_bad_list_is_one_line(data, text, message):
    with pytest.raises(InputError, match=message):
        open_source(listed(data, text))


def test_binary_list_is_refused(data):
    (data / "list.csv").write_bytes(b"\xff\xfe\x00garbage")
    with pytest.raises(InputError, match="not a CSV file in UTF-8"):
        open_source(data / "list.csv")
    (data / "list.parquet").write_bytes(b"garbage")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        open_source(data / "list.parquet")
