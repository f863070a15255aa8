"""Exit 0 if an address answers with success, else 1: `python healthcheck.py http://127.0.0.1:8080/healthz`."""

import sys
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

TIMEOUT = 4
"""Seconds; less than the container engine waits."""


def answers(url: str) -> bool:
    """Whether the address answers with success, asked directly: a proxy is not what runs in here."""
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=TIMEOUT):
            return True
    except HTTPError as refusal:
        refusal.close()
        return False
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(not answers(sys.argv[1]))
