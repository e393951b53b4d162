"""Asks an ASGI application without a socket, and opens sessions."""

import asyncio
import json
from dataclasses import dataclass

TOKEN, PORT = "secret-token", 8765
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"


@dataclass
class Answer:
    status: int
    headers: dict
    cookies: list
    body: bytes

    def json(self):
        return json.loads(self.body)


def ask(app, path, **options):
    """One request, see `answer`."""
    return asyncio.run(answer(app, path, **options))


async def answer(app, path, *, method="GET", body=b"", headers=None, cookie=f"coulomb-{PORT}={TOKEN}", query=""):
    """One request; ``headers`` replace the usual ones, None removes one."""
    usual = {"host": HOST, "cookie": cookie or None}
    if method == "POST":
        usual |= {"origin": ORIGIN, "content-type": "application/json", "content-length": str(len(body))}
    sent = {name: value for name, value in (usual | (headers or {})).items() if value is not None}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items()],
        "server": ("127.0.0.1", PORT),
        "client": ("127.0.0.1", 1),
    }
    messages, unread = [], [body]

    async def receive():
        return (
            {"type": "http.request", "body": unread.pop(), "more_body": False}
            if unread
            else {"type": "http.disconnect"}
        )

    async def send(message):
        messages.append(message)

    await app(scope, receive, send)
    start = messages[0]
    pairs = [(name.decode().lower(), value.decode()) for name, value in start["headers"]]
    content = b"".join(message.get("body", b"") for message in messages[1:])
    return Answer(start["status"], dict(pairs), [value for name, value in pairs if name == "set-cookie"], content)


def post(app, path, content, **options):
    return ask(app, path, method="POST", body=json.dumps(content).encode(), **options)
