"""What can only be handed over in Python."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from coulomb.data.views import ViewMaker, make_views
from coulomb.errors import InputError
from coulomb.training.config import Config


@dataclass
class Objects:
    """Things themselves instead of their names: an array, a data set, a module, views; None where a name was given."""

    data: Any = None
    test: Any = None
    encoder: nn.Module | None = None
    views: ViewMaker | None = None

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
