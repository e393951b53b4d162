"""All metrics of features with labels, and their protocol."""

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.class_accuracy import FEW_BELOW, MANY_ABOVE, by_frequency, class_table, confusions, frequency_group
from coulomb.metrics.clustering import clustering
from coulomb.metrics.inputs import Features, Labels, labeled_split
from coulomb.metrics.knn import knn_predict
from coulomb.metrics.linear import few_shot, probe
from coulomb.metrics.retrieval import class_retrieval

MEASUREMENTS = 5  # kNN, linear probe, few-shot, retrieval, clustering


def evaluate_features(
    train_x: Features,
    train_y: Labels,
    test_x: Features,
    test_y: Labels,
    *,
    k: int = 200,
    sigma: float = 0.1,
    seed: int = 0,
    shots: Sequence[int] = (1, 5, 10),
    draws: int = 20,
    many_above: int = MANY_ABOVE,
    few_below: int = FEW_BELOW,
    class_names: Sequence[str] | None = None,
    classifier: Callable[[Tensor], Tensor] | None = None,
    correct: MutableMapping[str, np.ndarray] | None = None,
    doing: Callable[[str], None] = lambda measurement: None,
) -> dict[str, Any]:
    """Weighted kNN, linear probe, few-shot, retrieval and clustering of frozen features, as a dict for JSON.

    Args:
        train_x, test_x: features [n,F] before the head, or raw pixels.
        train_y, test_y: classes [n]; rows labeled −1 are left out and counted.
        k, sigma: see `knn_accuracy`. A ``k`` above the number of labeled training images is lowered to it; the
            protocol records both.
        seed, shots, draws: see `linear_probe` and `few_shot`.
        many_above, few_below: thresholds in training images per class, see `by_frequency`.
        class_names: names for the table of classes.
        classifier: test features [n,F] → classes [n], a classifier trained with the encoder; its accuracy is reported
            as "classifier".
        correct: filled with the test images that are classified correctly, for `compare`: ``knn`` and ``linear`` →
            bool [n], ``few_shot_k`` → bool [draws, n]; left empty if there is a single class.
        doing: called with the name of each of the 5 measurements before it begins.

    Returns:
        ``{"knn": float, "linear": float, "few_shot": {"1": {"mean", "std"}, ...}, "retrieval": {"recall_at",
        "map_at_r", "r_precision"}, "clustering": {"nmi", "ari", "accuracy"}, "by_frequency": {"many", "medium", "few"},
        "per_class": [...], "protocol": {...}}``. A metric that cannot be measured (with a single class, for example) is
        None, and the protocol states the reason. ``per_class`` has the rows of `class_table` with ``taken_for``, the classes
        that kNN predicts, and ``frequency``, the group of `by_frequency`.

    Raises:
        InputError: no labels, shapes that do not match, features that are not finite, an option out of range.

    Shape:
        train_x: [n, F].
        train_y: [n].
        test_x: [m, F].
        test_y: [m].

    >>> x, y = torch.eye(2).repeat(20, 1), torch.tensor([0, 1] * 20)
    >>> results = evaluate_features(x, y, x, y, k=5, shots=(1,), draws=2)
    >>> results["knn"], results["linear"], results["few_shot"]["1"]["mean"]
    (1.0, 1.0, 1.0)
    """
    train, test = labeled_split(train_x, train_y, test_x, test_y)
    classes = train.y.unique()
    used_k = min(k, len(train.y))
    doing("kNN")
    predicted = {"knn": knn_predict(train, test, used_k, sigma)}
    protocol: dict[str, Any] = {
        "train": len(train.y),
        "test": len(test.y),
        "train_unlabeled": train.unlabeled,
        "test_unlabeled": test.unlabeled,
        "classes": len(classes),
        "test_of_classes_not_in_train": int((~torch.isin(test.y, classes)).sum()),
        "features": train.x.shape[1],
        "seed": seed,
        "knn": {
            "k": used_k,
            "k_asked": k,
            "sigma": sigma,
            "similarity": "cosine",
            "weights": "exp(cosine / sigma)",
            "search": "torch",
        },
    }
    few = None
    if len(classes) < 2:
        reason = "not measured: the training images have one class only"
        protocol |= {"linear": reason, "few_shot": reason}
    else:
        doing("linear probe")
        predicted["linear"], protocol["linear"] = probe(train, test, seed)
        if correct is not None:
            correct.update({name: (guess == test.y).numpy() for name, guess in predicted.items()})
        doing("few-shot")
        shot = few_shot(train.x, train.y, test.x, test.y, shots=shots, draws=draws, seed=seed, correct=correct)
        few, protocol["few_shot"] = shot["shots"], shot["protocol"]
    if classifier is not None:
        predicted["classifier"] = classifier(test.x).cpu()
    result: dict[str, Any] = {"knn": None, "linear": None}
    result |= {name: float((guess == test.y).double().mean()) for name, guess in predicted.items()}
    result["few_shot"] = few
    for name, metric in (("retrieval", class_retrieval), ("clustering", clustering)):
        doing(name)
        result[name], protocol[name] = _figures_or_reason(metric, test.x, test.y, seed)
    table = class_table(train.y, test.y, predicted, class_names)
    result |= {"by_frequency": by_frequency(table, many_above, few_below), "per_class": table}
    taken_for = confusions(test.y, predicted["knn"])
    for row in table:
        row["taken_for"] = taken_for.get(row["label"], {})
        row["frequency"] = frequency_group(row["train"], many_above, few_below)
    protocol["by_frequency"] = {
        "many": f"classes with more than {many_above} training images",
        "few": f"classes with fewer than {few_below}",
        "accuracy": "mean over the classes of a group",
    }
    return result | {"protocol": protocol}


def _figures_or_reason(
    metric: Callable[..., dict[str, Any]], x: Tensor, y: Tensor, seed: int
) -> tuple[dict[str, Any] | None, dict[str, Any] | str]:
    """Returns the figures and their protocol, or None and the reason why they cannot be measured."""
    try:
        figures = metric(x, y, seed=seed)
    except InputError as error:
        return None, f"not measured: {error}"
    return {name: value for name, value in figures.items() if name != "protocol"}, figures["protocol"]
