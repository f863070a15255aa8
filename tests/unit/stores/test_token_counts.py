"""Token counts of messages: from local data, or estimated, never downloaded."""

import socket
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from tiktoken import Encoding

from everloop.stores.token_counts import FILE_TOKENS, TokenSettings, counting, estimate_tokens, token_counter
from everloop.workflows.contract.calls import ConversationMessage
from everloop.workflows.contract.messages import (
    AssistantMessage,
    DataPart,
    FilePart,
    Part,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

O200K, CL100K = "fb374d419588a4632f3f557e76b4b70aebbca790", "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"

BYTES = Encoding(
    "bytes",
    pat_str=r"[\s\S]",
    mergeable_ranks={bytes([n]): n for n in range(256)},
    special_tokens={"<|endoftext|>": 256},
)
"""Counts every byte as a token."""


def said(*parts: Part) -> UserMessage:
    return UserMessage(message_id="message", parts=parts)


MESSAGES: Sequence[tuple[ConversationMessage, int, int]] = [
    (said(TextPart(text="12345678")), 2, 8),
    (said(TextPart(text="123456789")), 3, 9),
    (said(TextPart(text="éé")), 1, 4),
    (said(TextPart(text="<|endoftext|>")), 4, 13),
    (said(TextPart(text="1234"), DataPart(data={"a": "é"})), 4, 15),
    (said(FilePart(filename="a", media_type="image/b")), 5 + FILE_TOKENS, 19 + FILE_TOKENS),
    (said(FilePart(media_type="image/b", url="https://x.example/a")), 10 + FILE_TOKENS, 37 + FILE_TOKENS),
    (AssistantMessage(text="1234", reasoning="not recalled", usage={"input_tokens": 5}), 1, 4),  # pyright: ignore[reportArgumentType] -- pydantic makes it a Usage
    (AssistantMessage(tool_calls=(ToolCall(id="call", name="find", arguments='{"a":1}'),)), 3, 11),
    (ToolMessage(call_id="call", name="find", content="12345678"), 2, 8),
]


@pytest.mark.parametrize(("message", "estimated", "counted"), MESSAGES)
def test_the_words_of_a_message_and_four_more_are_its_tokens(
    message: ConversationMessage, estimated: int, counted: int
) -> None:
    """The text for a model counts, ids and reasoning do not."""
    assert estimate_tokens(message) == 4 + estimated
    assert counting(BYTES)(message) == 4 + counted


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Generator[socket.socket]:
    """The proxy of every request of this process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, url)
        yield server


@pytest.mark.parametrize("damage", ["no folder", "no file", "damaged", "a folder"])
def test_data_that_are_not_there_are_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: socket.socket, damage: str
) -> None:
    """Tokens are estimated then, without the download that tiktoken would start."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "" if damage == "no folder" else str(tmp_path))
    for file in (O200K, CL100K):
        if damage == "damaged":
            (tmp_path / file).write_text("IQ== 0\n")
        elif damage == "a folder":
            (tmp_path / file).mkdir()

    assert token_counter(TokenSettings()) is estimate_tokens
    with pytest.raises(BlockingIOError):
        proxy.accept()
