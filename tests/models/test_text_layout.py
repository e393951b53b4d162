import pytest

from coulomb.ground.errors import InputError
from coulomb.models.text_layout import Repository

hub = pytest.importorskip("huggingface_hub")
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError  # noqa: E402


class Hub:
    """A hub with these files, perhaps without a connection, of which some were downloaded before."""

    def __init__(self, monkeypatch, files, *, connected=True, cached=()):
        self.files, self.connected, self.cached = files, connected, cached
        monkeypatch.setattr(hub, "hf_hub_download", self.download)
        monkeypatch.setattr(hub, "try_to_load_from_cache", self.load)

    def download(self, name, relative):
        if not self.connected and relative not in self.cached:
            raise LocalEntryNotFoundError("no connection")
        if relative not in self.files:
            raise EntryNotFoundError("no such file")
        return str(self.files[relative])

    def load(self, name, relative):
        return str(self.files[relative]) if relative in self.cached else None


@pytest.fixture
def files(tmp_path):
    (tmp_path / "config.json").write_text('{"vocab_size": 3}')
    return {"config.json": tmp_path / "config.json"}


def test_files_of_the_hub_are_downloaded_one_by_one(files, monkeypatch):
    Hub(monkeypatch, files)
    repository = Repository("someone/model", "hf:someone/model")
    assert repository.entries("config.json") == {"vocab_size": 3}
    assert repository.file("modules.json") is None and repository.json("modules.json") is None


def test_without_a_connection_what_was_downloaded_is_all(files, monkeypatch):
    Hub(monkeypatch, files, connected=False, cached=("config.json",))
    repository = Repository("someone/model", "hf:someone/model")
    assert repository.entries("config.json") == {"vocab_size": 3} and repository.file("modules.json") is None


def test_without_a_connection_and_files_the_name_is_said(files, monkeypatch):
    Hub(monkeypatch, files, connected=False)
    with pytest.raises(InputError, match="hf:someone/model.*config.json could not be downloaded"):
        Repository("someone/model", "hf:someone/model").entries("config.json")


@pytest.mark.parametrize("name", ["a/b/c", "-", "some one/model"])
def test_names_that_no_repository_has(name):
    with pytest.raises(InputError, match="no such repository"):
        Repository(name, f"hf:{name}").file("config.json")
