"""An index of a few real pictures, and the application of its page."""

import asyncio
import contextlib
import shutil
import threading

import pytest

from asgi_requests import PORT, TOKEN
from benchmarks.synthetic_index import write_index
from chromium import WIDE, opened


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


@pytest.fixture(scope="module")
def browser():
    with opened("http://127.0.0.1/") as made:
        yield made


@pytest.fixture
def visit(browser):
    """Opens the page of an index; at the end it must have asked nobody else and complained about nothing."""
    import uvicorn

    from coulomb.index import Index
    from coulomb_browse.app import create_app
    from coulomb_browse.serve import listen
    from coulomb_browse.session import Session

    class Server(uvicorn.Server):
        async def shutdown(self, sockets=None):
            await super().shutdown(sockets)
            for connection in list(self.server_state.connections):  # a new one; the end of a process would close it
                connection.transport.abort()
            await asyncio.sleep(0)

    stack, pages, requests, complaints = contextlib.ExitStack(), [], [], []

    def open_page(path, view="images", query="", **options):
        listening = stack.enter_context(contextlib.closing(listen(0)))
        port = listening.getsockname()[1]
        session = Session(Index.open(path))
        stack.callback(session.work.close)
        config = uvicorn.Config(
            create_app(session, token="token", port=port),
            log_level="error",
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        server = Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()

        def stop():
            server.should_exit = True
            thread.join(10)

        stack.callback(stop)
        page = browser.new_page(**({"viewport": WIDE} | options))
        page.on("request", lambda request: requests.append((port, request.url)))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append("dialog") or dialog.dismiss())
        page.goto(f"http://127.0.0.1:{port}/?token=token{query}#{view}")
        pages.append(page)
        page.session, page.stop, page.complaints = session, stop, complaints
        return page

    yield open_page
    for page in pages:
        page.wait_for_timeout(50)
        page.close()
    stack.close()
    assert [url for port, url in requests if not url.startswith((f"http://127.0.0.1:{port}/", "blob:"))] == []
    assert complaints == []
