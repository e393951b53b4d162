from pathlib import Path

from coulomb.report.collect import Run
from coulomb.report.embedding_charts import Trajectory, plane_chart, trajectory


def test_the_way_leads_from_the_first_epoch_to_the_last():
    run = Run(Path("x"), measures=[{"epoch": e, "uniformity": -e, "alignment": 1.0 - 0.1 * e} for e in range(5)])
    run.measures.insert(2, {"epoch": 1.5, "uniformity": None, "alignment": 0.3})
    way = trajectory(run)
    assert [epoch for epoch, *_ in way.points] == [0, 1, 2, 3, 4]
    chart = plane_chart([way])
    assert chart.kind == "plane"
    assert chart.readout[0]["x"] == [100, 75, 50, 25, 0]  # less uniform to the right
    assert chart.readout[0]["y"] == sorted(chart.readout[0]["y"])  # better aligned downwards
    assert chart.readout[0]["text"][-1] == "epoch 4: uniformity −4.00, alignment 0.600"


def test_many_epochs_become_few_dots_and_the_last_stays():
    points = [(float(e), -e / 100, 0.5) for e in range(1000)]
    chart = plane_chart([Trajectory("a", points, "k0"), Trajectory("empty", [], "k1")])
    assert len(chart.curves) == 1
    assert len(chart.readout[0]["x"]) <= 61
    assert "epoch 999" in chart.readout[0]["text"][-1]


def test_nothing_measured_is_nothing_drawn():
    assert plane_chart([Trajectory("", [], "k0")]) is None
