"""The configuration and the data of an existing run."""

import dataclasses

from coulomb.ground.errors import InputError
from coulomb.training.plan.config import Config, load_config
from coulomb.training.plan.objects import Objects
from coulomb.training.plan.prepare import Prepared, measure, open_data, prepare
from coulomb.training.record.folder import RunFolder, read_split
from coulomb.training.record.provenance import changed, fingerprints


def reopen(folder: RunFolder, objects: Objects, *, progress: bool, trains: bool = False) -> tuple[Config, Prepared]:
    """Returns configuration and data of an existing run, whose split must be the saved one.

    ``trains``: the run will be resumed, so that user code and files outside the folder must be among ``objects``, see
    `Objects.resumed`.
    """
    config = load_config(folder.config)
    config = dataclasses.replace(objects.resumed(config, folder) if trains else config, out=str(folder.path))
    sources = open_data(config, objects.data, objects.test)
    saved = read_split(folder)
    if changes := changed(saved["fingerprints"], fingerprints(sources)):
        raise InputError(
            f"{str(folder.path)!r}: the data changed since the run began: {changes}; restore them, or start a new run"
        )
    prepared = prepare(config, sources, measure(config, *sources), progress=progress)
    for name, part in (("train", prepared.train), ("test", prepared.test)):
        if saved[name] != part.ids:
            raise InputError(
                f"{str(folder.path)!r}: the {name} images are not those the run began with "
                f"({len(saved[name])} then, {len(part.ids)} now); restore the data, or start a new run"
            )
    return config, prepared
