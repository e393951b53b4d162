"""Repositories of the Hugging Face hub that coulomb wrote: ``hf:USER/NAME``."""

from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.reading import read_object
from coulomb.models.names import AT_WEIGHTS

CONFIG = "config.json"  # of encoders of images, and of runs on columns
SETTINGS = "config_sentence_transformers.json"  # of encoders of texts
FILES = ["*.json", "*.safetensors", "README.md"]  # nothing that could run code


def repository_name(name: str) -> str | None:
    """Returns USER/NAME of ``hf:USER/NAME`` or ``USER/NAME``; None for other names, and for weights of transformers.

    >>> repository_name("hf:me/photos"), repository_name("me/photos@weights"), repository_name("./photos")
    ('me/photos', None, None)
    """
    repository = name.removeprefix("hf:")
    if name.endswith(AT_WEIGHTS) or repository.count("/") != 1 or repository[0] in "./~":
        return None
    return repository


def hub_folder(name: str, **download: Any) -> Path | None:
    """Returns the folder with a copy of the repository that ``hf:USER/NAME`` names; None if coulomb did not write it.

    Other names, and ``hf:USER/NAME@weights``, weights of transformers, give None without asking the hub.

    Args:
        name: of the repository.
        download: options of `huggingface_hub.snapshot_download`: ``revision``, ``token``, ``cache_dir``, ….

    Raises:
        InputError: the hub cannot be reached, or has no such repository.
    """
    repository = repository_name(name)
    if repository is None or not name.startswith("hf:"):
        return None
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    unreached: LocalEntryNotFoundError | None = None
    try:
        for file in (CONFIG, SETTINGS):
            try:
                described = read_object(Path(huggingface_hub.hf_hub_download(repository, file, **download)))
            except EntryNotFoundError as error:
                if isinstance(error, LocalEntryNotFoundError):  # the hub was not reached, and there is no copy
                    unreached = error
                continue
            versions = described.get("__version__")
            if described.get("library_name") == "coulomb" or (isinstance(versions, dict) and "coulomb" in versions):
                return Path(huggingface_hub.snapshot_download(repository, allow_patterns=FILES, **download))
        if unreached is not None:
            raise unreached
    except InputError:
        raise
    except Exception as error:  # network, names, permissions: many types
        reason = (str(error).strip().splitlines() or [""])[0]
        raise InputError(
            f"{name!r}: was not found on the hub, or the hub was not reached ({type(error).__name__}: {reason}); for weights "
            f"of transformers give {name}{AT_WEIGHTS}"
        ) from error
    return None
