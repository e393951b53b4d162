"""Python objects and user code passed in place of configuration names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from coulomb.data.views import ViewMaker, make_views
from coulomb.errors import InputError
from coulomb.methods import METHODS
from coulomb.methods.choice import method_class, named_class
from coulomb.models.user_code import is_own_file
from coulomb.runs.config import Config
from coulomb.runs.folder import RunFolder

BANK = "bank_path"  # the only option of a method that names a file to write


def require_named(
    where: Path, options: Mapping[str, Any], given: Mapping[str, Any], folder: Path | None = None
) -> None:
    """Refuses code outside the package, and a memory bank outside ``folder``, that the caller did not name in this call.

    Args:
        where: the file that ``options`` were read from, for the message.
        options: of a run: ``method``, ``encoder``, ``method_options``.
        given: the same options as passed by the caller, in this very call; None or missing where not.
        folder: the run folder, in which a bank may be written; None for a run that does not exist yet.

    Raises:
        InputError: the message says what to pass.
    """
    for name in ("method", "encoder"):
        value = options.get(name)
        if isinstance(value, str) and is_own_file(value) and given.get(name) is None:
            raise InputError(
                f"{where}: {name}={value!r} is code outside coulomb, which runs only if you name it yourself; "
                f"if you trust that file, add --{name} {value} ({name}={value!r} in Python)"
            )
    bank = bank_of(options)
    if bank is None or bank_of(given) is not None or (folder is not None and _inside(Path(str(bank)), folder)):
        return
    raise InputError(
        f"{where}: {BANK}={bank!r} is a file outside the run folder, which is written only if you name it yourself; "
        f"add --option {BANK}={bank} (method_options={{{BANK!r}: {bank!r}}} in Python)"
    )


def bank_of(options: Mapping[str, Any]) -> Any:
    """The file of a mapped memory bank among ``options``, or None."""
    return (options.get("method_options") or {}).get(BANK)


def _inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


@dataclass
class Objects:
    """Things themselves instead of their names: an array, a data set, a module, views; None where a name was given."""

    data: Any = None
    test: Any = None
    encoder: nn.Module | None = None
    views: ViewMaker | None = None
    method: type[nn.Module] | None = None
    bank_path: str | None = None

    def with_options(self, options: Mapping[str, Any]) -> "Objects":
        """Also the class and the memory bank that ``options`` of this very call name; a file of the user's is run."""
        return replace(
            self,
            method=self.method or named_class(options.get("method")),
            bank_path=self.bank_path or bank_of(options),
        )

    def resumed(self, config: Config, folder: RunFolder) -> Config:
        """``config`` of a run that exists, with the memory bank that the caller named in place of its own.

        Raises:
            InputError: ``config`` names code outside the package, or a bank outside the run folder, and the caller did not
                name it in this very call.
        """
        own = {} if self.bank_path is None else {"method_options": {BANK: self.bank_path}}
        options = {"method": config.method, "encoder": config.encoder, "method_options": config.method_options}
        require_named(folder.config, options, {"method": self.method, "encoder": self.encoder} | own, folder.path)
        if self.bank_path is None:
            return config
        if bank_of(options) is None:
            raise InputError(f"{BANK}={self.bank_path!r}: the run has no mapped memory bank; leave it out")
        return replace(config, method_options=config.method_options | own["method_options"])

    def method_of(self, config: Config) -> type[nn.Module]:
        """The run's method: the class that the caller handed over, or the built-in one that ``config`` names.

        Raises:
            InputError: ``config`` names a class of the user's, and the caller did not hand it over; or both are given.
        """
        if self.method is None:
            require_named(Path("config.yaml"), {"method": config.method}, {})
            return method_class(config.method)
        if config.method in METHODS:
            raise InputError(
                f"method={self.method.__name__}: the run was trained with {config.method!r}; leave method out"
            )
        return self.method

    def views_of(self, config: Config, image_size: int, channels: int) -> ViewMaker:
        """The run's views: the user's own, or those that ``config`` names.

        Raises:
            InputError: the run was trained with views of the user's own, and they were not handed over.
        """
        if self.views is not None:
            return self.views
        if str(config.views).startswith("custom:"):
            raise InputError(f"views={config.views!r}: the run has views of your own; pass them again as views=…")
        return make_views(str(config.views), size=image_size, channels=channels, **config.view_options)
