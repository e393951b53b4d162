import io
import json
import tarfile

import pytest
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.tables.columns import open_columns


def write(path, samples):
    with tarfile.open(path, "w") as shard:
        for stem, members in samples.items():
            for extension, content in members.items():
                info = tarfile.TarInfo(f"{stem}.{extension}")
                info.size = len(content)
                shard.addfile(info, io.BytesIO(content))
    return path


def png(value):
    out = io.BytesIO()
    Image.new("L", (4, 4), value).save(out, "PNG")
    return out.getvalue()


def test_texts_and_keys_are_columns(tmp_path):
    long = "long " * 500
    first = {
        "0": {"png": png(1), "txt": b"a cat", "json": json.dumps({"alt": "cat", "width": 4}).encode()},
        "1": {"png": png(2), "txt": long.encode(), "json": json.dumps({"alt": "dog", "width": 5}).encode()},
    }
    write(tmp_path / "train-0.tar", first)
    write(tmp_path / "train-1.tar", {"2": {"png": png(1), "json": json.dumps({"alt": "cat"}).encode()}})
    table = open_columns(tmp_path, "image,alt")
    assert list(table.columns["alt"]) == ["cat", "dog", "cat"] and table.cell_ids("image").tolist() == [0, 1, 0]
    assert table.item_id(2) == "train-1.tar/2.png" and table.other_columns()["width"] == [4, 5, None]
    assert table.blocks is not None
    table = open_columns(tmp_path / "train-{0..1}.tar", "image,txt")
    assert list(table.columns["txt"]) == ["a cat", long.strip()] and "txt: missing or empty in 1 row" in " ".join(
        table.notes
    )
    with pytest.raises(InputError, match="there are image, txt, alt, width"):
        open_columns(tmp_path, "image,caption")
