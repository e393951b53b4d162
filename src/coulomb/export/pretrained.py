"""The methods of `coulomb.models.pretrained.Pretrained`: encoders saved, uploaded and opened as huggingface_hub does it."""

from pathlib import Path
from typing import Any

from coulomb.export.towers import Encoders, to_hub
from coulomb.export.upload import push
from coulomb.ground.errors import InputError
from coulomb.models.from_hub import hub_folder, repository_name
from coulomb.models.names import AT_WEIGHTS
from coulomb.training.run import load


def save_pretrained(
    encoder: Encoders,
    save_directory: str | Path,
    *,
    repo_id: str | None = None,
    push_to_hub: bool = False,
    **push_options: Any,
) -> str | None:
    """Writes an encoder as a folder; see `coulomb.models.pretrained.Pretrained.save_pretrained`."""
    if not push_to_hub and (repo_id is not None or push_options):
        name = "repo_id" if repo_id is not None else next(iter(push_options))
        raise InputError(f"{name}: is for push_to_hub=True; add it, or leave {name} out")
    path = Path(save_directory).expanduser()
    if path.is_dir() and not path.is_symlink():
        if any(path.iterdir()):
            raise InputError(f"save_directory={str(save_directory)!r}: is not empty; choose another folder")
        path.rmdir()  # it is written beside its place and renamed
    path.parent.mkdir(parents=True, exist_ok=True)
    to_hub(encoder, path)
    return str(push(path, repo_id or path.name, **push_options)["commit"]) if push_to_hub else None


def push_to_hub(encoder: Encoders, repo_id: str, **options: Any) -> str:
    """Uploads an encoder; see `coulomb.models.pretrained.Pretrained.push_to_hub`."""
    return str(push(encoder, repo_id, **options)["commit"])


def from_pretrained(kind: type[Any], name: str | Path, *, download: dict[str, Any], **options: Any) -> Any:
    """Opens an encoder; see `coulomb.models.pretrained.Pretrained.from_pretrained`.

    Args:
        kind: the class.
        name: a folder, ``user/name``, or a name that `coulomb.load` takes.
        download: options for `coulomb.models.from_hub.hub_folder`.
        options: of `coulomb.load`.
    """
    source: str | Path = name
    repository = None if Path(name).expanduser().is_dir() else repository_name(str(name))
    if repository is not None:
        folder = hub_folder(f"hf:{repository}", **download)
        if folder is None:
            raise InputError(
                f"{str(name)!r}: was not written by coulomb; for weights of transformers give hf:{repository}{AT_WEIGHTS}"
            )
        source = folder
    elif download:
        option = next(iter(download))
        raise InputError(f"{option}={download[option]!r}: is for a repository of the hub, and {str(name)!r} is none")
    opened = load(source, **options)
    if not isinstance(opened, kind):
        raise InputError(
            f"{str(name)!r}: its class is {type(opened).__name__}, not {kind.__name__}; open it with coulomb.load, or with "
            f"{type(opened).__name__}.from_pretrained"
        )
    return opened
