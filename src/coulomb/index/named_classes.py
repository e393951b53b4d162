"""Classes from words, without labels: images are compared with the embeddings of the names of classes."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.text import visible
from coulomb.index.few_labels import UNVALIDATED, Predictions
from coulomb.metrics.rows import blocks, check_rows, unit_rows
from coulomb.metrics.zero_shot import class_prompts

PROMPTS = ("a photo of a {}",)  # where none is given

Names = str | Sequence[str] | Mapping[str, str | None]


def read_names(names: Names) -> dict[str, str | None]:
    """Returns the classes and, for those that have some, their own words.

    >>> read_names("cat, dog, neither=an empty room")
    {'cat': None, 'dog': None, 'neither': 'an empty room'}

    Args:
        names: names separated by commas, or a list of names; ``NAME=WORDS`` gives the words of a class, which then take the
            place of the prompts. Or a dict of them, None for the prompts.

    Raises:
        InputError: fewer than two names, a name that is empty or occurs twice, or empty words.
    """
    if isinstance(names, Mapping):
        pairs = [(str(name), words) for name, words in names.items()]
    else:
        given = names.split(",") if isinstance(names, str) else list(names)
        if wrong := [each for each in given if not isinstance(each, str)]:
            raise InputError(f"names: {wrong[0]!r} is a {type(wrong[0]).__name__}, not a name")
        pairs = [(name, words if equals else None) for name, equals, words in (each.partition("=") for each in given)]
    found: dict[str, str | None] = {}
    for name, words in ((name.strip(), words) for name, words in pairs):
        if not name or (words is not None and (not isinstance(words, str) or not words.strip())):
            raise InputError(f"names={visible(names)!r}: a name is empty, or has no words after '='; give 'cat,dog'")
        if name in found:
            raise InputError(f"names={visible(names)!r}: {visible(name)!r} is named twice; name each class once")
        found[name] = None if words is None else words.strip()
    if len(found) < 2:
        raise InputError(f"names={visible(names)!r}: must be two classes or more; add one, such as 'something else'")
    return found


def check_prompts(prompts: str | Sequence[str] | None) -> tuple[str, ...]:
    """Returns templates as a tuple, the usual one for None; raises `InputError` unless each has "{}"."""
    if prompts is None:
        return PROMPTS
    given = [prompts] if isinstance(prompts, str) else list(prompts)
    if wrong := [each for each in given if not isinstance(each, str) or "{}" not in each]:
        raise InputError(
            f"prompts={visible(wrong[0])!r}: has no {{}}, the place of the class name; give {PROMPTS[0]!r}"
        )
    if not given:
        raise InputError(f"prompts={given}: must be at least one, such as {PROMPTS[0]!r}")
    return tuple(given)


def texts_of(names: Mapping[str, str | None], prompts: Sequence[str]) -> list[str]:
    """Returns the texts of all classes, ``len(prompts)`` of each, in the order of `coulomb.metrics.class_prompts`."""
    return [
        text
        for name, words in names.items()
        for text in (class_prompts([name], prompts) if words is None else [words] * len(prompts))
    ]


def classify_by_words(x: np.ndarray, classes: Tensor, temperature: float) -> Predictions:
    """Returns the probabilities of classes for images: softmax over the classes of cosine / temperature.

    The temperature is the one of the run's loss, so that p is what the loss would predict if the images' captions were exactly
    these texts. Nothing is held out, so that accuracies are None; a margin below 0.5 counts as unsure.

    Args:
        x: features of images [N, D]; a memory-mapped array is read in blocks.
        classes: an embedding per class, float32 [C, D] of length 1, see `coulomb.metrics.class_embeddings`.
        temperature: above 0.
    """
    check_rows(x)
    if len(x) and x.shape[1] != classes.shape[1]:
        raise InputError(f"{classes.shape[1]} features of words and {x.shape[1]} of images: must be of one run.")
    probabilities = np.empty((len(x), len(classes)), np.float32)
    for block in blocks(len(x)):
        logits = unit_rows(x, block).double() @ classes.double().T / temperature
        probabilities[block] = torch.softmax(logits, 1).float().numpy()
    return Predictions(np.arange(len(classes)), probabilities, UNVALIDATED, None, None, None, C=None)
