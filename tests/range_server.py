"""A web server on loopback that serves byte ranges, and can be slow, fail, cut connections or change files."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class RangeServer(ThreadingHTTPServer):
    """Serves the files of a folder.

    Attributes:
        delay: seconds before each reply.
        fails: how the next replies fail, one entry each: a status (500), or "cut" for a connection that ends in the middle.
        ranges: whether ranges are served; else whole files are sent.
        versions: ETag by file, None for none; default: size and time of the last change.
        answer: sends the reply to each range instead, given the handler, start, end, and the content of the file.
        requests: (path, start, end) of each request that was answered.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.delay = 0.0
        self.fails: list[int | str] = []
        self.broken: dict[str, int | str] = {}  # files that always fail
        self.ranges = True
        self.versions: dict[str, str | None] = {}
        self.answer: Callable[[Handler, int, int, bytes], object] | None = None
        self.requests: list[tuple[str, int, int]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        pass  # clients that were killed


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RangeServer
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        time.sleep(server.delay)
        name = self.path.lstrip("/")
        path = server.folder / name
        fail = server.broken.get(name) or (server.fails.pop(0) if server.fails else None)
        if isinstance(fail, int) or not path.is_file():
            self.send_response(fail if isinstance(fail, int) else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        status = path.stat()
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, end = (int(match[1]), min(int(match[2]) + 1, status.st_size)) if match else (0, status.st_size)
        partial = server.ranges and match is not None
        if partial and start >= status.st_size:
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if not partial:
            start, end = 0, status.st_size
        if server.answer is not None:
            server.requests.append((name, start, end))
            server.answer(self, start, end, path.read_bytes())
            return
        self.send_response(206 if partial else 200)
        if partial:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{status.st_size}")
        version = server.versions.get(name, f'"{status.st_size}-{status.st_mtime_ns}"')
        if version is not None:
            self.send_header("ETag", version)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        with path.open("rb") as file:
            file.seek(start)
            content = file.read(end - start)
        if fail == "cut":
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
            return
        server.requests.append((name, start, end))
        self.wfile.write(content)


@contextmanager
def range_server(folder: Path) -> Iterator[RangeServer]:
    """Context with a server of a folder."""
    server = RangeServer(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        with contextlib.suppress(OSError):
            server.server_close()
        thread.join()
