"""The experiments on pairs: gains over the same queries, and the rows of each setting of repeated captions."""

import numpy as np
import pyarrow
import pyarrow.parquet as pq
import pytest
import torch

from benchmarks.glosses import gains, topics_found
from benchmarks.repeated_captions import LANGUAGES, QUEUE, Keys, training_rows


def test_gains_are_paired():
    found = gains([1, 1, 5, 20], [2, 1, 5, 20])
    assert found["R@1"] == pytest.approx((0.25, 1.96 * 0.5 / 2)) and found["R@10"] == (0, 0)
    assert found["mrr"][0] == pytest.approx(0.5 / 4)


def test_topics_are_those_of_the_nearest_training_definitions(tmp_path):
    rows = {"train": (["a", "b", "c"] * 10, [4, 7, 9] * 10), "held_out": (["a", "b", "c", "a"], [4, 9, 9, 4])}
    task = {name: str(tmp_path / f"{name}.parquet") for name in rows}
    for name, (glosses, topics) in rows.items():
        pq.write_table(pyarrow.table({"gloss": glosses, "topic": topics}), task[name])
    right = topics_found(task, lambda texts: torch.eye(3)[["abc".index(text) for text in texts]])
    assert right.tolist() == [True, False, True, True]


def test_rows_of_each_setting():
    rows, ids = np.array([0, 2, 3]), np.array([5, 7, 5, 9])
    features = {name: torch.full((4, 3), value) for value, name in enumerate(("plain", "mirrored", "captions"), 1)}
    features |= {name: torch.full((4, 3), 10.0 + at) for at, name in enumerate(LANGUAGES)}
    features["de"][2] = float("nan")  # has no German caption
    mirrored = training_rows("mirrored", 0.4, 0, rows, features, ids)
    assert len(mirrored.pictures) == 4 and mirrored.mirrored is None
    assert mirrored.pictures[:, 0].tolist() == [1, 1, 1, 2] and mirrored.ids[:3].tolist() == [5, 5, 9]
    several = training_rows("languages", 0.0, 0, rows, features, ids)
    assert len(several.captions) == 3 * len(LANGUAGES) - 1 and not several.captions.isnan().any()
    assert np.bincount(several.ids)[[5, 9]].tolist() == [2 * len(LANGUAGES) - 1, len(LANGUAGES)]


def test_keys_are_those_of_the_last_batches():
    maps = torch.nn.Linear(3, 256), torch.nn.Linear(3, 256)
    past, x = Keys(maps), torch.randn(QUEUE - 1, 3)
    past.follow(maps, (x, x), torch.zeros(len(x), dtype=torch.int64))
    past.follow(maps, (x[:2], x[2:4]), torch.tensor([1, 2]))
    assert past.ids[-2:].tolist() == [1, 2] and len(past.ids) == len(past.keys[0]) == len(past.keys[1]) == QUEUE
    torch.testing.assert_close(past.keys[1][-2:], maps[1](x[2:4]))
