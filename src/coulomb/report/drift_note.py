"""How far training moved the features from the starting weights, as sentences."""

from typing import Any

from coulomb.ground.reading import finite


def drift_note(evaluation: dict[str, Any]) -> str:
    """Returns the figures under ``drift`` as sentences; '' for runs that did not start from weights."""
    figures = evaluation.get("drift")
    if not isinstance(figures, dict):
        return ""
    names = ("distance", "between", "cka", "recovered", "recovered_untrained")
    distance, between, cka, recovered, untrained = (finite(figures.get(name)) for name in names)
    sentences = []
    if distance is not None and between is not None:
        sentences.append(
            f"Training moved the features of an image by {distance:.2f} (1 − cosine); the starting weights place two "
            f"different images {between:.2f} apart."
        )
    if cka is not None:
        sentences.append(f"The linear CKA of both networks is {cka:.2f} (1: equal up to rotation, 0: unrelated).")
    if recovered is not None:
        than = "" if untrained is None else f", {untrained:.0%} from those of the untrained network"
        sentences.append(f"A linear map recovers {recovered:.0%} of the starting features from the trained ones{than}.")
    return " ".join(sentences)
