"""Images that cannot be read: skipped, named, counted; too many stop the run."""

import logging
from typing import Any

import lightning.pytorch as pl

from coulomb.data import Images
from coulomb.errors import InputError

log = logging.getLogger("coulomb")


def require_readable(store: Images, corrupt: list[int], allowed: float) -> None:
    """Refuse a store with more than the share ``allowed`` of ``corrupt`` images.

    Raises:
        InputError: with the first names.
    """
    if len(corrupt) > allowed * len(store):
        first = ", ".join(store.item_id(index) for index in corrupt[:5])
        raise InputError(
            f"data={store.source.name!r}: {len(corrupt)} of {len(store)} images cannot be read, more than "
            f"max_corrupt={allowed:g} allows ({first}{', …' if len(corrupt) > 5 else ''}; all are in the log); "
            "mend or remove them, or raise max_corrupt"
        )


class CorruptImages(pl.Callback):
    """Keeps the list of unreadable images, those found before training and those met on the way.

    Args:
        stores: the image stores of the run (training, test), each counted once.
        allowed: share of a store's images that may be unreadable; above it the run stops with the list.
    """

    def __init__(self, stores: list[Images], allowed: float):
        self.stores = list({id(store): store for store in stores}.values())
        self.allowed = allowed
        self.known: dict[int, dict[int, str]] = {id(store): {} for store in self.stores}
        for store in self.stores:
            self.add(store, store.failures)

    def add(self, store: Images, failures: dict[int, str]) -> None:
        """Log new failures by name; stop when there are too many.

        Raises:
            InputError: more than ``allowed`` of the images cannot be read.
        """
        known = self.known[id(store)]
        for index, reason in failures.items():
            if index not in known:
                known[index] = reason
                log.warning("skipped unreadable image %s: %s", store.item_id(index), reason)
        require_readable(store, list(known), self.allowed)

    def on_train_batch_start(self, trainer: Any, module: Any, batch: dict[str, Any], batch_idx: int) -> None:
        """Note what the loader could not decode."""
        if batch["failed"]:
            self.add(self.stores[0], dict(batch["failed"]))

    def listed(self) -> list[dict[str, str]]:
        """Names and reasons, for ``data.json``."""
        return [
            {"id": store.item_id(index), "reason": reason}
            for store in self.stores
            for index, reason in sorted(self.known[id(store)].items())
        ]
