"""Zero-shot classification: images are compared with embeddings of the names of classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.metrics.inputs import Features, Labels, check_features, drop_unlabeled
from coulomb.metrics.matching import match_ranks
from coulomb.metrics.nearest import nearest_by_cosine


def class_prompts(names: Sequence[str], templates: Sequence[str] = ("{}",)) -> list[str]:
    """Returns the texts to embed: every template of the first class, then of the second, …; "{}" becomes the name.

    Raises:
        InputError: no name, no template, a template without "{}".

    >>> class_prompts(["cat", "dog"], ["a photo of a {}", "a drawing of a {}"])
    ['a photo of a cat', 'a drawing of a cat', 'a photo of a dog', 'a drawing of a dog']
    """
    if not names or not templates:
        raise InputError(f"names={list(names)}, templates={list(templates)}: at least one of each is needed.")
    for template in templates:
        if "{}" not in template:
            raise InputError(f"templates: {template!r} has no {{}}, the place of the class name.")
    return [template.replace("{}", name) for name in names for template in templates]


def class_embeddings(texts: Features, classes: int) -> Tensor:
    """Returns an embedding per class, float32 [C, D] of length 1: the mean over templates of unit embeddings.

    Averaging normalized embeddings, then normalizing, is the prompt ensemble of CLIP (Radford et al., 2021).

    Args:
        texts: embeddings [C·T, D] of the texts of `class_prompts`, in their order.
        classes: C.

    Raises:
        InputError: the number of texts is no multiple of ``classes``, embeddings that are not finite.

    Shape:
        texts: [C·T, D].
        output: [C, D].

    >>> class_embeddings(torch.tensor([[1.0, 0], [0, 1], [0, 2], [0, 3]]), classes=2)
    tensor([[0.7071, 0.7071],
            [0.0000, 1.0000]])
    """
    x = check_features(texts, "texts")
    if classes < 1 or not len(x) or len(x) % classes:
        raise InputError(f"classes={classes}: {len(x)} texts are not the same number of templates for each class.")
    means = functional.normalize(x, dim=1).view(classes, -1, x.shape[1]).mean(1)
    return functional.normalize(means, dim=1)


def zero_shot(
    features: Features, labels: Labels, class_features: Features, ks: Sequence[int] = (1, 5)
) -> dict[str, Any]:
    """Accuracy of the most similar class name by cosine, without training.

    Args:
        features: embeddings [n, D] of images, or of whatever is classified.
        labels: classes [n], 0 … C − 1; rows labeled −1 are left out and counted.
        class_features: an embedding per class [C, D] in the same space, see `class_embeddings`.
        ks: the values of k in top-k accuracy; a k of C or more is always right.

    Returns:
        ``{"top": {"1": …, "5": …}, "balanced_accuracy", "confusion", "chance": {"top": …, "balanced_accuracy"},
        "protocol"}``. ``balanced_accuracy`` is the mean over the classes that occur of their top-1 accuracy; ``confusion``
        [C][C] counts images of class i that are classified as j. Classes with equal cosines count against the image.

    Raises:
        InputError: no label, labels of C or more, shapes that do not match, a k below 1.

    Shape:
        features: [n, D].
        labels: [n].
        class_features: [C, D].

    >>> zero_shot(torch.eye(3), torch.tensor([0, 1, 1]), torch.eye(3), ks=(1,))["top"]["1"]
    0.66...
    """
    rows = drop_unlabeled(features, labels, "test")
    known = check_features(class_features, "class_features")
    count = len(known)
    if not ks or min(ks) < 1:
        raise InputError(f"ks={tuple(ks)}: must be at least 1.")
    if not len(rows.y) or int(rows.y.max()) >= count:
        what = "no label other than −1" if not len(rows.y) else f"class {int(rows.y.max())}"
        raise InputError(
            f"labels: {what}; they must be classes 0 to {count - 1}, of which class_features has one row each."
        )
    truth = rows.y.numpy()
    ranks = match_ranks(rows.x, known, (np.arange(len(truth)), truth))
    predicted = np.where(ranks == 1, truth, _nearest_wrong(rows.x, known, truth)) if count > 1 else truth
    confusion = np.zeros((count, count), np.int64)
    np.add.at(confusion, (truth, predicted), 1)
    totals = confusion.sum(1)
    occurring = totals > 0
    return {
        "top": {str(k): float((ranks <= k).mean()) for k in ks},
        "balanced_accuracy": float((np.diag(confusion)[occurring] / totals[occurring]).mean()),
        "confusion": confusion.tolist(),
        "chance": {"top": {str(k): min(1.0, k / count) for k in ks}, "balanced_accuracy": 1 / count},
        "protocol": {
            "test": len(truth),
            "test_unlabeled": rows.unlabeled,
            "classes": count,
            "classes_without_images": int((~occurring).sum()),
            "similarity": "cosine; ties count against the image",
        },
    }


def _nearest_wrong(x: Tensor, classes: Tensor, truth: np.ndarray) -> np.ndarray:
    """Returns the most similar class other than the true one."""
    nearest = torch.cat([columns for _, _, columns in nearest_by_cosine(x, classes, 2)]).numpy()
    return np.where(nearest[:, 0] == truth, nearest[:, 1], nearest[:, 0])
