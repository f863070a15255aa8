"""Files that clients send along, as a model gets them."""

from base64 import b64encode

import pytest
from pydantic import JsonValue

from everloop.activities.model.files import MAX_TEXT_FILE, Place, ReadFiles
from everloop.activities.model.provider import FILE_TOKENS, estimated_usage
from everloop.activities.model.request import build_request, user_text
from everloop.agents.agent import Agent
from everloop.workflows.contract.messages import AssistantMessage, FilePart, StoredPart, TextPart, UserMessage

AGENT = Agent(id="a", name="", description="")
PLACE = ("input-1", 0)
LOOK = TextPart(text="Look:")


def stored(media_type: str, filename: str = "", size: int | None = 2) -> FilePart:
    """Return a file that the gateway has stored."""
    return FilePart(
        media_type=media_type, filename=filename, size=size, stored=StoredPart(artifact_id="input-1")
    )


def text(content: str) -> dict[str, JsonValue]:
    return {"type": "text", "text": content}


def image(url: str) -> dict[str, JsonValue]:
    return {"type": "image_url", "image_url": {"url": url}}


def content_of(part: FilePart, contents: dict[Place, bytes | None], takes: tuple[str, ...]) -> object:
    """Return the content of the message that the provider gets."""
    message = UserMessage(message_id="m", parts=(LOOK, part))
    request = build_request("m", AGENT, [message], files=ReadFiles(takes, contents))
    return request["messages"][0].get("content")


@pytest.mark.parametrize(
    ("part", "content", "takes", "expected"),
    [
        (
            stored("image/png", "a.png"),
            b"hi",
            ("image/*",),
            [
                text("Look:"),
                text("[file a.png, image/png, 2 bytes; artifact input-1]"),
                image("data:image/png;base64,aGk="),
            ],
        ),
        (
            stored("Application/PDF; v=1", "a.pdf"),
            b"hi",
            ("application/pdf",),
            [
                text("Look:"),
                text("[file a.pdf, Application/PDF; v=1, 2 bytes; artifact input-1]"),
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
                },
            ],
        ),
        (
            stored("audio/mpeg"),
            b"hi",
            ("audio/*",),
            [
                text("Look:"),
                text("[file, audio/mpeg, 2 bytes; artifact input-1]"),
                {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
            ],
        ),
        (
            FilePart(media_type="image/png", content=b64encode(b"hi").decode(), size=2),
            None,
            ("image/*",),
            [text("Look:"), text("[file, image/png, 2 bytes]"), image("data:image/png;base64,aGk=")],
        ),
        (
            FilePart(media_type="image/png", url="https://example.org/a.png"),
            None,
            ("image/*",),
            [text("Look:"), image("https://example.org/a.png")],
        ),
        (
            FilePart(media_type="application/pdf", url="https://example.org/a.pdf"),
            None,
            ("application/pdf",),
            "Look:\n\n[file, application/pdf: https://example.org/a.pdf]",
        ),
        (
            FilePart(media_type="image/png", filename="a.png", url="https://example.org/a.png"),
            None,
            (),
            "Look:\n\n[file a.png, image/png: https://example.org/a.png]",
        ),
        (
            stored("image/png", "a.png"),
            b"hi",
            (),
            "Look:\n\n[file a.png, image/png, 2 bytes; artifact input-1]",
        ),
        (
            stored("text/csv", "a.csv"),
            b"a,b",
            (),
            "Look:\n\n[file a.csv, text/csv, 2 bytes; artifact input-1]\na,b",
        ),
        (
            stored("text/csv", "a.csv"),
            b"\xff\xfe",
            (),
            "Look:\n\n[file a.csv, text/csv, 2 bytes; artifact input-1]",
        ),
        (
            stored("text/plain", size=None),
            b"a" * (MAX_TEXT_FILE + 1),
            (),
            "Look:\n\n[file, text/plain; artifact input-1]",
        ),
    ],
)
def test_a_file_is_given_as_the_model_can_take_it(
    part: FilePart, content: bytes | None, takes: tuple[str, ...], expected: object
) -> None:
    """As it is, as text, or as a line; an artifact is named, so that tools can read it."""
    contents: dict[Place, bytes | None] = {PLACE: content} if content else {}

    assert content_of(part, contents, takes) == expected


def test_a_file_that_is_gone_is_told() -> None:
    """Its time to live ended, or somebody deleted it: the task goes on without it."""
    gone = content_of(stored("image/png"), {PLACE: None}, ("image/*",))

    assert gone == "Look:\n\n[file, image/png, 2 bytes; artifact input-1 (no longer available)]"


def test_what_was_said_is_told_with_its_files() -> None:
    """A summary knows of them."""
    message = UserMessage(message_id="m", parts=(LOOK, stored("image/png", "a.png")))

    assert user_text(message) == "Look:\n\n[file a.png, image/png, 2 bytes; artifact input-1]"


def test_a_file_counts_as_so_many_tokens() -> None:
    """Its base64 is no text that the model reads."""
    message = UserMessage(message_id="m", parts=(LOOK, stored("image/png")))
    files = ReadFiles(("image/*",), {PLACE: b"a" * 1_000_000})
    request = build_request("m", AGENT, [message], files=files)

    tokens = estimated_usage(request, AssistantMessage()).input_tokens

    assert FILE_TOKENS < tokens < FILE_TOKENS + 100
