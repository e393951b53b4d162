import pickle

import numpy as np
import pyarrow as pa
import pytest

from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables import ArraySource
from coulomb.tables.pictures import EncodedBytes, PictureRows


def test_rows_share_images():
    source = ArraySource(np.arange(3, dtype=np.uint8).repeat(8).reshape(3, 2, 4))
    rows = pickle.loads(pickle.dumps(PictureRows(source, np.array([2, 0, 2, 2]))))
    assert len(rows) == 4 and [int(rows.image(row)[0, 0, 0]) for row in range(4)] == [2, 0, 2, 2]
    assert rows.item_id(0) == rows.item_id(3) == "2" and rows.picture(1)[1] == 2.0
    assert rows.header(0).width == 4 and rows.content(0) == rows.content(2) != rows.content(1)
    assert rows.columns == {"image": rows} and rows.stamps() is None


def test_missing_bytes_are_corrupt():
    with pytest.raises(CorruptImage, match="empty"):
        EncodedBytes(pa.array([None], pa.binary()), "x").image(0)
