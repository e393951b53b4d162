"""`verify`: all laws for one loss."""

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError, did_you_mean
from coulomb.laws.call import Call, first_error, inferred, number_of_classes, written
from coulomb.laws.degenerate import degenerate
from coulomb.laws.finding import NOT_APPLICABLE, Certificate, Finding
from coulomb.laws.formula import formula
from coulomb.laws.gradient import factor, gradient
from coulomb.laws.growth import memory, work
from coulomb.laws.order import order
from coulomb.laws.precision import precision
from coulomb.laws.processes import processes
from coulomb.laws.repeat import compiled, repeated, unchanged
from coulomb.laws.scale import micro_batches, reductions
from coulomb.laws.subject import D, Draw, N, Subject, Tensors, floating, message
from coulomb.laws.temperature import temperature

Law = Callable[[Subject], Finding | list[Finding]]

# Name → law, in the order of a certificate. `coulomb.verify(…, laws=[…])` names some of them.
LAWS: dict[str, Law] = {
    "gradient": gradient,
    "factor": factor,
    "order": order,
    "formula": formula,
    "reductions": reductions,
    "micro-batches": micro_batches,
    "processes": processes,
    "memory": memory,
    "work": work,
    "precision": precision,
    "degenerate": degenerate,
    "temperature": temperature,
    "deterministic": repeated,
    "inputs": unchanged,
    "compile": compiled,
}
DIM = ("dim", "embedding_size", "embedding_dim", "feat_dim", "in_features", "feature_dim", "features", "d")


def verify(
    loss: Any,
    make_inputs: Callable[[int, int, Draw], Tensors] | None = None,
    *,
    call: str | None = None,
    options: Mapping[str, Any] | None = None,
    formula: Callable[..., Tensor] | None = None,
    detached: Sequence[str] = (),
    shuffle: Callable[[Tensors, Tensor], Sequence[Any]] | None = None,
    split: Callable[[Tensors, int, int], Sequence[Any]] | None = None,
    dim: int | None = None,
    laws: Iterable[str] | None = None,
    name: str | None = None,
) -> Certificate:
    """Checks whether a loss obeys the laws that this project's own losses obey; works with any loss in PyTorch.

    The laws: the gradient is the derivative (finite differences in fp64) and passes on the factor from above; the order of
    samples does not matter; the value is that of your formula; reductions of the same terms; micro-batches; 2 and 3
    processes equal one; memory and work in the number of samples; half precision and autocast against fp64; degenerate
    batches; limits of the temperature; the same bits in each call; inputs are left unchanged; torch.compile.

    Takes seconds on a CPU. The law of processes forks processes of this one; it does not apply if
    torch.distributed or CUDA is in use, nor on macOS and Windows.

    Args:
        loss: a class, whose constructor is called with ``options``; a module; or a function of tensors.
        make_inputs: (n, d, draw) → the tensors of a call with ``n`` samples in ``d`` dimensions; ``draw(*shape)`` returns
            normal random numbers in fp64. Default: inferred from the names of the parameters (``z0, z1``).
        call: the call as text instead, such as ``"(features[N, 2, D], labels)"``; see `coulomb.laws.call.written`.
        options: for the constructor, or keyword arguments of a function.
        formula: a function of the same arguments that returns the loss, or the loss of each anchor, such as a double loop.
        detached: names of arguments that get no gradient on purpose, such as keys of a momentum encoder.
        shuffle: (inputs, order) → the inputs with the samples in another order. Default: every dimension with N, 2N, … entries
            is reordered.
        split: (inputs, rank, world) → the inputs of one process. Default: likewise; other arguments are the same in all.
        dim: the number of dimensions, if the loss accepts one only. Default: from ``options``, else several.
        laws: names in `LAWS`; default: all.
        name: of the loss, for the output.

    Raises:
        InputError: the loss cannot be constructed or called; the message says what was tried.

    >>> from coulomb.losses import NTXentLoss
    >>> verify(NTXentLoss, laws=["gradient", "order"]).holds
    True
    """
    chosen = chosen_laws(laws)
    given = dict(options or {})
    make, known = maker(loss, given)
    title = name or str(getattr(loss, "__name__", type(loss).__name__))
    width = dim if dim is not None else width_in(given)
    shared: dict[str, Any] = {
        "options": known, "detached": frozenset(detached), "shuffle": shuffle, "split": split, "formula": formula, "dim": width
    }  # fmt: skip

    def subject_of(inputs: Callable[[int, int, Draw], Tensors], names: tuple[str, ...], **how: Any) -> Subject:
        return Subject(title, make, inputs, names, **shared | how)

    try:
        made = make()
    except Exception as error:
        raise InputError(f"loss={title}: cannot be constructed with options={given}: {message(error)}") from error
    if make_inputs is not None:
        names = argument_names(made, make_inputs(N, width or D, torch.randn))
        subject = subject_of(make_inputs, names, called="called with the given inputs")
        require_works(subject)
    elif call is not None:
        subject = of_call(subject_of, written(call, number_of_classes(given, made)), "as given")
        require_works(subject)
    else:
        # A loss with a default width accepts no other, if it keeps something of that width, such as a center.
        widths = [width] if width is not None else list(dict.fromkeys([None, width_in(known)]))
        subject = working(subject_of, list(inferred(made, number_of_classes(given, made))), widths)
    unknown = set(detached) - set(subject.names)
    if unknown:
        raise InputError(f"detached={sorted(unknown)}: no such argument; there are {', '.join(subject.names)}")
    return certify(subject, chosen)


