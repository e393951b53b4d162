"""Uploads encoders to the Hugging Face hub, as the folders that `to_hub` writes."""

import tempfile
from pathlib import Path
from typing import Any

from coulomb.export.extras import library
from coulomb.export.hub_folder import CARD, CONFIG
from coulomb.export.sentence_folder import MODULES, SETTINGS
from coulomb.export.towers import Encoders, to_hub
from coulomb.ground.errors import InputError
from coulomb.ground.reading import read_object, text
from coulomb.ground.version import __version__
from coulomb.models.pair_encoder import DESCRIPTION as TOWERS
from coulomb.training.run import load

RUN = "config.yaml"  # by which a run folder is known
IMAGE_FILES = ("encoder.safetensors", "encoder.json", CONFIG, CARD)
CLASSIFIER = ("classifier.safetensors", "classifier.json")
TEXT_FILES = (MODULES, SETTINGS, CARD)
OF_MODULES = (CONFIG, "model.safetensors", "tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json")
PAIR_FILES = (TOWERS, CONFIG, CARD)


def push(
    source: str | Path | Encoders,
    name: str,
    *,
    commit_message: str | None = None,
    private: bool | None = None,
    token: str | None = None,
    branch: str | None = None,
    create_pr: bool = False,
) -> dict[str, Any]:
    """Uploads an encoder to the Hugging Face hub, from where ``coulomb.load("hf:user/name")`` opens it.

    Only the files that `to_hub` writes are uploaded. Log in first: ``hf auth login``, or the environment variable HF_TOKEN.

    Args:
        source: what `coulomb.load` returns, or a run folder, which `to_hub` writes into a temporary folder first; or a folder
            that `to_hub` wrote, whose card you may have edited.
        name: name of the repository, ``user/name``; created if needed.
        commit_message: of the commit.
        private: whether a repository that is created here is private; default: as the account says.
        token: of the hub; default: the one of ``hf auth login``.
        branch: to commit to, created if needed; default: main.
        create_pr: propose the commit as a pull request.

    Returns:
        ``repository`` and ``url``, and ``commit``, the address of the commit or the pull request.

    Raises:
        InputError: the folder is none of these, see `to_hub`, or the hub cannot be reached or refuses.
    """
    options: dict[str, Any] = {"message": commit_message, "private": private, "token": token}
    options |= {"branch": branch, "create_pr": create_pr}
    if not isinstance(source, str | Path) or (Path(source).expanduser() / RUN).is_file():
        encoder = load(source) if isinstance(source, str | Path) else source
        with tempfile.TemporaryDirectory() as folder:
            to_hub(encoder, written := Path(folder) / "encoder")
            return _upload(written, name, **options)
    return _upload(Path(source).expanduser(), name, **options)


def _upload(
    path: Path,
    name: str,
    *,
    message: str | None,
    private: bool | None,
    token: str | None,
    branch: str | None,
    create_pr: bool,
) -> dict[str, Any]:
    folder = str(path)
    files, needed = _files(path)
    if not files:
        raise InputError(f"folder={folder!r}: was not written by coulomb export; {_AGAIN}")
    if missing := [each for each in needed if not (path / each).is_file()]:
        raise InputError(f"folder={folder!r}: {', '.join(missing)} missing; {_AGAIN}")
    hub: Any = library("huggingface_hub", "train", "hub")
    api = hub.HfApi(token=token)
    try:
        made = api.create_repo(name, private=private, exist_ok=True, repo_type="model")
        if branch is not None:
            api.create_branch(made.repo_id, branch=branch, exist_ok=True)
        commit = api.upload_folder(
            repo_id=made.repo_id,
            folder_path=str(path),
            allow_patterns=list(files),
            commit_message=message or f"Encoder, by coulomb {__version__}",
            revision=branch,
            create_pr=create_pr,
        )
    except Exception as error:  # network, names, permissions: many types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"name={name!r}: the hub refused or was not reached ({type(error).__name__}: {reason}); check the name "
            "(user/name), the network, and that you are logged in: hf auth login"
        ) from error
    return {"repository": made.repo_id, "url": str(made), "commit": commit.pr_url or commit.commit_url}


_AGAIN = "write it by: coulomb export RUN --to hub --out FOLDER"


def _files(path: Path) -> tuple[list[str], tuple[str, ...]]:
    """Returns patterns of the files that an export writes, by its kind, and those that must be there; none for others."""
    modules = [
        f"*_{kind}/{name}" for kind in ("Transformer", "Pooling", "Dense", "StaticEmbedding") for name in OF_MODULES
    ]
    if (path / CONFIG).is_file():
        described = read_object(path / CONFIG, remedy=_AGAIN)
        if described.get("library_name") != "coulomb":
            return [], ()
        if described.get("towers"):
            inside = [f"towers/*/{name}" for name in (*IMAGE_FILES, "tokenizer.json", *TEXT_FILES, *modules)]
            return [*PAIR_FILES, MODULES, SETTINGS, *inside], PAIR_FILES
        read_object(path / CONFIG, {"architecture": text}, remedy=_AGAIN)
        return [*IMAGE_FILES, *CLASSIFIER], IMAGE_FILES
    if (path / SETTINGS).is_file():
        versions = read_object(path / SETTINGS, remedy=_AGAIN).get("__version__")
        if isinstance(versions, dict) and "coulomb" in versions:
            return [*TEXT_FILES, *modules], TEXT_FILES
    return [], ()
