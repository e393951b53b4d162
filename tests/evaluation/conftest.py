import pytest


@pytest.fixture
def fine_tuning_updates(monkeypatch):
    """Sets the number of updates of every fine-tuning."""

    def set_updates(updates):
        monkeypatch.setattr("coulomb.evaluation.fine_tuning.LEAST_UPDATES", updates)
        monkeypatch.setattr("coulomb.evaluation.fine_tuning.MOST_UPDATES", updates)

    return set_updates
