"""Python objects and user code passed in place of configuration names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from coulomb.ground.errors import InputError
from coulomb.kinds.image.views import ViewMaker, make_views
from coulomb.methods import METHODS, Method
from coulomb.methods.options import find_method, load_own_method
from coulomb.models.user_code import is_user_code
from coulomb.training.plan.config import Config
from coulomb.training.record.folder import RunFolder

BANK = "bank_path"  # the only method option that names a file to write


def require_named(
    where: Path, options: Mapping[str, Any], given: Mapping[str, Any], folder: Path | None = None
) -> None:
    """Refuses user code, and a memory bank outside ``folder``, that a file names but the caller did not name in this call.

    Args:
        where: the file that ``options`` were read from, for the message.
        options: options of a run: ``method``, ``encoder``, ``method_options``.
        given: the same options as passed by the caller in this call; None or missing if not passed.
        folder: the run folder, in which a bank may be written; None for a run that does not exist yet.

    Raises:
        InputError: the message says what to pass.
    """
    for name in ("method", "encoder"):
        value = options.get(name)
        if isinstance(value, str) and is_user_code(value) and given.get(name) is None:
            raise InputError(
                f"{where}: {name}={value!r} is code outside coulomb, which is executed only if you pass it yourself; "
                f"if you trust that file, add --{name} {value} ({name}={value!r} in Python)"
            )
    bank = find_bank(options)
    inside = folder is not None and bank and Path(str(bank)).resolve().is_relative_to(folder.resolve())
    if bank is None or find_bank(given) is not None or inside:
        return
    raise InputError(
        f"{where}: {BANK}={bank!r} is a file outside the run folder, which is written only if you pass it yourself; "
        f"add --option {BANK}={bank} (method_options={{{BANK!r}: {bank!r}}} in Python)"
    )


def find_bank(options: Mapping[str, Any]) -> Any:
    """Returns the file of a mapped memory bank among ``options``, or None."""
    return (options.get("method_options") or {}).get(BANK)


@dataclass
class Objects:
    """Objects passed in place of their configuration names; None where a name was given."""

    data: Any = None
    test: Any = None
    encoder: nn.Module | None = None
    views: ViewMaker | None = None
    method: type[Method] | None = None
    bank_path: str | None = None

    def __post_init__(self) -> None:
        if self.views is None or all(hasattr(self.views, name) for name in ("size", "channels", "plain", "to_config")):
            return
        given = getattr(self.views, "__name__", type(self.views).__name__)
        raise InputError(
            f"views={given}: must be the name of a preset, or views with a size; wrap a function that maps images "
            "[B, C, S, S] and a generator to one view: coulomb.kinds.image.views.OwnViews(function, size=S, channels=C)"
        )

    def with_options(self, options: Mapping[str, Any]) -> "Objects":
        """Adds the user's method and the memory bank that ``options`` of this call name; the user's file is executed."""
        return replace(
            self,
            method=self.method or load_own_method(options.get("method")),
            bank_path=self.bank_path or find_bank(options),
        )

    def resumed(self, config: Config, folder: RunFolder) -> Config:
        """Returns ``config`` of an existing run, with the memory bank of this call, if any, in place of its own.

        Raises:
            InputError: ``config`` names code outside the package, or a bank outside the run folder, and this call does not.
        """
        own = {} if self.bank_path is None else {"method_options": {BANK: self.bank_path}}
        options = {"method": config.method, "encoder": config.encoder, "method_options": config.method_options}
        require_named(folder.config, options, {"method": self.method, "encoder": self.encoder} | own, folder.path)
        if self.bank_path is None:
            return config
        if find_bank(options) is None:
            raise InputError(f"{BANK}={self.bank_path!r}: the run has no mapped memory bank; leave it out")
        return replace(config, method_options=config.method_options | own["method_options"])

    def find_method(self, config: Config) -> type[Method]:
        """Returns the run's method: the class of this call, or the built-in one that ``config`` names.

        Raises:
            InputError: ``config`` names a user's class that was not passed, or a class was passed for a built-in method.
        """
        if self.method is None:
            require_named(Path("config.yaml"), {"method": config.method}, {})
            return find_method(config.method)
        if config.method in METHODS:
            raise InputError(
                f"method={self.method.__name__}: the run was trained with {config.method!r}; leave method out"
            )
        return self.method

    def build_views(self, config: Config, image_size: int, channels: int) -> ViewMaker:
        """Returns the run's views: the user's own, or those that ``config`` names.

        Raises:
            InputError: the run was trained with the user's own views, and they were not passed.
        """
        if self.views is not None:
            return self.views
        if str(config.views).startswith("custom:"):
            raise InputError(
                f"views={config.views!r}: the run was trained with your own views; pass them again as views=…"
            )
        return make_views(str(config.views), size=image_size, channels=channels, **config.view_options)
