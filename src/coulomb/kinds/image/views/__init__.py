"""Views: random augmentations of images, computed in batches on the device of the images.

views = make_views("small-natural", size=32, channels=3)
first, second = views(canvas, generator(seed, "views", step))
"""

from coulomb.kinds.image.views.canvas import plain_view
from coulomb.kinds.image.views.describe import contact_sheet
from coulomb.kinds.image.views.make import OwnViews, TakingTurns, ViewMaker, Views, make_views, views_from_config
from coulomb.kinds.image.views.spec import PRESETS, ViewSpec

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
