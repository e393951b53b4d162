"""Opens data sets, wherever they are: one module per place, which opens its images, its columns, or both.

`open_source` opens images alone (``as_images``), `open_sheet` columns (``as_columns``).
"""

from coulomb.tables.sources.as_columns import open_sheet
from coulomb.tables.sources.as_images import open_files, open_images, open_source

__all__ = ["open_files", "open_images", "open_sheet", "open_source"]
