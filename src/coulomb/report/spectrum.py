"""The spectrum of the embeddings: singular values against the largest, before and after training."""

from coulomb.report.chart import Chart, Series, lines_chart
from coulomb.report.collect import Run, finite
from coulomb.report.wording import position

LEAST = 1e-4  # smaller values are noise of the arithmetic


def spectrum_chart(run: Run) -> Chart | None:
    """Of the first and the last epoch that recorded one; None where none did."""
    found = [(line, values) for line in run.measures if (values := spectrum_of(line))]
    if not found:
        return None
    ends = [found[0], found[-1]] if len(found) > 1 else [found[-1]]
    chart = lines_chart(
        [
            Series(f"epoch {position(finite(line.get('epoch')))}", values, style)
            for (line, values), style in zip(ends, ["random_init", "trained"][-len(ends) :], strict=True)
        ],
        title="Spectrum of the embeddings",
        x_label="direction, the widest first",
        y_label="singular value, the largest = 1",
        limits=(LEAST, 1.0),
        log_y=True,
        x_name="direction",
    )
    if chart is not None:
        chart.note = (
            "A steep fall means that few directions carry everything (dimensional collapse); flat: all are used."
        )
    return chart


def spectrum_of(line: dict) -> list[tuple[float, float]]:
    """(1, σ₁/σ₁), (2, σ₂/σ₁), … as far as they are numbers."""
    values = line.get("spectrum")
    if not isinstance(values, list):
        return []
    numbers = [(i + 1, number) for i, value in enumerate(values) if (number := finite(value)) is not None]
    return [(float(i), max(LEAST, number)) for i, number in numbers]
