"""An index of a few real pictures, and the application of its page."""

import shutil

import pytest

from asgi_requests import PORT, TOKEN
from benchmarks.synthetic_index import write_index


@pytest.fixture(scope="session")
def digits_index(digit_tree, tmp_path_factory):
    """The index of 60 digits in 5 classes, by lite0 at 32 pixels."""
    from coulomb.index import Index

    root = tmp_path_factory.mktemp("digits")
    photos = shutil.copytree(digit_tree, root / "photos")
    return Index.build(photos, root / "photos.index", encoder="lite0", image_size=32, workers=0, progress=False).path


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    return write_index(tmp_path_factory.mktemp("written") / "small.index", 300, near=10)


@pytest.fixture
def small(written, tmp_path):
    """An index of 300 synthetic images without files."""
    return shutil.copytree(written, tmp_path / "small.index")


@pytest.fixture
def open_session():
    """Opens sessions, and closes them after the test."""
    from coulomb.index import Index
    from coulomb_browse.session import Session

    opened = []

    def session(path, **options):
        opened.append(Session(Index.open(path), **options))
        return opened[-1]

    yield session
    for one in opened:
        one.work.close()


@pytest.fixture
def open_app(open_session):
    """Returns (application, session) of an index."""
    from coulomb_browse.app import create_app

    def app(path):
        session = open_session(path)
        return create_app(session, token=TOKEN, port=PORT, ticket="once"), session

    return app
