"""A temperature to try, from the measured curve of how the push gathers on the hardest negatives."""

from typing import Any

from coulomb.doctor.evidence import Evidence


def suggest_temperature(evidence: Evidence, verdicts: set[str]) -> dict[str, Any] | None:
    """``{"value", "why"}`` where the temperature is sick and the curve has an answer; else None.

    The curve is ``network["sweep"]``, `coulomb.diagnostics.temperature_sweep` of trained embeddings, nothing retrained; its
    rule picks the τ at which the hardest tenth of the negatives carries half of the push. Embeddings follow the temperature
    they are trained at, so this is where to go next, not where to end.
    """
    if not verdicts & {"temperature-too-low", "temperature-too-high"}:
        return None
    sweep = evidence.network.get("sweep") or {}
    value, now = sweep.get("suggestion"), float(evidence.config["temperature"])
    if value is None or (value < now) != ("temperature-too-high" in verdicts):
        return None  # no answer, or embeddings so shaped by their temperature that it points the wrong way
    return {
        "value": value,
        "why": f"on the embeddings of this run it is {sweep['why']}; {now:g} is far from that. Embeddings change with their "
        "temperature: look again after training.",
    }
