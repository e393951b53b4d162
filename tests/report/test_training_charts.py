"""Charts of the training."""

from coulomb.report.collect import read_run
from coulomb.report.training_charts import knn_chart


def test_the_live_curve_says_how_the_final_accuracy_differs(run_folder):
    run = read_run(run_folder)
    assert "The final accuracy, on all images, is 98.1" in knn_chart(run).note.replace("\u2009", "")
    run.config["whitening"] = 0.5
    assert "The final accuracy of whitened features, on all images, is 98.1" in knn_chart(run).note
    run.evaluation.clear()
    assert "final" not in knn_chart(run).note
