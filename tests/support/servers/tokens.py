"""An issuer of tokens: its keys, the tokens that it signs, and the server where it publishes the keys."""

import json
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example"
AUDIENCE = "everloop"

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

RSA = rsa.generate_private_key(65537, 2048)


@dataclass
class SigningKey:
    """A key pair. `kid` None: its tokens do not name it."""

    algorithm: str = "ES256"
    kid: str | None = "key-1"
    private: PrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def token(self, *, header: Mapping[str, Any] | None = None, **claims: object) -> str:
        """Return a valid token for an hour; claims that are None are left out."""
        now = int(time.time())
        said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 3600, "iat": now, **claims}
        named = {"kid": self.kid} if self.kid else {}
        left = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(left, self.private, self.algorithm, headers={**named, **(header or {})})

    def public(self, **more: str) -> dict[str, Any]:
        """Return the public key as a JWK."""
        key = self.private.public_key()
        match key:
            case rsa.RSAPublicKey():
                known = RSAAlgorithm.to_jwk(key, as_dict=True)
            case ec.EllipticCurvePublicKey():
                known = ECAlgorithm.to_jwk(key, as_dict=True)
            case _:
                known = OKPAlgorithm.to_jwk(key, as_dict=True)
        return {**known, **({"kid": self.kid} if self.kid else {}), **more}

    def pem(self) -> bytes:
        """Return the public key as PEM."""
        return self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.pem())
        return path


@dataclass
class Issuer:
    """A server that publishes keys and counts requests. All but `url` may be changed while it runs.

    With a `release`, answers wait for it; `reached` is set by a request.
    """

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    status: int = 200
    body: str | None = None
    asked: int = 0
    release: threading.Event | None = None
    reached: threading.Event = field(default_factory=threading.Event)


@contextmanager
def running_issuer(*keys: SigningKey) -> Generator[Issuer]:
    """Serve the keys on a free port."""
    issuer = Issuer(keys=[key.public() for key in keys])

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked += 1
            issuer.reached.set()
            if issuer.release:
                issuer.release.wait(30)
            body = (json.dumps({"keys": issuer.keys}) if issuer.body is None else issuer.body).encode()
            self.send_response(issuer.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- as its parent calls it
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    issuer.url = f"http://127.0.0.1:{server.server_port}/jwks.json"
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
