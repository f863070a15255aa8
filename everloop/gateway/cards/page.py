"""The page at the gateway's address, for browsers: what runs here, and its agents.

It has no script and loads nothing from elsewhere.
"""

import base64
import hashlib
from html import escape
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from everloop.agents.agent import Agent
from everloop.gateway.cards.card_routes import CACHE_CONTROL, CARD_PATH
from everloop.gateway.cards.cards import Cards
from everloop.version import __version__
from everloop.workflows.contract.http_extension import HTTP_BASE

_STYLE = """
:root { color-scheme: light dark; --dim: #667; --line: #8884; --link: #1a5fb4; }
@media (prefers-color-scheme: dark) { :root { --dim: #99a; --link: #8ab8f0; } }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.6rem; margin: 0; } h1 small { font-size: 1rem; font-weight: normal; color: var(--dim); }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
a { color: var(--link); } p { margin: .5rem 0; } code { font-size: .9em; overflow-wrap: anywhere; }
article { border-top: 1px solid var(--line); padding: .9rem 0; }
article h3 { font-size: 1rem; margin: 0; } article h3 small { font-weight: normal; color: var(--dim); }
pre { overflow-x: auto; padding: .8rem 1rem; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; } td { padding: .35rem .8rem .35rem 0; vertical-align: top; }
"""

_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)

_HEADERS = {
    "Cache-Control": CACHE_CONTROL,
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept",
    "X-Content-Type-Options": "nosniff",
}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>Everloop <small>{version}</small></h1>
<p>This is a gateway to AI agents. Programs talk to them by <a href="https://a2a-protocol.org/">A2A</a>, the
Agent2Agent protocol; every task is kept until it is done, whatever stops in between.</p>
<h2>Agents</h2>
{agents}
<h2>Talk to one</h2>
<pre><code>{example}</code></pre>
<p>{access}</p>
<h2>Addresses</h2>
<table>
{addresses}
</table>
</body>
</html>
"""

_EXAMPLE = """curl {address} -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' -d '{{
  "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {{"message": {{
    "messageId": "m1", "role": "ROLE_USER", "parts": [{{"text": "Hello"}}]}}}}}}'"""


def home_route(cards: Cards, url: str) -> Route:
    """Return the static page at the root, for clients that prefer HTML."""
    body = _page(cards, url)

    async def respond(_: Request) -> Response:
        return HTMLResponse(body, headers=_HEADERS)

    return _ForBrowsers("/", respond, methods=["GET"])


class _ForBrowsers(Route):
    """A route for browsers alone: they accept HTML first, and programs do not name it."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
            return Match.NONE, {}
        accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
        return super().matches(scope) if b"text/html" in accepted.lower() else (Match.NONE, {})


def _page(cards: Cards, url: str) -> str:
    card = cards.merged(cards.agents.default)
    schemes = ", ".join(sorted(card.security_schemes))
    authentication = f"Callers are asked who they are ({schemes}); the cards say how."
    root = urlsplit(url).path
    addresses = [
        ("agents", f"{root}agents", "the agents of this server, as JSON"),
        (CARD_PATH, root + CARD_PATH, "the card of the default agent, with all of its addresses"),
        ("", f"POST {root}", "A2A: JSON-RPC; REST and streams are below the same address"),
        (
            "",
            f"{root.rstrip('/')}{HTTP_BASE}/…",
            "schedules, questions and approvals, and what else A2A has not",
        ),
        ("readyz", f"{root}readyz", "whether it can serve now"),
    ]
    return _PAGE.format(
        title=escape(f"Everloop: {', '.join(agent.name for agent in cards.agents)}"),
        style=_STYLE,
        version=escape(__version__),
        agents="\n".join(_article(cards, agent) for agent in cards.agents),
        example=escape(_EXAMPLE.format(address=url)),
        access=escape(authentication if schemes else "Whoever reaches this server may do everything."),
        addresses="\n".join(_row(url, *each) for each in addresses),
    )


def _article(cards: Cards, agent: Agent) -> str:
    address = cards.address(agent)
    skills = [skill.name for skill in agent.skills]
    line = f"<p>Can: {escape(', '.join(skills))}</p>" if skills else ""
    return (
        f"<article><h3>{escape(agent.name)} <small>{escape(agent.id)}</small></h3>"
        f"<p>{escape(agent.description)}</p>{line}"
        f'<p><code>{escape(address)}</code> · <a href="{escape(address + CARD_PATH)}">card</a></p></article>'
    )


def _row(url: str, path: str, shown: str, what: str) -> str:
    code = f"<code>{escape(shown)}</code>"
    linked = f'<a href="{escape(url + path)}">{code}</a>' if path else code
    return f"<tr><td>{linked}</td><td>{escape(what)}</td></tr>"
