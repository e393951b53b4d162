"""A web server on loopback that serves byte ranges of a folder after a delay, in a process of its own."""

import multiprocessing
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


@contextmanager
def range_server(folder: Path, delay: float) -> Iterator[str]:
    """Context with the address of a server that waits ``delay`` seconds before each reply."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(folder, delay, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve(folder: Path, delay: float, pipe: Connection) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            """Sends one range."""
            time.sleep(delay)
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            path = folder / Path(self.path).name
            if asked is None or not path.is_file():
                self.send_error(404)
                return
            size = path.stat().st_size
            start, end = int(asked[1]), min(int(asked[2]) + 1, size)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
            self.send_header("Content-Length", str(end - start))
            self.send_header("ETag", f'"{size}-{path.stat().st_mtime_ns}"')
            self.end_headers()
            with path.open("rb") as file:
                self.connection.setblocking(True)
                self.connection.sendfile(file, start, end - start)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    pipe.send(server.server_port)
    server.serve_forever()
