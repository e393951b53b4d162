"""coulomb: contrastive representation learning, exact at any batch size.

Losses need torch alone (``from coulomb.losses import NTXentLoss``); everything else is the extra ``coulomb[train]``
and is imported when first used.
"""

__version__ = "0.1.0"
