"""Runs the page of an index on 127.0.0.1 until it is stopped."""

import contextlib
import importlib.util
import logging
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from coulomb.ground.errors import InputError

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


def serve(
    index: "Index",
    *,
    port: int = 0,
    open_browser: bool = True,
    query: Mapping[str, str] | None = None,
    ready: Callable[[str], object] = print,
) -> None:
    """Shows the page of ``index`` until Ctrl-C. It answers this machine only, and nobody without its address.

    Args:
        index: that is open.
        port: on 127.0.0.1; 0 takes a free one.
        open_browser: opens the page in the user's browser.
        query: what the page searches for when it opens: ``words``, and ``not``.
        ready: is called with the address, which contains the secret token.

    Raises:
        InputError: starlette or uvicorn is not installed, the port is taken, another process has the index open, or it cannot
            be searched by words.
    """
    require_server()
    import uvicorn

    from coulomb_browse.app import create_app
    from coulomb_browse.session import Session, check_words

    asked = {name: text for name, value in (query or {}).items() if (text := check_words(name, value)) is not None}
    more = f"&{urlencode(asked)}" if asked else ""
    with contextlib.closing(listen(port)) as opened:
        number = opened.getsockname()[1]
        session = Session(index)
        with contextlib.closing(session.work):
            _warn(session)
            if asked and session.no_words:
                raise InputError(session.no_words)
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
            ready(f"http://127.0.0.1:{number}/?token={token}{more}")
            if open_browser:
                address = f"http://127.0.0.1:{number}/?ticket={ticket}{more}"
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
