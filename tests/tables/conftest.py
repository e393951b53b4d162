import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of remote tables, empty at first; a request that failed is repeated at once."""
    monkeypatch.setenv("COULOMB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("coulomb.tables.shards.remote.FIRST_PAUSE", 0.001)
    return tmp_path / "cache"
