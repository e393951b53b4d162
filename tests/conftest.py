import pytest

from processes import Processes


@pytest.fixture(scope="session")
def processes(tmp_path_factory):
    pool = Processes(tmp_path_factory.mktemp("processes"))
    yield pool
    pool.stop()
