"""A trained classifier on the features of an encoder, saved next to the encoder."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically
from coulomb.ground.reading import RESTORE, Shape, check_shape, list_of, maybe, number, read_object, text, whole
from coulomb.models.heads import projection_head
from coulomb.models.saving import check_tensors, read_weights

WEIGHTS = "classifier.safetensors"
DESCRIPTION = "classifier.json"
FORMAT = 1
HEAD = {"layers": int, "hidden_dim": int, "batch_norm": bool, "last_batch_norm": bool, "last_scale": bool}


def _fits(name: str, value: Any) -> bool:
    return type(value) is HEAD.get(name) or (name == "hidden_dim" and value is None)


ENTRIES = {
    "classes": whole,
    "dim": whole,
    "class_names": maybe(list_of(text)),
    "head": Shape(
        f"null or the options of a projection head ({', '.join(HEAD)})",
        lambda head: head is None or (isinstance(head, dict) and all(_fits(*entry) for entry in head.items())),
    ),
    "cosine": Shape("true or false", lambda value: isinstance(value, bool)),
    "scale": number,
    "how": text,
}


class Classifier(nn.Module):
    """Maps features f [B, F] to logits [B, C]: W·head(f) + b, or scale·cos(W, head(f)) + b.

    Args:
        weight: W [C, D].
        bias: b [C], −∞ for classes that are never predicted; default 0.
        head: module [B, F] → [B, D]; by default features are used directly, and D = F.
        head_options: options of `projection_head` that make ``head`` again.
        cosine: normalize head(f) and W to unit length.
        scale: scale of the cosine.
        how: the training of the classifier, as text.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        head: nn.Module | None = None,
        head_options: dict[str, Any] | None = None,
        cosine: bool = False,
        scale: float = 1.0,
        how: str = "",
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone().float(), requires_grad=False)
        self.bias = nn.Parameter((weight.new_zeros(len(weight)) if bias is None else bias.detach().clone()).float())
        self.bias.requires_grad_(False)
        self.head, self.head_options = head, head_options
        self.cosine, self.scale, self.how = cosine, float(scale), how

    def forward(self, features: Tensor) -> Tensor:
        """Returns the logits; the class with the largest one is the prediction."""
        rows = features if self.head is None else self.head(features)
        if self.cosine:
            return self.scale * linear(normalize(rows, dim=1), normalize(self.weight, dim=1)) + self.bias
        return linear(rows, self.weight, self.bias)


def save_classifier(classifier: Classifier, folder: str | Path, class_names: list[str] | None) -> None:
    """Writes ``classifier.safetensors`` and ``classifier.json`` to ``folder``, each atomically."""
    folder = Path(folder)
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in classifier.state_dict().items()}
    description = {
        "format": FORMAT,
        "classes": len(classifier.weight),
        "class_names": class_names,
        "dim": classifier.weight.shape[1],
        "head": None if classifier.head is None else classifier.head_options,
        "cosine": classifier.cosine,
        "scale": classifier.scale,
        "how": classifier.how,
    }
    write_atomically(folder / WEIGHTS, save(tensors))
    write_atomically(folder / DESCRIPTION, (json.dumps(description, indent=2, ensure_ascii=False) + "\n").encode())


def load_classifier(folder: str | Path, feature_dim: int) -> tuple[Classifier, list[str] | None]:
    """Loads the classifier saved in ``folder`` in eval mode, and the names of its classes.

    Raises:
        InputError: there is no classifier, or its files are damaged.
    """
    path = Path(folder) / DESCRIPTION
    if not path.is_file():
        raise InputError(
            f"{str(folder)!r}: has no classifier; train on labeled images by a method with a classifier (--method supcon, "
            "paco, softmax, balanced_softmax or arcface), or fit one on run.encode(images)"
        )
    about = read_object(path)
    if about.get("format") != FORMAT:
        raise InputError(
            f"{path} has format {about.get('format')!r}, this version of coulomb reads {FORMAT}: update coulomb"
        )
    check_shape(path, about, ENTRIES)
    weights = read_weights(path.with_name(WEIGHTS))
    shape = [about["classes"], about["dim"]]
    names = about["class_names"]
    if "weight" not in weights or list(weights["weight"].shape) != shape or len(names or []) not in (0, shape[0]):
        raise InputError(f"{path} does not match {WEIGHTS} (classes, dim or class_names differ); {RESTORE}")
    classifier = _blank_classifier(about, weights, feature_dim, path)
    check_tensors(classifier.state_dict(), weights, path.with_name(WEIGHTS), "classifier")
    classifier.load_state_dict(weights, assign=True)
    return classifier.eval(), names


def _blank_classifier(about: dict[str, Any], weights: dict[str, Tensor], feature_dim: int, path: Path) -> Classifier:
    """Builds the described classifier on the meta device, without memory."""
    options = about["head"]
    if options is not None and options.get("layers", 2) > len(weights):  # every layer has a weight
        raise InputError(f"{path}: the head has layers={options['layers']}, but {WEIGHTS} has fewer tensors; {RESTORE}")
    try:
        with torch.device("meta"):
            head = None if options is None else projection_head(feature_dim, out_dim=about["dim"], **options)
            return Classifier(
                torch.empty(about["classes"], about["dim"]),
                head=head,
                head_options=options,
                cosine=about["cosine"],
                scale=about["scale"],
                how=about["how"],
            )
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: its head cannot be built ({error}); {RESTORE}") from error
