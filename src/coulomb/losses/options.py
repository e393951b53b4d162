"""`Loss`, the parent of all losses. Options are declared like the fields of a dataclass and checked whenever they are set."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, fields
from typing import Annotated, Any, ClassVar, dataclass_transform

from torch import Tensor, nn

from coulomb.ground.checked import Check, checked_flag, checked_whole, choice, number
from coulomb.ground.names_elsewhere import unknown_option
from coulomb.losses.temperature import LearnableTemperature, Temperature, checked_temperature
from coulomb.similarity.collectives import checked_gather

# Types of options. The second argument of Annotated checks the value.
Flag = Annotated[bool, checked_flag]
Whole = Annotated[int, checked_whole]
Positive = Annotated[float, number(above=0)]
NonNegative = Annotated[float, number(at_least=0)]
Finite = Annotated[float, number()]
Share = Annotated[float, number(at_least=0, below=1)]
Tau = Annotated[Temperature, checked_temperature]
Reduction = Annotated[str, choice("mean", "sum", "none")]
MarginKind = Annotated[str, choice("absolute", "relative")]
SameId = Annotated[str, choice("left_out", "positive")]
Gather = Annotated[bool | str, lambda _, value: checked_gather(value)]


@dataclass_transform(eq_default=False)
class Loss(nn.Module):
    """Parent of all losses. A subclass declares its options as annotated fields, as in a dataclass::

        class ExampleLoss(Loss):
            margin: NonNegative = 0.2
            _: KW_ONLY
            reduction: Reduction = "mean"

    The second argument of ``Annotated`` in the type of an option is a function of (name, value) that returns the value to
    store, or raises TypeError or ValueError. `checks` holds these functions by name.
    """

    checks: ClassVar[Mapping[str, Check]] = {}

    def __new__(cls, *_: Any, **__: Any) -> "Loss":
        """Returns an initialized module, because the constructor of a dataclass sets attributes first."""
        self: Loss = super().__new__(cls)
        nn.Module.__init__(self)
        return self

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        types = {
            name: kind.type if isinstance(kind, InitVar) else kind
            for name, kind in vars(cls).get("__annotations__", {}).items()
        }
        metadata = {name: getattr(kind, "__metadata__", ()) for name, kind in types.items()}
        cls.checks = {**cls.checks, **{name: one[0] for name, one in metadata.items() if one}}
        dataclass(eq=False, repr=False)(cls)
        for name in cls.__dataclass_fields__:  # type: ignore[attr-defined]
            if name in vars(cls):  # it would hide a submodule or buffer of this name
                delattr(cls, name)
        cls.__init__ = _suggesting(cls.__init__)  # type: ignore[method-assign]

    def __setattr__(self, name: str, value: Any) -> None:
        check = self.checks.get(name)
        super().__setattr__(name, value if check is None else check(name, value))

    def extra_repr(self) -> str:
        """Returns the options for ``print(loss)``."""
        ordered = sorted(fields(self), key=lambda field: bool(field.kw_only))  # type: ignore[arg-type]
        return ", ".join(f"{field.name}={_described(getattr(self, field.name))}" for field in ordered)


def _described(value: Any) -> str:
    if isinstance(value, LearnableTemperature):  # prints itself, as a submodule
        return "learned"
    if isinstance(value, Tensor):
        return str(list(value.shape))
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _suggesting(init: Callable[..., None]) -> Callable[..., None]:
    """Wraps ``init`` so that its TypeError for an unknown option names the option to use instead."""
    init.__annotations__ = {name: getattr(kind, "__origin__", kind) for name, kind in init.__annotations__.items()}
    parameters = inspect.signature(init).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):  # passed to the parent, which checks them
        return init
    names = list(parameters)[1:]

    @functools.wraps(init)
    def checked_init(self: Any, *arguments: Any, **options: Any) -> None:
        for name in options:
            if name not in names:
                raise TypeError(unknown_option(type(self).__name__, name, names))
        init(self, *arguments, **options)

    return checked_init
