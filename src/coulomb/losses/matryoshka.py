"""Matryoshka: any loss of this package for prefixes of the dimensions at once."""

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor

from coulomb.ground.checked import check_shape, checked_number, checked_whole
from coulomb.losses.arcface import ArcFaceLoss
from coulomb.losses.debiased import DebiasedLoss
from coulomb.losses.decoupled import DecoupledLoss
from coulomb.losses.diagnosis import Result
from coulomb.losses.infonce import InfoNCELoss
from coulomb.losses.inputs import flat_labels
from coulomb.losses.joint_infonce import JointInfoNCELoss
from coulomb.losses.nce import NCELoss
from coulomb.losses.negatives import ContrastiveLoss, Prefixes
from coulomb.losses.ntxent import NTXentLoss
from coulomb.losses.options import Loss
from coulomb.losses.paco import PaCoLoss
from coulomb.losses.supcon import SupConLoss
from coulomb.losses.temperature import scale_of
from coulomb.similarity.collectives import gather_group
from coulomb.similarity.prefixes import applies

# Arguments of the losses that are cut. All others, such as labels, ids and embeddings by a teacher, are the same for every
# prefix.
EMBEDDINGS = frozenset(
    "query positive negatives noise view0 view1 features embeddings centers x y prediction target student student_keys".split()
)
TOGETHER = (InfoNCELoss, NTXentLoss, SupConLoss, JointInfoNCELoss, DecoupledLoss, DebiasedLoss)
FIRST = ("view0", "query", "features")  # the argument of these that holds the anchors
WHOLE = (ArcFaceLoss, PaCoLoss)  # whose centers have the width of the features, and belong to the loss or its caller


def checked_loss(name: str, value: Any) -> Loss:
    """Returns a loss that compares embeddings of any width; else raises an error that names the argument."""
    if not isinstance(value, Loss):
        raise TypeError(f"{name} must be a loss of coulomb.losses, got {type(value).__name__}")
    if isinstance(value, WHOLE):
        raise TypeError(
            f"{name}={type(value).__name__}: its class centers have a fixed width, which prefixes do not have"
        )
    if isinstance(value, MatryoshkaLoss):
        raise TypeError(f"{name}=MatryoshkaLoss: give the loss of one prefix")
    if isinstance(value, NCELoss) and not isinstance(value.normalizer, float):
        raise ValueError(
            f"{name}=NCELoss with normalizer={value.normalizer!r}: an estimate for each prefix; give a number"
        )
    if not EMBEDDINGS & inspect.signature(value.forward).parameters.keys():
        raise TypeError(
            f"{name}={type(value).__name__}: none of its arguments is one of {', '.join(sorted(EMBEDDINGS))}"
        )
    return value


def checked_dims(name: str, value: Any) -> tuple[int, ...]:
    """Returns different whole numbers of at least 1 as a tuple; else raises an error that names the argument."""
    if isinstance(value, str | Tensor) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of whole numbers, got {value!r}")
    dims = tuple(checked_whole(name, one) for one in value)
    if not dims or len(set(dims)) < len(dims):
        raise ValueError(f"{name} must be one or more different whole numbers, got {list(dims)}")
    return dims


def checked_weights(name: str, value: Any) -> tuple[float, ...] | None:
    """Returns numbers of at least 0 as a tuple, or None; else raises an error that names the argument."""
    if value is None:
        return None
    if isinstance(value, str | Tensor) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of numbers, got {value!r}")
    return tuple(checked_number(name, one, at_least=0) for one in value)


