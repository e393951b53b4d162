"""coulomb: contrastive representation learning, exact at any batch size.

Losses need only torch (``from coulomb.losses import NTXentLoss``); everything else belongs to the extra ``coulomb[train]``
and is imported on first use.
"""

from typing import TYPE_CHECKING, Any

from coulomb.ground.version import __version__

if TYPE_CHECKING:
    from coulomb.api import (
        ImageEncoder,
        Index,
        PairRun,
        Run,
        TextEncoder,
        diagnose,
        evaluate,
        load,
        mine,
        train,
        train_seeds,
    )
    from coulomb.laws import verify
    from coulomb.similarity import use_backend

__all__ = [
    "ImageEncoder",
    "Index",
    "PairRun",
    "Run",
    "TextEncoder",
    "__version__",
    "diagnose",
    "evaluate",
    "load",
    "mine",
    "train",
    "train_seeds",
    "use_backend",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "__version__" or name not in __all__:
        raise AttributeError(f"module 'coulomb' has no attribute {name!r}")
    if name == "use_backend":  # needs only torch
        from coulomb.similarity import use_backend

        return use_backend
    if name == "verify":
        from coulomb.laws import verify

        return verify
    try:
        from coulomb import api
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error.name} is missing: pip install 'coulomb[train]'", name=error.name) from error
    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
