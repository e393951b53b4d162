import pytest
from PIL import Image

from coulomb.tables import open_source
from coulomb.tables.sources.captions import find_captions


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b", "c"):
        Image.new("L", (4, 4)).save(tmp_path / f"{name}.png")
    return tmp_path


IMAGES = ["a.png", "b.png", "c.png"]


@pytest.mark.parametrize(
    ("name", "content", "image", "caption"),
    [
        ("metadata.csv", "file_name,label,text\na.png,1,x", "file_name", "text"),
        ("metadata.jsonl", '{"file_name": "a.png", "caption": "x"}', "file_name", "caption"),
        ("captions.txt", "image,caption\na.png,x", "image", "caption"),
        ("captions.txt", "a.png#0\tx, y", "image", "caption"),
        ("captions.txt", "a.png,x", "image", "caption"),
        ("results.csv", "image_name| comment_number| comment\na.png| 0| x", "image_name", "comment"),
        ("Flickr8k.token.txt", "a.png#0\tx", "image", "caption"),
        ("metadata.csv", "file_name,label\na.png,1", "file_name", None),
    ],
)
def test_tables_of_captions(folder, name, content, image, caption):
    (folder / name).write_text(content)
    found = find_captions(folder, IMAGES, [name])
    assert (found.table, found.image, found.caption) == (name, image, caption)
    notes = " ".join(open_source(folder).notes)
    assert (f"{name} has texts for the images" in notes and f"--columns image,{caption}." in notes) == (
        caption is not None
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [("captions.txt", "just a text"), ("metadata.csv", "a,b\n1,2"), ("metadata.jsonl", "{"), ("notes.txt", "a.png\tx")],
)
def test_other_tables_are_left_alone(folder, name, content):
    (folder / name).write_text(content)
    assert find_captions(folder, IMAGES, [name]) is None
    assert open_source(folder).notes == ("1 file without an image extension was skipped.",)


def test_text_files_beside_most_images(folder):
    assert find_captions(folder, IMAGES, ["a.txt"]) is None
    found = find_captions(folder, IMAGES, ["a.txt", "b.txt", "readme.txt"])
    assert found.beside == {"a.png": "a.txt", "b.png": "b.txt"}
    assert "2 of 3 images have a text file of the same name" in found.note(3)
    assert find_captions(folder, [], ["metadata.csv"]) is None
