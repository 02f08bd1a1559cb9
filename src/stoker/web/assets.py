"""Static files of the page. They contain no data, so browsers get them without a token."""

from __future__ import annotations

import gzip
import hashlib
import os
from dataclasses import dataclass
from importlib import resources

from stoker.api.asgi import Receive, Scope, Send
from stoker.web.bundle import bundle

_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX = "index.html"
_MAIN = "/main.js"
_ALL_MODULES = "/all.js"


@dataclass(frozen=True)
class Asset:
    """One file, plain and compressed."""

    media: str
    body: bytes
    packed: bytes
    etag: str

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the file, or 304 if the browser has it."""
        asked = dict(scope["headers"])
        known = asked.get(b"if-none-match", b"").decode("latin-1") == self.etag
        is_packed = b"gzip" in asked.get(b"accept-encoding", b"")
        body = b"" if known else self.packed if is_packed else self.body
        headers = [(b"etag", self.etag), (b"cache-control", "no-cache"), (b"connection", "close")]
        if not known:
            headers += [(b"content-type", self.media), (b"content-length", str(len(body)))]
        if is_packed and not known:
            headers.append((b"content-encoding", "gzip"))
        raw = [(name, value.encode("ascii")) for name, value in headers]
        status = 304 if known else 200
        await send({"type": "http.response.start", "status": status, "headers": raw})
        shown = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": shown})


def load_assets() -> dict[str, Asset]:
    """Return all files of the page by their path."""
    with resources.as_file(resources.files("stoker.web") / "static") as folder:
        bodies = {
            _path(os.path.relpath(os.path.join(root, name), folder)): _read(root, name)
            for root, _folders, names in os.walk(folder)
            for name in names
            if os.path.splitext(name)[1] in _MEDIA
        }
    modules = {path: body.decode("utf-8") for path, body in bodies.items() if path.endswith(".js")}
    bodies[_ALL_MODULES] = bundle(modules, _MAIN).encode("utf-8")
    return {path: _make(path, body) for path, body in bodies.items()}


def _path(name: str) -> str:
    return "/" if name == _INDEX else f"/{name}"


def _read(root: str, name: str) -> bytes:
    with open(os.path.join(root, name), "rb") as file:
        return file.read()


def _make(path: str, body: bytes) -> Asset:
    digest = hashlib.sha256(body).hexdigest()[:32]
    media = _MEDIA[os.path.splitext(_INDEX if path == "/" else path)[1]]
    return Asset(media, body, gzip.compress(body, mtime=0), f'"{digest}"')
