"""Planted near-copies in a folder of a few pictures."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import near_copies
from curation_cases import photo


def test_each_kind_is_counted(tmp_path, run):
    rows = []
    for seed in range(11):
        file = io.BytesIO()
        photo(seed, 160, 120).save(file, "PNG")
        rows.append({"bytes": file.getvalue(), "path": None})
    pq.write_table(pa.table({"image": rows}), tmp_path / "photos.parquet")
    code, said = run(near_copies, tmp_path / "photos.parquet", "--photos", 11, "--copies", 1)
    assert code == 0, said.err
    lines = said.out.splitlines()
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert first[0].startswith("22 images, without the second look") and "with the second look" in second[0]
    assert all(" of 1, " in line for line in [*first[1:-1], *second[1:-1]])
    found = [{line.split(" found")[0].strip(): "found   1" in line for line in part[1:-1]} for part in (first, second)]
    assert found[0]["PNG"] and found[1]["PNG"]
    assert [each["5% cropped on each side"] for each in found] == [False, True]