def certify(subject: Subject, laws: Iterable[str] | None = None) -> Certificate:
    """Returns the findings of all ``laws`` for a loss that is already described as a `Subject`."""
    findings: list[Finding] = []
    for name in chosen_laws(laws):
        try:
            found = LAWS[name](subject)
        except Exception as error:  # the loss may refuse the inputs of a law: an error is no silent mistake
            found = Finding(name, NOT_APPLICABLE, cause=f"the loss refuses the inputs of this law: {message(error)}")
        findings += found if isinstance(found, list) else [found]
    return Certificate(subject.name, subject.called, tuple(findings))


def chosen_laws(laws: Iterable[str] | None) -> list[str]:
    """Returns the names of laws in their order.

    Raises:
        InputError: a name is unknown.
    """
    wanted = list(LAWS if laws is None else laws)
    for name in wanted:
        if name not in LAWS:
            raise InputError(f"laws={name!r}: no such law{did_you_mean(name, LAWS)}; there are {', '.join(LAWS)}")
    return [name for name in LAWS if name in wanted]


def maker(loss: Any, options: dict[str, Any]) -> tuple[Callable[..., Callable[..., Any]], dict[str, Any]]:
    """Returns (a function that makes a new loss, its options with their values).

    Raises:
        InputError: ``loss`` is neither a class, a module nor a function.
    """
    if isinstance(loss, type):
        return functools.partial(loss, **options), defaults(loss) | options
    if isinstance(loss, nn.Module):
        known = {
            key: value for key, value in vars(loss).items() if isinstance(value, str | int | float) and key[0] != "_"
        }
        known.pop("training", None)
        return functools.partial(changed_copy, loss, **options), known | options
    if callable(loss):
        return functools.partial(functools.partial, loss, **options), defaults(loss) | options
    raise InputError(f"loss={loss!r}: must be a class, a module or a function")


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the parameters of a function or constructor that have a default, and that default."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return {name: one.default for name, one in parameters.items() if one.default is not one.empty}


def changed_copy(loss: nn.Module, **options: Any) -> nn.Module:
    """Returns a copy of a module with other values of some attributes.

    Raises:
        AttributeError: it has no such attribute.
    """
    made = copy.deepcopy(loss)
    for name, value in options.items():
        if not hasattr(made, name):
            raise AttributeError(f"no attribute {name}")
        setattr(made, name, value)
    return made


def argument_names(loss: Callable[..., Any], inputs: Tensors) -> tuple[str, ...]:
    """Returns the names of the parameters that ``inputs`` are passed to."""
    function = loss.forward if isinstance(loss, nn.Module) else loss
    try:
        names = [
            one.name
            for one in inspect.signature(function).parameters.values()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        names = []
    return tuple([*names, *(f"input{i}" for i in range(len(names), len(inputs)))][: len(inputs)])


def of_call(subject: Callable[..., Subject], call: Call, how: str, **options: Any) -> Subject:
    """Returns the subject with this call."""
    return subject(call.inputs, call.names, keywords=call.keywords, called=f"called as {call}, {how}", **options)


def width_in(options: Mapping[str, Any]) -> int | None:
    """Returns the number of dimensions that options name; None if none does."""
    return next((options[key] for key in DIM if isinstance(options.get(key), int)), None)


def working(subject: Callable[..., Subject], calls: Sequence[Call], widths: Sequence[int | None]) -> Subject:
    """Returns the subject with the first of ``calls`` that works, in any number of dimensions or else one of ``widths``.

    Raises:
        InputError: none does.
    """
    errors = []
    for width in widths:
        for call in calls:
            how = "inferred from the names of its parameters" + (f", in {width} dimensions" if width else "")
            one = of_call(subject, call, how, dim=width)
            error = fault(one)
            if error is None:
                return one
            errors.append((call, error))
    for call, error in errors:
        if isinstance(error, NoGradientError):
            raise InputError(f"call: {call} works, but {error}")
    raise InputError(
        f"call: none that the names of the parameters allow works ({first_error(errors)}); give the call, or dim= if the loss "
        "accepts one number of dimensions only"
    )


def require_works(subject: Subject) -> None:
    """Raises `InputError` if the loss cannot be evaluated on an ordinary batch."""
    error = fault(subject)
    if error is not None:
        raise InputError(
            f"loss={subject.name}: {subject.called}, it fails on an ordinary batch: {message(error)}"
        ) from error


class NoGradientError(ValueError):
    """The value of a loss has no gradient for any of its arguments."""


def fault(subject: Subject) -> Exception | None:
    """Returns what is wrong with an ordinary batch: an exception, a value that is not finite or without a gradient."""
    inputs = subject.draw(N, D, torch.float32)
    outcome = subject.evaluate(inputs)
    if outcome.error is not None:
        return outcome.error
    if not outcome.finite:
        return ValueError(f"the loss of an ordinary batch is {float(outcome.value)}")
    if not any(floating(one) for one in inputs):
        return TypeError("no argument has floating point numbers")
    if outcome.missing >= {name for name, one in zip(subject.names, inputs, strict=True) if floating(one) and one.ndim}:
        return NoGradientError(
            "no argument gets a gradient: the value is no function of the embeddings, or is detached, such as by NumPy, "
            ".item() or .data; nothing can be trained with it"
        )
    return None
