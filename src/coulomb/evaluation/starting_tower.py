"""The encoder with which a tower of a run on columns began."""

from coulomb.models import Encoder, has_weights, load_encoder
from coulomb.models.load import has_text_weights
from coulomb.models.pair_encoder import PairEncoder
from coulomb.models.saving import DESCRIPTION
from coulomb.models.text_objects import LIBRARY
from coulomb.training.plan.column_towers import by_column
from coulomb.training.plan.config import load_config
from coulomb.training.record.folder import RunFolder


def starting_tower(folder: RunFolder, pair: PairEncoder, column: str) -> tuple[str, Encoder] | None:
    """Returns "starting_point" (weights) or "random_init" (random ones), and the encoder of a column before training.

    Returns None if the run folder no longer has it.
    """
    start = folder.start(pair.columns[column]["tower"])
    if not (start / DESCRIPTION).is_file():
        return None
    chosen = by_column("encoder", load_config(folder.config).encoder, tuple(pair.columns)).get(column, "")
    weights = has_weights(chosen) or chosen.startswith(LIBRARY) or has_text_weights(chosen)
    return "starting_point" if weights else "random_init", load_encoder(start)
