"""One POST: where it goes, where it does not, and how long it may take."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import httpcore
import pytest

from everloop.activities.push.delivery import MOST_BYTES, RefusedError, UndeliveredError, Webhooks
from everloop.local.servers import LOOPBACK
from everloop.runtime.outbound.backend import OutboundBackend
from everloop.runtime.outbound.policy import WebhookPolicy, read_allowance
from tests.support.rigs.push_rig import LOOPBACK_ALLOWED
from tests.support.servers.tls import certificate_of
from tests.support.servers.webhook import running_webhook

PUBLIC = "93.184.216.34"


class Names:
    """A resolver that gives other addresses each time it is asked; the last ones for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@asynccontextmanager
async def raw_server(answer: bytes, pause: float = 0) -> AsyncGenerator[str]:
    """Answer each request with these bytes, one after the other with a pause after each if there is one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in [answer] if not pause else [bytes([byte]) for byte in answer]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    async with server:
        yield f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/hook"


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:{port}/elsewhere", "http://169.254.169.254/", "/elsewhere"]
)
async def test_redirects_are_not_followed(target: str) -> None:
    """No redirect is followed; the answer is the redirect."""
    async with running_webhook() as hook, running_webhook() as elsewhere:
        hook.script = [(307, {"Location": target.format(port=elsewhere.port)})]
        answer = await Webhooks(LOOPBACK_ALLOWED).post(hook.url, b"{}", {})
    assert answer.status == 307
    assert len(hook.refused) == 1
    assert hook.taken == elsewhere.taken == []


@pytest.mark.parametrize("address", [LOOPBACK, "::ffff:127.0.0.1", "0.0.0.0", "10.0.0.1"])
async def test_nothing_is_sent_to_a_private_address(address: str) -> None:
    """A name that leads to a private address at the time of delivery gets no request."""
    async with running_webhook() as hook:
        names = Names([PUBLIC], [address])
        webhooks = Webhooks(policy := WebhookPolicy(resolver=names))
        url = f"https://rebound.example:{hook.port}/hook"
        await policy.check(url)
        with pytest.raises(RefusedError, match=r"rebound\.example leads to a private"):
            await webhooks.post(url, b"{}", {})
    assert names.asked == [("rebound.example", hook.port)] * 2
    assert hook.refused == hook.taken == []


async def test_the_address_that_was_judged_is_the_one_that_is_used() -> None:
    """The name is looked up once for each delivery, so that the checked address is the one connected to."""
    async with running_webhook() as hook:
        names = Names([LOOPBACK], ["10.0.0.1"])
        policy = WebhookPolicy(read_allowance("127.0.0.0/8"), names)
        answer = await Webhooks(policy).post(f"http://hook.example:{hook.port}/hook", b"{}", {})
    assert answer.status == 204
    assert len(names.asked) == 1
    assert hook.taken[0].headers["host"] == f"hook.example:{hook.port}"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (socket.gaierror("hook.example:443 is not known"), "no answer from the webhook"),
        (TimeoutError("hook.example:443 was not looked up within 3 s"), r"hook\.example:443 was not looked"),
    ],
    ids=["not known", "not in time"],
)
async def test_a_name_that_is_not_found_is_tried_again(error: Exception, told: str) -> None:
    """An unknown name is retried, because it may be new; other errors tell the operator where to look."""

    async def look_up(host: str, port: int) -> list[str]:
        raise error

    with pytest.raises(UndeliveredError, match=told):
        await Webhooks(WebhookPolicy(resolver=look_up)).post("https://hook.example/hook", b"{}", {})


async def test_the_next_address_is_tried() -> None:
    """If an address of a host does not answer, the next one is tried."""
    async with running_webhook() as hook:
        policy = WebhookPolicy(read_allowance("127.0.0.0/8"), Names(["127.0.0.9", LOOPBACK]))
        answer = await Webhooks(policy).post(f"http://hook.example:{hook.port}/hook", b"{}", {})
    assert answer.status == 204


async def test_without_tls_only_what_the_operator_allows() -> None:
    """Without TLS, only addresses that the operator allows are asked, and no other public one."""
    with pytest.raises(RefusedError, match="use https"):
        await Webhooks(WebhookPolicy(resolver=Names([PUBLIC]))).post("http://example.com/hook", b"{}", {})


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies of the environment are not used, because they resolve names themselves."""
    async with running_webhook() as hook, running_webhook() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{LOOPBACK}:{proxy.port}")
        await Webhooks(LOOPBACK_ALLOWED).post(hook.url, b"{}", {})
    assert (len(hook.taken), len(proxy.taken)) == (1, 0)


