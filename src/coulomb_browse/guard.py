"""Answers only requests that this server's own page sent from this machine, and forbids the page everything else."""

import hmac
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# No inline code or style, no other host, no HTML from strings (trusted types), no frames, no forms.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",  # the address of the first request has the token
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
MIB = 2**20
MOST_PICTURE, MOST_JSON = 64 * MIB, 8 * MIB
PICTURE = "application/octet-stream"
MOST_QUERY = 20_000  # characters of an address: 2,000 of words, each up to 9 when they are encoded


class Guard:
    """ASGI middleware of one server.

    | a request is refused | because |
    |---|---|
    | with another ``Host`` than 127.0.0.1 or localhost and the port | another site's name may resolve to 127.0.0.1 |
    | without the token, in the address of the page or the cookie | other users and programs of the machine know the port |
    | POST without this page as its ``Origin`` | pages of other sites may send requests to 127.0.0.1 |
    | POST of another content type, or of more than 8 MiB (pictures 64 MiB) | forms cannot send JSON |

    Args:
        app: answers the requests that are not refused.
        token: the secret of the address.
        port: the port of the server.
        ticket: a second secret, which the address may have once: other users see the arguments of the browser's process.
    """

    def __init__(self, app: ASGIApp, token: str, port: int, ticket: str = "") -> None:
        self._app, self._token, self._ticket = app, token, ticket
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"} | ({"127.0.0.1", "localhost"} if port == 80 else set())
        self._cookie = f"coulomb-{port}"  # cookies do not distinguish ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or refuses it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket: there are none
            await send({"type": "websocket.close", "code": 1008})
            return
        by_address = self._enters(scope)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
                if by_address and message["status"] == 200:
                    headers.append("Set-Cookie", f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/")
            await send(message)

        refusal = self._refusal(scope, by_address)
        if refusal is not None:
            status, text = refusal
            await PlainTextResponse(text + "\n", status, {"Connection": "close"})(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _refusal(self, scope: Scope, by_address: bool) -> tuple[int, str] | None:
        """Returns the status and a sentence for a request that is refused."""
        headers, method = Headers(scope=scope), scope["method"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, "This server answers 127.0.0.1 and localhost only."
        if method not in ("GET", "HEAD", "POST"):
            return 405, "Only GET, HEAD and POST are answered."
        if not by_address and not self._has_token(cookie_parser(headers.get("cookie", "")).get(self._cookie, "")):
            return 403, "Open the address that coulomb browse printed: it has the token of this session."
        if method == "POST":
            if headers.get("origin", "") not in {f"http://{host}" for host in self._hosts}:
                return 403, "Requests that change something are accepted from this server's own page only."
            kind = headers.get("content-type", "")
            if kind not in ("application/json", PICTURE):
                return 415, f"Send application/json, or a picture as {PICTURE}."
            length = headers.get("content-length", "")
            if not (length.isascii() and length.isdigit()):
                return 411, "Send the length of the content."
            if len(length) > 12 or int(length) > (MOST_PICTURE if kind == PICTURE else MOST_JSON):
                return 413, "The content is too large."
        return None

    def _has_token(self, given: str) -> bool:
        return _same(given, self._token)

    def _enters(self, scope: Scope) -> bool:
        """Returns True for the address of the page with the token, or for the first time with the ticket."""
        if scope["path"] != "/" or scope["method"] != "GET" or len(scope["query_string"]) > MOST_QUERY:
            return False
        given = parse_qs(scope["query_string"].decode("latin-1"))
        if self._has_token(given.get("token", [""])[0]):
            return True
        if self._ticket and _same(given.get("ticket", [""])[0], self._ticket):
            self._ticket = ""
            return True
        return False


def _same(given: str, secret: str) -> bool:
    """Returns True if both texts are equal; takes constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())
