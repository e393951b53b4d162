"""What can only be handed over in Python."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from coulomb.data.views import ViewMaker, make_views
from coulomb.errors import InputError
from coulomb.methods.choice import method_class
from coulomb.runs.config import Config


@dataclass
class Objects:
    """Things themselves instead of their names: an array, a data set, a module, views; None where a name was given."""

    data: Any = None
    test: Any = None
    encoder: nn.Module | None = None
    views: ViewMaker | None = None
    method: type[nn.Module] | None = None

    def method_of(self, config: Config) -> type[nn.Module]:
        """The run's method: the user's own class, or what ``config`` names."""
        return self.method or method_class(config.method)

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
