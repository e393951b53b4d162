"""Who is answered: only this server's page, on this machine, with the token."""

import json

import pytest

from asgi_requests import HOST, ORIGIN, PORT, TOKEN, ask, post


@pytest.fixture
def app(open_app, small):
    return open_app(small)[0]


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765"])
def test_this_machine_is_answered(app, host):
    assert ask(app, "/start", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:8765", "", None]
)
def test_another_host_is_refused(app, host):
    answer = ask(app, "/", query=f"token={TOKEN}", headers={"host": host})
    assert answer.status == 421
    assert not answer.cookies
    assert b"<" not in answer.body


PATHS = [
    "/",
    "/start",
    "/thumbnail/0",
    "/thumbnails",
    "/image/0",
    "/rows",
    "/page/main.js",
    "/find",
    "/codes/label",
    "/map/pca",
    "/export/files.csv",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "cookie",
    [None, f"coulomb-{PORT}=wrong", f"coulomb-{PORT}=", f"coulomb-1={TOKEN}", "é=ü", f"coulomb-{PORT}=\udce9"[:-1]],
)
def test_nothing_is_answered_without_the_token(app, path, cookie):
    assert ask(app, path, cookie=cookie).status == 403


@pytest.mark.parametrize(
    "query", ["token=", "token=wrong", "token=%ff%fe", "token=wrong&token=" + TOKEN, "token=" + TOKEN[:-1], "x" * 2000]
)
def test_a_wrong_address_is_refused(app, query):
    assert ask(app, "/", cookie=None, query=query).status == 403


def test_the_token_opens_the_page_only(app):
    assert ask(app, "/start", cookie=None, query=f"token={TOKEN}").status == 403
    answer = ask(app, "/", cookie=None, query=f"token={TOKEN}")
    assert answer.status == 200
    assert answer.cookies == [f"coulomb-{PORT}={TOKEN}; HttpOnly; SameSite=Strict; Path=/"]
    assert TOKEN.encode() not in answer.body
    assert not ask(app, "/").cookies


def test_the_ticket_is_good_once(app):
    assert ask(app, "/", cookie=None, query="ticket=wrong").status == 403
    assert ask(app, "/", cookie=None, query="ticket=once").cookies
    assert ask(app, "/", cookie=None, query="ticket=once").status == 403
    assert ask(app, "/", cookie=None, query="ticket=").status == 403


@pytest.mark.parametrize(
    "origin",
    [None, "null", "http://evil.example", "https://127.0.0.1:8765", "http://127.0.0.1:1", f"{ORIGIN}.evil.example"],
)
@pytest.mark.parametrize("path", ["/decide", "/undo", "/search", "/upload", "/job/choose"])
def test_other_pages_cannot_send_anything(app, path, origin):
    assert post(app, path, {}, headers={"origin": origin}).status == 403


def test_both_names_of_this_machine_may_send(app):
    assert post(app, "/undo", {}).status == 200
    assert post(app, "/undo", {}, headers={"origin": f"http://localhost:{PORT}"}).status == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_forms_are_refused(app, kind):
    assert post(app, "/undo", {}, headers={"content-type": kind}).status == 415


@pytest.mark.parametrize(
    ("length", "status"), [(None, 411), ("-1", 411), ("x", 411), ("٣", 411), (str(2**40), 413), ("9" * 30, 413)]
)
def test_the_length_is_checked_before_reading(app, length, status):
    try:
        sent = {"content-length": None if length is None else length.encode().decode("latin-1")}
        assert post(app, "/undo", {}, headers=sent).status == status
    finally:
        pass


def test_a_body_longer_than_claimed_is_cut(app):
    content = b'{"kind": "file"}' + b" " * (8 * 2**20)
    answer = ask(app, "/decide", method="POST", body=content, headers={"content-length": "10"})
    assert answer.status == 400
    assert "larger than 8 MiB" in answer.json()["error"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_refused(app, method):
    assert ask(app, "/start", method=method).status == 405


@pytest.mark.parametrize(
    "path", ["/", "/start", "/thumbnail/0", "/nothing", "/page/main.js", "/codes/label", "/thumbnail/999"]
)
def test_every_answer_has_the_policy(app, path):
    answer = ask(app, path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in answer.headers


def test_refusals_have_the_policy_too(app):
    assert ask(app, "/", cookie=None).headers["content-security-policy"].startswith("default-src 'none'")


def test_web_sockets_are_closed(app):
    import asyncio

    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(app({"type": "websocket", "path": "/", "headers": [(b"host", HOST.encode())]}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    "path",
    [
        "/page/../session.py",
        "/page/..%2fsession.py",
        "/page/%2e%2e/app.py",
        "/page/",
        "/page/nothing.js",
        "/page//etc/passwd",
        "/etc/passwd",
    ],
)
def test_only_files_of_the_page_are_sent(app, path):
    assert ask(app, path).status == 404


@pytest.mark.parametrize("position", ["300", "-1", "1e2", "01x", "٣", "../0", "0/..", "999999999999999999", "NaN"])
@pytest.mark.parametrize("kind", ["thumbnail", "image"])
def test_pictures_are_found_by_position_only(app, kind, position):
    assert ask(app, f"/{kind}/{position}").status in (400, 404)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"set": NaN}', b"\xff", b'{"kind": 1e999}']
)
@pytest.mark.parametrize("path", ["/decide", "/search", "/job/choose"])
def test_broken_requests_get_a_sentence(app, path, content):
    answer = ask(app, path, method="POST", body=content)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]
