"""Views: random variants of an image, made in batches on the device the images are on.

views = make_views("small-natural", size=32, channels=3)
first, second = views(canvas, generator(seed, "views", step))
"""

from coulomb.data.views.make import make_views, views_from_config
from coulomb.data.views.own import OwnViews, TakingTurns
from coulomb.data.views.plain import plain_view
from coulomb.data.views.presets import PRESETS
from coulomb.data.views.sheet import contact_sheet
from coulomb.data.views.spec import ViewSpec
from coulomb.data.views.views import ViewMaker, Views

__all__ = [
    "PRESETS",
    "OwnViews",
    "TakingTurns",
    "ViewMaker",
    "ViewSpec",
    "Views",
    "contact_sheet",
    "make_views",
    "plain_view",
    "views_from_config",
]