async def test_each_delivery_has_a_connection_of_its_own() -> None:
    """Each delivery has a connection of its own, because a reused one would not be checked."""
    async with running_webhook() as hook:
        webhooks = Webhooks(LOOPBACK_ALLOWED)
        for _ in range(2):
            await webhooks.post(hook.url, b"{}", {})
    assert [each.headers.get("connection") for each in hook.taken] == ["close", "close"]


async def test_a_webhook_that_does_not_answer_has_not_taken_it() -> None:
    """A webhook that does not answer within some seconds has not accepted the notification."""
    async with running_webhook() as hook:
        hook.script = ["hang"]
        with pytest.raises(UndeliveredError, match="did not answer within"):
            await Webhooks(LOOPBACK_ALLOWED, time_limit=0.3).post(hook.url, b"{}", {})


async def test_an_answer_that_trickles_does_not_take_longer() -> None:
    """The time limit covers the complete answer, not each piece of it."""
    slow = b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1_000
    async with raw_server(slow, pause=0.05) as url:
        with pytest.raises(UndeliveredError, match="did not answer within"):
            await Webhooks(LOOPBACK_ALLOWED, time_limit=0.3).post(url, b"{}", {})


@pytest.mark.parametrize("length", [b"", b"Content-Length: 100000000000\r\n"])
async def test_of_a_long_answer_only_the_beginning_is_read(length: bytes) -> None:
    """Of a long answer only the beginning is read, and its status counts."""
    async with raw_server(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + b"x" * 10_000_000) as url:
        answer = await Webhooks(LOOPBACK_ALLOWED).post(url, b"{}", {})
    assert answer.status == 200


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["binary", "no status", "nothing", "headers", "heads"],
)
async def test_nonsense_is_no_answer(nonsense: bytes) -> None:
    """Invalid data, or too many headers, is a failure without load for the process."""
    async with raw_server(nonsense) as url:
        with pytest.raises(UndeliveredError, match="no answer"):
            await Webhooks(LOOPBACK_ALLOWED).post(url, b"{}", {})


async def test_peers_that_a_card_names_may_answer_more() -> None:
    """Peers of a card are checked by the address policy of webhooks; their answers have other bounds."""
    content = b"x" * 10 * MOST_BYTES
    backend = OutboundBackend(LOOPBACK_ALLOWED, is_plain=True)
    async with (
        raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content) as url,
        httpcore.AsyncConnectionPool(network_backend=backend) as pool,
    ):
        assert (await pool.request("GET", url)).content == content


async def test_nobody_listens() -> None:
    """The message of a refused connection has no address."""
    with socket.socket() as unused:
        unused.bind((LOOPBACK, 0))
        url = f"http://{LOOPBACK}:{unused.getsockname()[1]}/secret"
        with pytest.raises(UndeliveredError, match="no answer") as failed:
            await Webhooks(LOOPBACK_ALLOWED).post(url, b"{}", {})
    assert "secret" not in str(failed.value)
    assert failed.value.__cause__ is None


@pytest.mark.parametrize(
    ("name", "is_trusted", "is_taken"),
    [("hook.example", True, True), ("other.example", True, False), ("hook.example", False, False)],
)
async def test_a_server_needs_the_certificate_of_its_name(
    name: str,
    is_trusted: bool,  # noqa: FBT001 -- a column of the table
    is_taken: bool,  # noqa: FBT001 -- a column of the table
) -> None:
    """A server needs a trusted certificate for the name in the URL; otherwise no request is sent."""
    server, client = certificate_of(name)
    policy = WebhookPolicy(read_allowance("127.0.0.0/8"), Names([LOOPBACK]))
    async with running_webhook(tls=server) as hook:
        webhooks = Webhooks(policy, tls=client if is_trusted else None)
        posting = webhooks.post(f"https://hook.example:{hook.port}/hook", b"the content", {})
        if is_taken:
            assert (await posting).status == 204
        else:
            with pytest.raises(UndeliveredError, match="no answer"):
                await posting
    assert [each.content for each in hook.taken] == [b"the content"] * is_taken
