"""A simulated shop for the desk: its orders, and a provider of payments as a server of its own.

Run it as `python shop.py`; it writes a line for each refund. Its data is lost when it ends.
"""

import json
import os
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import urlsplit


def payments() -> str:
    """Return the URL of the provider of payments."""
    return os.environ.get("SHOP_PAYMENTS", "http://127.0.0.1:9900")


@dataclass(frozen=True)
class Order:
    """An order of a customer."""

    customer: str
    article: str
    cents: int


ORDERS = {
    "A-1001": Order("ann", "A kettle", 3_900),
    "A-1002": Order("ann", "An espresso machine", 64_900),
    "B-2001": Order("ben", "A grinder", 11_900),
}


@dataclass(frozen=True)
class Refund:
    """A refunded amount."""

    id: str
    order: str
    cents: int


class RefusedError(Exception):
    """The provider rejects the payment; the message gives the reason."""


@dataclass
class Ledger:
    """Payments of the provider. A repeated key denotes the same payment, not a second one."""

    refunds: dict[str, Refund] = field(default_factory=dict[str, Refund])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pay(self, key: str, order: str, cents: int) -> Refund:
        """Pay, once for each key and for each order.

        Raises:
            RefusedError: the order does not exist, was refunded before, or was cheaper.
        """
        with self._lock:
            if key in self.refunds:
                return self.refunds[key]
            if order not in ORDERS:
                raise RefusedError(f"there is no order {order}")
            if any(refund.order == order for refund in self.refunds.values()):
                raise RefusedError(f"order {order} was refunded before")
            if not 0 < cents <= ORDERS[order].cents:
                raise RefusedError(f"order {order} was {ORDERS[order].cents} cents, not {cents}")
            self.refunds[key] = Refund(f"R-{len(self.refunds) + 1}", order, cents)
            return self.refunds[key]


class Provider(ThreadingHTTPServer):
    """Server of `POST /refunds` with the header Idempotency-Key."""

    def __init__(self, ledger: Ledger, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.ledger = ledger

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            ledger = cast("Provider", self.server).ledger
            refund = ledger.pay(self.headers["Idempotency-Key"], asked["order"], asked["cents"])
            self._answer(201, asdict(refund))
        except RefusedError as error:
            self._answer(409, {"error": str(error)})

    def _answer(self, status: int, body: dict[str, object]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    provider = Provider(Ledger(), urlsplit(payments()).port or 80)
    sys.stderr.write(f"payments at {provider.url}; Ctrl-C ends it\n")
    with suppress(KeyboardInterrupt):
        provider.serve_forever()
