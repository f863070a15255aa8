"""The console: a page, its scripts and styles. It requests data as any client does.

    GET /console, /console/tasks/…      the page; the browser interprets the rest of the address
    GET /console/assets/NAME            files of the page; names change with the content
    GET /console/frame                  frame for pages that agents wrote; it runs no script of theirs

There is no state, no cookie and no call of its own here: the page uses A2A and the extension.
"""

import mimetypes
from base64 import b64encode
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

DIST = Path(__file__).parent / "dist"

MISSING = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Everloop</title>"
    "<h1>The console is not built</h1><p>This installation was made without it. In a clone, run "
    "<code>make console</code>; elsewhere install a wheel that was built where npm can be reached.</p>"
)

SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "font-src 'self'; connect-src 'self'; frame-src 'self' blob:; media-src 'self' blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types everloop dompurify"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
"""Headers of each response: only our scripts, only sanitized HTML, no framing by other sites."""

FRAME_SECURITY = {
    **SECURITY,
    "Content-Security-Policy": (
        "sandbox allow-scripts; default-src 'none'; script-src '{script}'; style-src 'unsafe-inline'; "
        "img-src data:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
}
"""Headers of the frame: an origin of its own, and only the script that receives the content."""

FOR_EVER = "public, max-age=31536000, immutable"


def console_routes(url: str, dist: Path = DIST) -> list[Route]:
    """Return the routes of the console; `url` is the gateway's public address and ends with a slash."""
    console = _Console(url, dist)
    return [
        Route("/console/assets/{name}", console.asset, methods=["GET"]),
        Route("/console/frame", console.frame, methods=["GET"]),
        Route("/console", console.page, methods=["GET"]),
        Route("/console/{path:path}", console.page, methods=["GET"]),
    ]


class _Console:
    def __init__(self, url: str, dist: Path) -> None:
        page = dist / "index.html"
        text = page.read_text(encoding="utf-8") if page.is_file() else MISSING
        # A path without a host, so that assets load under any name of the gateway.
        self._page = text.replace("{{root}}", urlsplit(url).path)
        frame = dist / "frame.html"
        self._frame = frame.read_text(encoding="utf-8") if frame.is_file() else MISSING
        self._frame_security = _frame_security(self._frame)
        self._assets = {file.name: file for file in (dist / "assets").glob("*") if file.is_file()}

    async def page(self, _: Request) -> Response:
        return HTMLResponse(self._page, headers={**SECURITY, "Cache-Control": "no-cache"})

    async def frame(self, _: Request) -> Response:
        return HTMLResponse(self._frame, headers={**self._frame_security, "Cache-Control": "no-cache"})

    async def asset(self, request: Request) -> Response:
        file = self._assets.get(request.path_params["name"])
        if file is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        kind = mimetypes.guess_type(file.name)[0]
        headers = {**SECURITY, "Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
        compressed = self._assets.get(f"{file.name}.gz")
        if compressed and "gzip" in request.headers.get("accept-encoding", ""):
            return FileResponse(compressed, media_type=kind, headers={**headers, "Content-Encoding": "gzip"})
        return FileResponse(file, media_type=kind, headers=headers)


def _frame_security(page: str) -> dict[str, str]:
    """Return the headers of the frame, which allow the script in the page and no other."""
    script = page.partition("<script>")[2].partition("</script>")[0]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = FRAME_SECURITY["Content-Security-Policy"].format(script=f"sha256-{digest}")
    return {**FRAME_SECURITY, "Content-Security-Policy": policy}
