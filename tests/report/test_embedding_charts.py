"""Charts of the embeddings."""

from pathlib import Path

import numpy as np
import pytest

from coulomb.report.collect import RunData
from coulomb.report.embedding_charts import MAX_EPOCHS, plane_chart, similarity_section, trajectory


def test_the_way_leads_from_the_first_epoch_to_the_last():
    run = RunData(Path("x"), measures=[{"epoch": e, "uniformity": -e, "alignment": 1.0 - 0.1 * e} for e in range(5)])
    run.measures.insert(2, {"epoch": 1.5, "uniformity": None, "alignment": 0.3})
    way = trajectory(run)
    assert [text.split(":")[0] for text in way.texts] == [f"epoch {e}" for e in range(5)]
    chart = plane_chart([way])
    assert chart.kind == "path"
    assert chart.readout[0]["x"] == [100, 75, 50, 25, 0]  # less uniform to the right
    assert chart.readout[0]["y"] == sorted(chart.readout[0]["y"])  # better aligned downwards
    assert chart.readout[0]["text"][-1] == "epoch 4: uniformity −4.00, alignment 0.600"


def test_many_epochs_become_few_dots_and_the_last_stays():
    run = RunData(Path("x"), measures=[{"epoch": e, "uniformity": -e / 100, "alignment": 0.5} for e in range(1000)])
    chart = plane_chart([trajectory(run, "a", "k0"), trajectory(RunData(Path("y")), "empty", "k1")])
    assert len(chart.curves) == 1
    assert len(chart.readout[0]["x"]) <= 61
    assert "epoch 999" in chart.readout[0]["text"][-1]


def test_nothing_measured_is_nothing_drawn():
    assert plane_chart([trajectory(RunData(Path("x")))]) is None


def line(epoch, **changes):
    counts = {"positive": [0] * 39 + [8], "negative": [2] * 4 + [0] * 36, "hardest": [0] * 20 + [1] + [0] * 19}
    return {"epoch": epoch, "similarity_histogram": {"edges": np.linspace(-1, 1, 41).tolist(), **counts} | changes}


def section(*lines):
    return similarity_section(RunData(Path("x"), measures=list(lines)))


def test_areas_stand_where_the_similarities_are():
    found = section(line(3, same_class=None))
    assert list(found.groups) == ["negative", "hardest", "positive"]
    negative, _, positive = found.snapshots[0].paths
    assert positive == "M975 1000V0H1000V1000Z"  # all of them in the last bin
    assert negative == "M0 1000V750H25V750H50V750H75V750H100V1000Z"  # a quarter in each of four


def test_many_epochs_are_thinned_and_the_last_is_the_last():
    found = section(*(line(epoch) for epoch in range(200)))
    assert len(found.snapshots) == MAX_EPOCHS
    assert (found.snapshots[0].epoch, found.snapshots[-1].epoch) == ("0", "199")


@pytest.mark.parametrize(
    "changes",
    [
        {"edges": None},
        {"edges": [0, 1]},
        {"positive": ["a"], "negative": [1], "hardest": None},
        {"positive": [-1] * 40, "negative": [float("nan")] * 40, "hardest": [0] * 40},
    ],
)
def test_what_is_no_histogram_is_left_out(changes):
    assert section({"epoch": 1}, {"epoch": 2, "similarity_histogram": [1]}, line(3, **changes)) is None
