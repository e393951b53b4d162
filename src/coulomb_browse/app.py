"""The routes of the page: its files, pictures by position in the index, and answers as JSON."""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coulomb.ground.errors import InputError
from coulomb.ground.reading import parse_json
from coulomb_browse.exports import export_csv
from coulomb_browse.guard import MIB, MOST_JSON, MOST_PICTURE, PICTURE, Guard
from coulomb_browse.maps import positions
from coulomb_browse.pictures import preview
from coulomb_browse.session import MOST_ROWS, Session

TYPES = {
    "svg": "image/svg+xml",
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
ONE_DAY = "private, max-age=86400, immutable"  # of pictures: their addresses change with the index


def page_files() -> dict[str, bytes]:
    """Returns the files of the page by name; theme and colors are the same as on coulomb's other pages."""
    shared = resources.files("coulomb.report.pages").joinpath("parts")
    files = {
        entry.name: entry.read_bytes()
        for entry in resources.files("coulomb_browse").joinpath("page").iterdir()
        if entry.name.rpartition(".")[2] in TYPES
    }
    files["shared.css"] = shared.joinpath("page.css").read_bytes()
    files["theme.js"] = shared.joinpath("theme.js").read_bytes() + b"\nexport { theme };\n"
    return files


def create_app(session: Session, *, token: str, port: int, ticket: str = "") -> Guard:
    """Returns the application of one session; see `Guard` for what it refuses."""
    files = page_files()
    # Each may take a gigabyte, and a page can ask for many at once.
    receiving, decoding = asyncio.Lock(), asyncio.Lock()

    async def page(request: Request) -> Response:
        return _file(files, "index.html")

    async def file(request: Request) -> Response:
        return _file(files, request.path_params["name"])

    async def thumbnail(request: Request) -> Response:
        position = session.position(request.path_params["position"])
        return Response(session.index.thumbnail(position), media_type="image/jpeg", headers={"Cache-Control": ONE_DAY})

    async def thumbnails(request: Request) -> Response:
        """Answers with the lengths of many thumbnails as little-endian uint32, and the thumbnails."""
        positions = request.query_params.get("at", "").split(",")
        if len(positions) > MOST_ROWS:
            raise InputError(f"at: {len(positions)} positions are more than {MOST_ROWS}; ask for fewer at once")
        found = [session.index.thumbnail(session.position(position)) for position in positions]
        return Response(struct.pack(f"<{len(found)}I", *map(len, found)) + b"".join(found), media_type=PICTURE)

    async def image(request: Request) -> Response:
        position = session.position(request.path_params["position"])
        async with decoding:
            content = await run_in_threadpool(preview, session.index, position, session.bands)
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=600"})

    async def start(request: Request) -> Response:
        return _json(await run_in_threadpool(session.start))

    async def rows(request: Request) -> Response:
        return _json(session.rows(request.query_params.get("at", "").split(",")))

    async def codes(request: Request) -> Response:
        grouping = session.groupings.get(request.path_params["name"])
        if grouping is None:
            raise InputError("grouping: the index has none of this name; reload the page")
        return Response(grouping.codes.tobytes(), media_type=PICTURE)

    async def map_positions(request: Request) -> Response:
        path, key = session.folder / "maps.npz", request.path_params["key"]
        try:
            return Response(await run_in_threadpool(positions, path, key), media_type=PICTURE)
        except ValueError as error:
            raise InputError(str(error)) from None

    async def find(request: Request) -> Response:
        found = await run_in_threadpool(session.find, request.query_params.get("text", "")[:200])
        return Response(found.tobytes(), media_type=PICTURE)

    async def search(request: Request) -> Response:
        body = await _object(request)
        plus, minus = body.get("plus", []), body.get("minus", [])
        return _json(await run_in_threadpool(session.search, plus, minus, body.get("top", 200)))

    async def upload(request: Request) -> Response:
        if request.headers["content-type"] != PICTURE:
            raise InputError(f"send the picture as {PICTURE}")
        async with receiving:
            content = await _body(request, MOST_PICTURE)
            async with decoding:
                return _json({"upload": await run_in_threadpool(session.uploads.add, content)})

    async def job(request: Request) -> Response:
        options = await _object(request)
        return _json(session.job(request.path_params["name"], options))

    async def decide(request: Request) -> Response:
        body = await _object(request)
        values = body.get("set")
        if not isinstance(values, dict):
            raise InputError("set: must be an object of decisions by position")
        await run_in_threadpool(session.decide, str(body.get("kind")), values)
        return _json({"undoable": session.work.undoable})

    async def undo(request: Request) -> Response:
        return _json(await run_in_threadpool(session.undo))

    async def export(request: Request) -> Response:
        name = request.path_params["name"]
        content = await run_in_threadpool(export_csv, session, name)
        disposition = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
        return Response(content, media_type="text/csv; charset=utf-8", headers=disposition)

    async def wrong(request: Request, error: Exception) -> Response:
        return _json({"error": str(error)}, 400)

    get, post = ["GET"], ["POST"]
    routes = [
        Route("/thumbnail/{position}", thumbnail, methods=get),
        Route("/thumbnails", thumbnails, methods=get),
        Route("/image/{position}", image, methods=get),
        Route("/rows", rows, methods=get),
        Route("/search", search, methods=post),
        Route("/start", start, methods=get),
        Route("/codes/{name}", codes, methods=get),
        Route("/map/{key}", map_positions, methods=get),
        Route("/find", find, methods=get),
        Route("/upload", upload, methods=post),
        Route("/job/{name}", job, methods=post),
        Route("/decide", decide, methods=post),
        Route("/undo", undo, methods=post),
        Route("/export/{name}.csv", export, methods=get),
        Route("/page/{name}", file, methods=get),
        Route("/", page, methods=get),
    ]
    handlers: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {InputError: wrong}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token, port, ticket)


def _file(files: dict[str, bytes], name: str) -> Response:
    if name not in files:
        return Response(status_code=404)
    return Response(files[name], media_type=TYPES[name.rpartition(".")[2]])


def _json(content: Any, status: int = 200) -> Response:
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))  # ASCII: lone surrogates of file names too
    return Response(text, status, media_type="application/json")


async def _body(request: Request, most: int) -> bytes:
    """Returns the content of a request; it may not be larger than ``most``, whatever length it claims."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise InputError(f"the content is larger than {most // MIB} MiB")
        parts.append(part)
    return b"".join(parts)


async def _object(request: Request) -> dict[str, Any]:
    content = await _body(request, MOST_JSON)
    try:
        body = parse_json(content)
    except ValueError as error:
        raise InputError(f"the request is not JSON ({error})") from None
    if not isinstance(body, dict):
        raise InputError("the request is not a JSON object")
    return body
