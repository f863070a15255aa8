"""A relay before an S3 server, which loses or damages the traffic."""

import http.client
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

from everloop.local.servers import LOOPBACK

_OF_A_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "expect"})


def unchanged(content: bytes) -> bytes:
    """Return a body unchanged."""
    return content


def flipped(content: bytes) -> bytes:
    """Return a body with another first byte."""
    return bytes([content[0] ^ 1]) + content[1:] if content else content


@dataclass
class Relay:
    """The recorded requests, each as `METHOD /path?query`, and the rules for later ones.

    Requests that it `loses` do not reach the server, and their connection is closed; nor do those that it
    `refuses` with the code that this returns, as S3 does. Bodies of others pass through `sent`, and those of
    answers through `answered`; the announced length stays the old one. `uploads` are the contents that were
    put, with the announced checksums.
    """

    endpoint: str
    requests: list[str] = field(default_factory=list[str])
    uploads: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    loses: Callable[[str], bool] = lambda _: False
    refuses: Callable[[str], str] = lambda _: ""
    sent: Callable[[bytes], bytes] = unchanged
    answered: Callable[[bytes], bytes] = unchanged

    def refusal(self, request: str) -> tuple[int, dict[str, str], bytes] | None:
        """Return status, headers and body of a refused request."""
        if not (code := self.refuses(request)):
            return None
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        return 403, {"Content-Type": "application/xml", "Content-Length": str(len(body))}, body


@contextmanager
def running_s3_relay(target: str) -> Generator[Relay]:
    """Yield a relay to this endpoint. Signatures stay valid, because the host name is forwarded."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            self.close_connection = True
            request = f"{self.command} {self.path}"
            relay.requests.append(request)
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if relay.loses(request):
                return
            if self.command == "PUT" and content:
                relay.uploads.append((self.headers.get("x-amz-content-sha256", ""), content))
            status, headers, answer = relay.refusal(request) or self._ask(relay.sent(content))
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(relay.answered(answer))

        def _ask(self, content: bytes) -> tuple[int, dict[str, str], bytes]:
            with closing(http.client.HTTPConnection(urlsplit(target).netloc, timeout=30)) as connection:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in _OF_A_CONNECTION:
                        connection.putheader(name, value)
                connection.putheader("Content-Length", str(len(content)))
                connection.endheaders(content)
                response = connection.getresponse()
                answer = response.read()
            headers = {
                name: value for name, value in response.getheaders() if name.lower() not in _OF_A_CONNECTION
            }
            length = response.getheader("Content-Length") or str(len(answer))
            return response.status, {**headers, "Content-Length": length}, answer

        # The names are those of http.server.
        # ruff: disable[N815]
        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on
        # ruff: enable[N815]

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        relay = Relay(f"http://{LOOPBACK}:{server.server_port}")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield relay
        finally:
            server.shutdown()
            thread.join()
