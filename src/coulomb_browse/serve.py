"""Runs the page of an index on 127.0.0.1 until it is stopped."""

import contextlib
import importlib.util
import logging
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from typing import TYPE_CHECKING

from coulomb.ground.errors import InputError
from coulomb.index.kinds import require_images

if TYPE_CHECKING:
    from coulomb.index import Index
    from coulomb_browse.session import Session

log = logging.getLogger("coulomb")


def require_server() -> None:
    """Raises `InputError` unless the packages of the server are installed."""
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"browse: needs {' and '.join(missing)}; pip install 'coulomb[train,browse]'")


def listen(port: int) -> socket.socket:
    """Returns a socket that listens on 127.0.0.1; ``port`` 0 takes a free one.

    Raises:
        InputError: the port is taken or not allowed.
    """
    opened = socket.socket()
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(("127.0.0.1", port))
        opened.listen(128)
    except (OSError, OverflowError) as error:
        opened.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"port={port}: cannot be used ({reason}); give another, or none for a free one") from None
    return opened


def serve(index: "Index", *, port: int = 0, open_browser: bool = True, ready: Callable[[str], object] = print) -> None:
    """Shows the page of ``index`` until Ctrl-C. It answers this machine only, and nobody without its address.

    Args:
        index: that is open.
        port: on 127.0.0.1; 0 takes a free one.
        open_browser: opens the page in the user's browser.
        ready: is called with the address, which contains the secret token.

    Raises:
        InputError: starlette or uvicorn is not installed, the port is taken, or another process has the index open.
    """
    require_server()
    require_images(index.info, index.path, "coulomb browse")
    import uvicorn

    from coulomb_browse.app import create_app
    from coulomb_browse.session import Session

    with contextlib.closing(listen(port)) as opened:
        number = opened.getsockname()[1]
        session = Session(index)
        with contextlib.closing(session.work):
            _warn(session)
            token, ticket = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
            app = create_app(session, token=token, port=number, ticket=ticket)
            config = uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=1,
            )
            ready(f"http://127.0.0.1:{number}/?token={token}")
            if open_browser:
                address = f"http://127.0.0.1:{number}/?ticket={ticket}"
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
            with contextlib.suppress(KeyboardInterrupt):  # uvicorn has ended the connections and raises it again
                uvicorn.Server(config).run(sockets=[opened])


def _warn(session: "Session") -> None:
    work = session.work
    if work.damaged:
        log.warning("%s: %d lines cannot be read and are ignored (the last may be cut off)", work.path, work.damaged)
    if not work.locked:
        log.warning("%s: cannot be locked here; do not browse this index in two processes at once", work.path)
    if session.folder.parent != session.index.path:
        log.info("decisions are saved in %s", session.folder)
