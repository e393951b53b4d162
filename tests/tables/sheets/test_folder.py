import csv
import io
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.tables.columns import open_columns

SHARED = Path(__file__).parents[4] / "shared" / "data"


def png(value):
    out = io.BytesIO()
    Image.new("RGB", (6, 4), (value, 0, 0)).save(out, "PNG")
    return out.getvalue()


# The second picture has two captions with a comma and a quotation mark, the third has the bytes of the first.
MADE = [
    ("a.png", png(1), ["a red cat"]),
    ("b.png", png(2), ['two, "big" dogs', "dogs"]),
    ("c.png", png(1), ["à table"]),
]


def write(folder, pictures, layout):
    """Writes pictures with their captions in a layout; returns the data and the name of the column of captions."""
    pairs = [(name, caption) for name, _, captions in pictures for caption in captions]
    folder.mkdir()
    inside = folder / "Images" if layout == "flickr" else folder
    inside.mkdir(exist_ok=True)
    for name, content, _ in pictures:
        (inside / name).write_bytes(content)
    if layout == "metadata.csv":
        with (folder / layout).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("file_name", "text"), *pairs])
        return folder, "text"
    if layout == "metadata.jsonl":
        rows = [json.dumps({"file_name": name, "text": captions}) for name, _, captions in pictures]
        (folder / layout).write_text("\n".join(rows), encoding="utf-8")
        return folder, "text"
    if layout == "metadata.parquet":
        pq.write_table(
            pa.table({"file_name": [n for n, _ in pairs], "caption": [c for _, c in pairs]}), folder / layout
        )
        return folder, "caption"
    if layout == "flickr":
        numbers = [
            f"{name}#{place}\t{caption}" for name, _, captions in pictures for place, caption in enumerate(captions)
        ]
        (folder / "captions.txt").write_text("\n".join(numbers) + "\n", encoding="utf-8")
        return folder, "caption"
    if layout == "captions.txt":
        with (folder / layout).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("image", "caption"), *pairs])
        return folder, "caption"
    if layout == "beside":
        for name, _, captions in pictures:
            (folder / name).with_suffix(".txt").write_text(captions[0], encoding="utf-8")
        return folder, "caption"
    if layout == "tar":
        with tarfile.open(folder / "x.tar", "w") as shard:
            for name, content, captions in pictures:
                for member, data in ((name, content), (f"{name[:-4]}.txt", captions[0].encode())):
                    info = tarfile.TarInfo(member)
                    info.size = len(data)
                    shard.addfile(info, io.BytesIO(data))
        return folder / "x.tar", "txt"
    rows = {
        "image": [{"bytes": content, "path": name} for name, content, _ in pictures],
        "caption": [captions for _, _, captions in pictures],
    }
    pq.write_table(pa.table(rows), folder / "pairs.parquet")
    return folder / "pairs.parquet", "caption"


LAYOUTS = ["metadata.csv", "metadata.jsonl", "metadata.parquet", "flickr", "captions.txt", "beside", "tar", "parquet"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_layouts_give_the_same_table(tmp_path, layout):
    single = layout in ("beside", "tar")
    pictures = [(name, content, captions[:1]) for name, content, captions in MADE] if single else MADE
    data, caption = write(tmp_path / "data", pictures, layout)
    table = open_columns(data, f"image,{caption}")
    texts = ["a red cat", 'two, "big" dogs', "dogs", "à table"]
    assert list(table.columns[caption]) == ([texts[0], texts[1], texts[3]] if single else texts)
    assert table.cell_ids("image").tolist() == ([0, 1, 0] if single else [0, 1, 1, 0])
    reds = [int(table.columns["image"].image(row)[0, 0, 0]) for row in range(len(table))]
    assert reds == ([1, 2, 1] if single else [1, 2, 2, 1])
    assert len({table.item_id(row) for row in range(len(table))}) == len(table)
    assert not [note for note in table.notes if "skipped" in note or "missing" in note]


@pytest.mark.skipif(not (SHARED / "stamps.parquet").exists(), reason="needs stamps.parquet in ../shared/data")
@pytest.mark.parametrize("layout", LAYOUTS[:-1])
def test_stamps_written_out_are_the_same_table(tmp_path, layout):
    rows = pq.read_table(SHARED / "stamps.parquet", columns=["image", "en"]).slice(0, 120).to_pylist()
    pictures = [(f"{number:03}.jpg", row["image"]["bytes"], [row["en"]]) for number, row in enumerate(rows)]
    original = open_columns(SHARED / "stamps.parquet", "image,en")
    data, caption = write(tmp_path / "data", pictures, layout)
    table = open_columns(data, ["image", caption])
    assert list(table.columns[caption]) == list(original.columns["en"][:120])
    assert table.cell_ids("image").tolist() == original.cell_ids("image")[:120].tolist()
    assert table.cell_ids(caption).tolist() == original.cell_ids("en")[:120].tolist()


def test_missing_captions_and_files_are_counted(tmp_path):
    folder, _ = write(tmp_path / "data", MADE, "captions.txt")
    (folder / "captions.txt").write_text("image,caption\na.png,one\nnone.png,two\nb.png,\n,three\n")
    (folder / "notes.md").write_text("x")
    table = open_columns(folder, "image,caption")
    notes = " ".join(table.notes)
    assert list(table.columns["caption"]) == ["one"] and "1 image of the folder is not in captions.txt" in notes
    assert (
        "image: missing or empty in 1 row (row 3)" in notes
        and "image: its file does not exist in 1 row (none.png)" in notes
    )
    assert "caption: missing or empty in 1 row (row 2)" in notes and "3 rows of 4 are left out" in notes
    assert "1 file without an image extension was skipped" in notes

    folder, _ = write(tmp_path / "other", MADE, "beside")
    (folder / "a.txt").unlink()
    table = open_columns(folder, "image,caption")
    assert len(table) == 2 and "caption: missing or empty in 1 row (row 0)" in " ".join(table.notes)
    (folder / "b.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match=r"b.txt: not UTF-8 \(byte 0xe9"):
        open_columns(folder, "image,caption")


def test_paths_cannot_leave_the_folder(tmp_path):
    folder, _ = write(tmp_path / "data", MADE, "captions.txt")
    (folder / "captions.txt").write_text("image,caption\na.png,one\n../secret.png,two\n")
    with pytest.raises(InputError, match="leads outside"):
        open_columns(folder, "image,caption")


def test_a_folder_without_captions(tmp_path):
    write(tmp_path / "data", [(name, content, []) for name, content, _ in MADE], "none")
    (tmp_path / "data" / "pairs.parquet").unlink()
    assert open_columns(tmp_path / "data", "image").kinds == {"image": "image"}
    with pytest.raises(InputError, match="there is only image.*No captions: neither metadata.csv"):
        open_columns(tmp_path / "data", "image,caption")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="neither images nor tables"):
        open_columns(tmp_path / "empty", "image,caption")
