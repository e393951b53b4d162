import pytest


@pytest.fixture(params=[2**21, 100], ids=["one strip", "many strips"])
def strip(request, monkeypatch):
    """Runs a test with all cosines in one strip and with strips of a few rows: the results must agree."""
    monkeypatch.setattr("coulomb.metrics.cosines.STRIP", request.param)
