"""Encoders as folders and repositories, by the conventions of huggingface_hub."""

from pathlib import Path
from typing import Any, Protocol, Self


class Exports(Protocol):
    """What saves and opens encoders, `coulomb.export.pretrained`: exports stand above models, which do not import them."""

    def save_pretrained(self, encoder: Any, save_directory: str | Path, **options: Any) -> str | None:
        """Writes an encoder as a folder."""

    def push_to_hub(self, encoder: Any, repo_id: str, **options: Any) -> str:
        """Uploads an encoder."""

    def from_pretrained(self, kind: type[Any], name: str | Path, *, download: dict[str, Any], **options: Any) -> Any:
        """Opens an encoder of a kind."""


class Pretrained:
    """An encoder with the methods of `huggingface_hub.ModelHubMixin`, whose folder `coulomb.export.to_hub` writes.

    Attributes:
        exports: does the work; set by `coulomb.api`.
    """

    exports: Exports

    def save_pretrained(
        self, save_directory: str | Path, *, repo_id: str | None = None, push_to_hub: bool = False, **push_options: Any
    ) -> str | None:
        """Writes the encoder as a folder with a model card, which `from_pretrained` and `coulomb.load` open.

        Args:
            save_directory: the folder, which must not exist or be empty; see `coulomb.export.to_hub` for its files.
            repo_id: name of the repository with ``push_to_hub``; default: the name of the folder.
            push_to_hub: also upload the folder.
            push_options: of `push_to_hub`.

        Returns:
            The address of the commit with ``push_to_hub``, else None.

        Raises:
            InputError: the folder holds something, the encoder cannot be exported, or the hub refuses.

        >>> encoder = coulomb.load("lite0", image_size=64)
        >>> encoder.save_pretrained("my-lite0")
        >>> coulomb.ImageEncoder.from_pretrained("my-lite0").encode(np.zeros((1, 64, 64, 3), np.uint8)).shape
        torch.Size([1, 1280])
        """
        return self.exports.save_pretrained(
            self, save_directory, repo_id=repo_id, push_to_hub=push_to_hub, **push_options
        )

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str | None = None,
        private: bool | None = None,
        token: str | None = None,
        branch: str | None = None,
        create_pr: bool = False,
    ) -> str:
        """Uploads the encoder with its model card to the Hugging Face hub, and returns the address of the commit.

        Args:
            repo_id: name of the repository, ``user/name``; created if needed.
            commit_message: of the commit.
            private: whether a repository that is created here is private; default: as the account says.
            token: of the hub; default: the one of ``hf auth login``, or the environment variable HF_TOKEN.
            branch: to commit to, created if needed; default: main.
            create_pr: propose the commit as a pull request.

        Raises:
            InputError: the encoder cannot be exported, or the hub cannot be reached or refuses.
        """
        return self.exports.push_to_hub(
            self,
            repo_id,
            commit_message=commit_message,
            private=private,
            token=token,
            branch=branch,
            create_pr=create_pr,
        )

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        **options: Any,
    ) -> Self:
        """Opens an encoder of this class: of a folder, or of a repository of the hub that coulomb wrote.

        Args:
            pretrained_model_name_or_path: a folder, ``user/name``, or a name that `coulomb.load` takes.
            revision: branch, tag or commit of the repository.
            token, cache_dir, force_download, local_files_only: of `huggingface_hub.snapshot_download`.
            options: of `coulomb.load`: ``module``, ``image_size``, ``device``.

        Raises:
            InputError: there is no such encoder, or it is of another class; see `coulomb.load`.
        """
        given = {
            "revision": revision,
            "token": token,
            "cache_dir": cache_dir,
            "force_download": force_download,
            "local_files_only": local_files_only,
        }
        download = {option: value for option, value in given.items() if value not in (None, False)}
        opened: Self = cls.exports.from_pretrained(cls, pretrained_model_name_or_path, download=download, **options)
        return opened
