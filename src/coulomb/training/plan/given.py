"""What a call gives: options by name, and the user's objects and code in place of names."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from coulomb.ground.errors import InputError
from coulomb.kinds.image.views import ViewMaker, make_views
from coulomb.methods import METHODS, Method
from coulomb.methods.options import OWN, find_method, installed_methods, load_own_method
from coulomb.models.text_objects import name_objects
from coulomb.models.user_code import is_user_code, load_user_code, require_call
from coulomb.tables.sources.frames import is_series
from coulomb.training.plan.config import LOGGERS, Config, check_names
from coulomb.training.record.folder import RunFolder

TEXT = "text"  # the column of a file, or a list, of texts
BANK = "bank_path"  # the only method option that names a file to write
# Options that may be objects; None is the same as left out.
OBJECTS = ("data", "test", "method", "encoder", "views", "logger")


@dataclass(frozen=True)
class Given:
    """The options of one call, see `Given.of`.

    Attributes:
        named: the options as ``config.yaml`` holds them; an object has a name such as ``<ndarray>`` or ``custom:MyNet``.
        data, test: what to open, a name or an object; None if this call does not say.
        module: the user's own encoder, None if the encoder has a name.
        encoders: objects of columns, by the names that stand for them in ``named``; see `coulomb.models.text_objects`.
        views: the user's own views, None for a preset.
        method: the user's own class, None for a built-in method.
        loggers: the user's own loggers of Lightning, none for one that has a name.
        callbacks: the user's callbacks, see `coulomb.training.own_callbacks`.
    """

    named: dict[str, Any]
    data: Any = None
    test: Any = None
    module: nn.Module | None = None
    encoders: Mapping[str, Any] = field(default_factory=dict)
    views: ViewMaker | None = None
    method: type[Method] | None = None
    loggers: tuple[Any, ...] = ()
    callbacks: tuple[Any, ...] = ()

    @classmethod
    def of(cls, options: "Mapping[str, Any] | Given", callbacks: tuple[Any, ...] = ()) -> "Given":
        """Separates names from objects. The user's files that ``options`` name (``mine.py:MyMethod``) are executed.

        Raises:
            InputError: an option has an unknown name, an object or a user's file cannot be used, or two options say which data
                are held out.
        """
        if isinstance(options, Given):
            return options
        check_names(options)
        named = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in options.items()
            if value is not None or name not in OBJECTS
        }
        objects: list[Any] = [named.get("data"), named.get("test")]
        data, test = (list(each) if is_series(each) else each for each in objects)
        if test is not None and named.get("test_fraction") is not None:
            raise InputError(
                f"test_fraction={named['test_fraction']}: test says which data are held out; leave one of the two out"
            )
        for name, value in (("data", data), ("test", test)):
            if value is not None:
                named[name] = data_name(value)
        if (columns := named.get("columns")) is not None and not isinstance(columns, str):
            named["columns"] = ",".join(map(str, columns))
        elif columns is None and holds_texts(data):
            named["columns"] = TEXT
        module = load_module(named.get("encoder"))
        encoder, encoders = name_objects(named.get("encoder") if module is None else module)
        if encoder is not None:
            named["encoder"] = encoder
        method = load_own_method(named.get("method"))
        if method is not None and not isinstance(named["method"], str):
            named["method"] = OWN + named["method"].__name__
        if loggers := own_loggers(named.get("logger")):
            named["logger"] = OWN + ",".join(type(logger).__name__ for logger in loggers)
        views = named.get("views")
        if views is None or isinstance(views, str):
            return cls(named, data, test, module, encoders, None, method, loggers, callbacks)
        require_views(views)
        named = {"image_size": views.size, "channels": views.channels} | named
        named["views"] = f"custom:{type(views).__name__}"
        return cls(named, data, test, module, encoders, views, method, loggers, callbacks)

    def resumed(self, config: Config, folder: RunFolder) -> Config:
        """Returns ``config`` of an existing run, with the memory bank and the logger of this call, if any.

        Raises:
            InputError: ``config`` names code outside the package, or a bank outside the run folder, and this call does not; or
                the run was logged by the user's own logger, and this call gives none.
        """
        if "logger" in self.named:
            config = replace(config, logger=self.named["logger"])
        elif config.logger.startswith(OWN):
            raise InputError(
                f"logger={config.logger!r}: the run was logged by your own logger; pass it again, or choose a name such as "
                "'none' (coulomb.train(resume_from=…, logger=…), or --logger none)"
            )
        bank = find_bank(self.named)
        own = {} if bank is None else {"method_options": {BANK: bank}}
        options = {"method": config.method, "encoder": config.encoder, "method_options": config.method_options}
        require_named(folder.config, options, {"method": self.method, "encoder": self.module} | own, folder.path)
        if bank is None:
            return config
        if find_bank(options) is None:
            raise InputError(f"{BANK}={bank!r}: the run has no mapped memory bank; leave it out")
        return replace(config, method_options=config.method_options | own["method_options"])

    def find_method(self, config: Config) -> type[Method]:
        """Returns the run's method: the class of this call, or the built-in one that ``config`` names.

        Raises:
            InputError: ``config`` names a user's class that was not passed, or a class was passed for a built-in method.
        """
        if self.method is None:
            require_named(Path("config.yaml"), {"method": config.method}, {})
            return find_method(config.method)
        if config.method in METHODS or config.method in installed_methods():
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


def data_name(data: Any) -> str:
    """Returns the name of data in a configuration: the path, or the class of an object."""
    return str(data) if isinstance(data, str | Path) else f"<{type(data).__name__}>"


def holds_texts(data: Any) -> bool:
    """Returns True for data that can only be texts: a ``.txt`` file with one per line, or a list of strings."""
    if isinstance(data, str | Path):
        return Path(str(data)).suffix.lower() == ".txt"
    return (
        isinstance(data, list) and bool(data) and all(isinstance(each, str) for each in data[:100]) and " " in data[0]
    )


def own_loggers(logger: Any) -> tuple[Any, ...]:
    """Returns the user's loggers, one or several; none for a name.

    Raises:
        InputError: an object is no logger of Lightning.
    """
    if logger is None or isinstance(logger, str | bool):
        return ()
    from lightning.pytorch.loggers import Logger  # which takes seconds to import

    loggers = tuple(logger) if isinstance(logger, list | tuple) else (logger,)
    for each in loggers:
        if not isinstance(each, Logger):
            raise InputError(
                f"logger={each!r}: must be one of {', '.join(LOGGERS)}, or a logger of lightning.pytorch.loggers, or a list "
                "of these"
            )
    return loggers


def load_module(encoder: Any) -> nn.Module | None:
    """Returns the user's own encoder, given as a module or as ``file.py:Class``; None for encoders by name."""
    if isinstance(encoder, nn.Module):
        return encoder
    if not isinstance(encoder, str) or not is_user_code(encoder):
        return None
    made = load_user_code("encoder", encoder)
    require_call("encoder", encoder, made)
    built = made()
    if not isinstance(built, nn.Module):
        name = encoder.rpartition(":")[2]
        raise InputError(f"encoder={encoder!r}: {name}() returned a {type(built).__name__}, not a torch.nn.Module")
    return built


def require_views(views: Any) -> None:
    """Raises `InputError` unless ``views`` can make views of a size."""
    if all(hasattr(views, name) for name in ("size", "channels", "plain", "to_config")):
        return
    given = getattr(views, "__name__", type(views).__name__)
    raise InputError(
        f"views={given}: must be the name of a preset, or views with a size; wrap a function that maps images "
        "[B, C, S, S] and a generator to one view: coulomb.kinds.image.views.OwnViews(function, size=S, channels=C)"
    )


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