class MatryoshkaLoss(Loss):
    """L = Σ_k w_k·loss(x[:d_k]),  d_1 < … < d_m   (Matryoshka representation learning, Kusupati et al., 2022)

    The first d_k dimensions of every embedding are compared as if they were the whole embedding. The trained embedding can
    then be cut after any of these dimensions, for a smaller or faster index, and loses little.

    When to use: embeddings that are stored or searched in several sizes, or whose size is chosen after training.
    Needs: a loss of this package, and the lengths of the prefixes. Search with a prefix that is normalized again.
    Temperature: of ``loss``, the same for all prefixes; a learned one gets the sum of their gradients.
    Cost: at most that of one loss per prefix, Σ_k d_k/d_m times the longest prefix's and more. One pass over the similarities
    serves all prefixes, 1.3 to 1.5 times the longest prefix's time for 64, 128, 256, 512 and 1,024, for the losses that are a
    log-sum-exp over pairs: `InfoNCELoss`, `NTXentLoss`, `SupConLoss`, `JointInfoNCELoss`, `DecoupledLoss` and `DebiasedLoss`;
    up to 8u with u = anchors·keys·d_m. Others, and these in the following calls, are computed for one prefix after another,
    with the same value: up to 2²⁰ pairs in one process; short prefixes (of less than 48 dimensions on average, without the
    longest); τ below 0.018 in fp32; on a GPU, in compiled graphs and transforms; ``normalize=False`` or ``diagnose=True``;
    a guide with ``symmetric=True``, a hardness mode, ``weighted=True``, and a mask or several labels per sample.
    Memory is linear in the batch either way.
    Reference: Kusupati et al., Matryoshka Representation Learning, NeurIPS 2022, arXiv:2205.13147.

    Args:
        loss: any loss of this package except `ArcFaceLoss` and `PaCoLoss`, whose centers have a fixed width. With
            ``normalize=True``, its default, each prefix is scaled to unit length.
        dims: lengths of the prefixes, in any order; not more than the dimensions of the embeddings. Dimensions beyond the
            longest prefix get no gradient. 64, 128, 256, 512 and 768 are usual for an embedding of 768.
        weights: w_k, in the order of ``dims``; None for 1 each, as in sentence-transformers.

    Shape:
        arguments, options: as in ``loss``.
        output: as in ``loss``.

    Embeddings are cut, including negatives and class centers. Labels, ids, masks, biases, and embeddings by a guide or a
    teacher are the same for every prefix.

    With ``diagnose=True`` in ``loss`` the `Diagnosis` is the longest prefix's.

    Deviation: the authors' code for images trains a classifier per prefix with cross-entropy, which is `SoftmaxLoss` here.
    sentence-transformers' class of this name cuts the output of a model; this one cuts the arguments of a loss.
    Degenerate input: as in ``loss``. Rows whose prefix is a zero vector are counted in a `CoulombWarning` for each prefix.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. Embeddings have fewer dimensions than ``dims``.

    >>> from coulomb.losses import InfoNCELoss
    >>> loss = MatryoshkaLoss(InfoNCELoss(temperature=1.0), dims=[2, 4])
    >>> loss(torch.ones(8, 4), torch.ones(8, 4))  # 2 ln 8
    tensor(4.1589)
    """

    loss: Annotated[Loss, checked_loss]
    dims: Annotated[Sequence[int], checked_dims]
    weights: Annotated[Sequence[float] | None, checked_weights] = None

    def __post_init__(self) -> None:
        dims, weights = self._ordered()
        self.dims, self.weights = list(dims), list(weights)
        parameters = inspect.signature(self.loss.forward).parameters.values()
        self._names = tuple(one.name for one in parameters if one.kind is not one.KEYWORD_ONLY)  # by position

    def _ordered(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Returns lengths and weights, the shortest prefix first; an assignment may have changed either."""
        weights = [1.0] * len(self.dims) if self.weights is None else self.weights
        if len(weights) != len(self.dims):
            raise ValueError(f"weights must be {len(self.dims)} numbers, one per prefix in dims, got {len(weights)}")
        ordered = sorted(zip(self.dims, weights, strict=True))
        return tuple(dim for dim, _ in ordered), tuple(weight for _, weight in ordered)

    def forward(self, *arguments: Any, **options: Any) -> Result:
        """Returns the weighted sum of the losses of all prefixes; with the `Diagnosis` of the longest if ``loss`` has one.

        Args:
            arguments, options: as in ``loss``.
        """
        if len(arguments) > len(self._names):
            raise TypeError(
                f"{type(self.loss).__name__} takes {len(self._names)} arguments by position, got {len(arguments)}"
            )
        given = dict(zip(self._names[: len(arguments)], arguments, strict=True))  # compiled: torch 2.6 knows only True
        if twice := given.keys() & options.keys():
            raise TypeError(f"{min(twice)} was given twice")
        given.update(options)
        self._check(given)
        dims, weights = self._ordered()
        if together(self.loss, given, dims):
            return self._together(given, Prefixes(dims, weights))
        results = [self.loss(**prefixes(given, dim)) for dim in dims]
        losses = [result if isinstance(result, Tensor) else result[0] for result in results]
        total = torch.stack([weight * loss for weight, loss in zip(weights, losses, strict=True)]).sum(0)
        return total if isinstance(results[-1], Tensor) else (total, results[-1][1])

    def _together(self, given: Mapping[str, Any], each: Prefixes) -> Result:
        """Returns the same sum from one pass over the similarities of all prefixes."""
        assert isinstance(self.loss, ContrastiveLoss)
        result: Result = self.loss.with_prefixes(each)(**prefixes(given, each.dims[-1]))
        return result

    def _check(self, given: Mapping[str, Any]) -> None:
        """Raises unless all embeddings are of one width, which is not less than the longest prefix."""
        first: Tensor | None = None
        for name, value in given.items():
            if name not in EMBEDDINGS or value is None:
                continue
            check_shape(name, value, ndim=(2, 3), like=first, least=0)
            if value.shape[-1] < max(self.dims):
                raise ValueError(
                    f"{name} has {value.shape[-1]} dimensions, fewer than the longest prefix, {max(self.dims)}"
                )
            first = value if first is None else first

    def extra_repr(self) -> str:
        """Returns the options for ``print(loss)``."""
        return f"dims={list(self.dims)}, weights={list(self.weights or ())}"


def together(loss: Loss, given: Mapping[str, Any], dims: Sequence[int]) -> bool:
    """True if all prefixes are computed in one pass over the similarities, see `coulomb.similarity.prefixes.applies`."""
    if type(loss) not in TOGETHER or not has_prefixes(loss, given):
        return False
    assert isinstance(loss, ContrastiveLoss)
    first, queue = next(given[name] for name in FIRST if given.get(name) is not None), given.get("negatives")
    rows = columns = first[..., 0].numel() * (1 + (given.get("view1") is not None))
    if queue is not None:
        replaces = isinstance(loss, InfoNCELoss) and not loss.in_batch
        columns = queue[..., 0].numel() + (0 if replaces else rows)
    if isinstance(loss, SupConLoss) and loss.contrast_mode == "one":
        rows = len(first)
    temperature: Any = loss.temperature  # all of `TOGETHER` have one
    with torch.no_grad():
        pairs = math.inf if gather_group(loss.gather) is not None else rows * columns
        return applies(first, pairs, dims, scale_of(temperature, given.get("scale")))


def has_prefixes(loss: Loss, given: Mapping[str, Any]) -> bool:
    """True if a loss of `TOGETHER` with these arguments reduces nothing but cosines of named pairs."""
    assert isinstance(loss, ContrastiveLoss)
    if not loss.normalize or loss.diagnose or all(given.get(name) is None for name in FIRST):
        return False
    if isinstance(loss, InfoNCELoss):
        return given.get("guide") is None or not loss.symmetric
    if isinstance(loss, SupConLoss):
        labels = given.get("labels")
        alone = labels is None or (isinstance(labels, Tensor) and flat_labels(labels).ndim == 1)
        return given.get("mask") is None and alone
    if isinstance(loss, JointInfoNCELoss):
        return loss.hardness_mode is None or loss.hardness_strength == 0
    return not (isinstance(loss, DecoupledLoss) and loss.weighted)


def prefixes(given: Mapping[str, Any], dim: int) -> dict[str, Any]:
    """Returns the arguments of a loss with embeddings cut after ``dim`` dimensions."""
    return {
        name: value[..., :dim] if name in EMBEDDINGS and value is not None else value for name, value in given.items()
    }
