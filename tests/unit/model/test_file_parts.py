"""Files of clients, in the form that a model gets."""

from base64 import b64encode

import pytest
from pydantic import JsonValue

from everloop.activities.model.model_files import MAX_TEXT_FILE, AcceptedTypes, Place, ReadFiles
from everloop.activities.model.models import FILE_TOKENS, estimated_usage
from everloop.activities.model.request import build_request, user_text
from everloop.agents.agent import Agent
from everloop.workflows.contract.messages import (
    AssistantMessage,
    FilePart,
    StoredPartRef,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

AGENT = Agent(id="a", name="", description="")
PLACE = ("input-1", 0)
LOOK = TextPart(text="Look:")


def stored(media_type: str, filename: str = "", size: int | None = 2) -> FilePart:
    """Return a file that the gateway has stored."""
    return FilePart(
        media_type=media_type, filename=filename, size=size, stored=StoredPartRef(artifact_id="input-1")
    )


def text(content: str) -> dict[str, JsonValue]:
    return {"type": "text", "text": content}


def image(url: str) -> dict[str, JsonValue]:
    return {"type": "image_url", "image_url": {"url": url}}


def content_of(part: FilePart, contents: dict[Place, bytes | None], takes: str) -> object:
    """Return the message's content for the provider."""
    message = UserMessage(message_id="m", parts=(LOOK, part))
    request = build_request(
        "m", AGENT, [message], files=ReadFiles(AcceptedTypes((takes,) if takes else ()), contents)
    )
    return request.messages[0].get("content")


PNG, CSV = stored("image/png", "a.png"), stored("text/csv", "a.csv")
PDF, AUDIO = stored("Application/PDF; v=1", "a.pdf"), stored("audio/mpeg")
OF_UNKNOWN_SIZE = stored("text/plain", size=None)
LONG = b"a" * MAX_TEXT_FILE
READ_ON = 'read on with read_attachment("input-1", 0, start=100000)]'
PICTURE = b"\x89PNG\r\n\x1a\n"
INLINE = FilePart(media_type="image/png", content=b64encode(PICTURE).decode(), size=8)
PNG_LINK = FilePart(media_type="image/png", filename="a.png", url="https://example.org/a.png")
PDF_LINK = FilePart(media_type="application/pdf", url="https://example.org/a.pdf")
PDF_DATA: JsonValue = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}
AUDIO_DATA: JsonValue = {"data": "aGk=", "format": "mp3"}
PNG_LINE = "[file a.png, image/png, 2 bytes; artifact input-1]"
PDF_LINE = "[file a.pdf, Application/PDF; v=1, 2 bytes; artifact input-1]"
AUDIO_LINE = "[file, audio/mpeg, 2 bytes; artifact input-1]"
CSV_LINE = "[file a.csv, text/csv, 2 bytes; artifact input-1]"
LARGE = stored("text/plain", size=4_200_000)
TEXT_LINE = "[file, text/plain; artifact input-1]"
LARGE_LINE = "[file, text/plain, 4200000 bytes; artifact input-1]"
DATA_URL = f"data:image/png;base64,{b64encode(PICTURE).decode()}"
SVG, HEIC = stored("image/svg+xml"), stored("image/heic")
HEIC_URL = "data:image/heic;base64,aGk="
SVG_LINE = "[file, image/svg+xml, 2 bytes; artifact input-1]"

SEEN = f"[100,000 of 4,200,000 bytes; {READ_ON.replace('100000', '99999')}"
CUT_WITHIN_A_LETTER = f"{LARGE_LINE}\n{LONG[:-1].decode()}\n{SEEN}"
TOO_LONG_INLINE = FilePart(media_type="text/plain", content=b64encode(LONG + b"!").decode(), size=100_001)
UNREACHABLE = "[100,000 of 100,001 bytes; the rest cannot be read]"
CUT_FOR_GOOD = f"[file, text/plain, 100001 bytes]\n{LONG.decode()}\n{UNREACHABLE}"

UNSEEN = ("heic", "bmp", "tiff", "avif", "x-icon", "vnd.microsoft.icon")
NOT_SEEN = "not shown to you: models see PNG, JPEG, GIF and WebP"
NO_TEXT = "not shown to you: it is no text in UTF-8, UTF-16, Windows-1252 or the charset of its type"
HEIC_LINK = FilePart(media_type="image/heic", url="https://example.org/a.heic")
CHARSETS = {"iso-8859-1": "größe,?", "windows-1250": "größe,č", "utf-16-le": "größe,č", "UTF-8": "größe,č"}


def _line(media_type: str, why_not: str = "", name: str = "file") -> str:
    reason = f" ({why_not})" if why_not else ""
    return f"[{name}, {media_type}, 2 bytes; artifact input-1{reason}]"


def _csv(charset: str) -> FilePart:
    return stored(f'text/csv; header=present; Charset="{charset}"')


FILES: list[tuple[FilePart, bytes, str, str | list[dict[str, JsonValue]]]] = [
    (PNG, PICTURE, "image/*", [text(PNG_LINE), image(DATA_URL)]),
    (PNG, b"\xff\xd8\xff", "image/*", [text(PNG_LINE), image("data:image/jpeg;base64,/9j/")]),
    (PNG, b"<html>", "image/*", PNG_LINE.replace("]", " (it is no such picture)]")),
    *((stored(f"image/{kind}"), b"hi", "image/*", _line(f"image/{kind}", NOT_SEEN)) for kind in UNSEEN),
    (HEIC_LINK, b"", "image/*", f"[file, image/heic: {HEIC_LINK.url}]"),
    (HEIC, b"hi", "image/heic", [text("[file, image/heic, 2 bytes; artifact input-1]"), image(HEIC_URL)]),
    (stored("image/jpg"), PICTURE, "image/*", [text(_line("image/jpg")), image(DATA_URL)]),
    (stored("image/jpg"), b"BM", "image/*", _line("image/jpg", "it is no such picture")),
    (SVG, b"<svg/>", "image/*", f"{SVG_LINE}\n<svg/>"),
    (PDF, b"hi", "application/pdf", [text(PDF_LINE), {"type": "file", "file": PDF_DATA}]),
    (AUDIO, b"hi", "audio/*", [text(AUDIO_LINE), {"type": "input_audio", "input_audio": AUDIO_DATA}]),
    (INLINE, b"", "image/*", [text("[file, image/png, 8 bytes]"), image(DATA_URL)]),
    (PNG_LINK, b"", "image/*", [image("https://example.org/a.png")]),
    (PDF_LINK, b"", "application/pdf", "[file, application/pdf: https://example.org/a.pdf]"),
    (PNG_LINK, b"", "", "[file a.png, image/png: https://example.org/a.png]"),
    (PNG, b"hi", "", PNG_LINE.replace("]", " (not shown to you)]")),
    (CSV, b"a,b", "", f"{CSV_LINE}\na,b"),
    (CSV, b"\xef\xbb\xbfa,b", "", f"{CSV_LINE}\na,b"),
    (CSV, "größe,€".encode("cp1252"), "", f"{CSV_LINE}\ngröße,€"),
    (CSV, "größe,漢".encode("utf-16"), "", f"{CSV_LINE}\ngröße,漢"),
    (CSV, b"\xfe\xff" + "größe,漢".encode("utf-16-be"), "", f"{CSV_LINE}\ngröße,漢"),
    (CSV, b"\0\1\xff", "", _line("text/csv", NO_TEXT, "file a.csv")),
    *(
        (
            _csv(charset),
            "größe,č".encode(charset, "replace"),
            "",
            f"{_line(_csv(charset).media_type)}\n{said}",
        )
        for charset, said in CHARSETS.items()
    ),
    (_csv("zlib"), b"gr\xfc\xdf", "", f"{_line(_csv('zlib').media_type)}\ngrüß"),
    (_csv("no-such"), b"gr\xc3\xbc", "", f"{_line(_csv('no-such').media_type)}\ngrü"),
    (_csv("utf-8"), b"gr\xfc\xdf", "", f"{_line(_csv('utf-8').media_type)}\ngrüß"),
    (OF_UNKNOWN_SIZE, b"a,b", "", f"{TEXT_LINE}\na,b"),
    (OF_UNKNOWN_SIZE, LONG, "", f"{TEXT_LINE}\n{LONG.decode()}\n[100,000 bytes; {READ_ON}"),
    (LARGE, LONG[:-1] + b"\xc3", "", CUT_WITHIN_A_LETTER),
    (LARGE, b"\0\xff", "", LARGE_LINE.replace("]", f" ({NO_TEXT})]")),
    (TOO_LONG_INLINE, b"", "", CUT_FOR_GOOD),
]


@pytest.mark.parametrize(("part", "content", "takes", "expected"), FILES)
def test_a_file_is_given_as_the_model_can_take_it(
    part: FilePart, content: bytes, takes: str, expected: str | list[dict[str, JsonValue]]
) -> None:
    """Unchanged, as text, or as a line; an artifact is named, so that tools can read it.

    The type of a picture is that of its first bytes: providers refuse each request with a wrong one.
    """
    given = content_of(part, {PLACE: content} if content else {}, takes)
    assert given == (f"Look:\n\n{expected}" if isinstance(expected, str) else [text("Look:"), *expected])


@pytest.mark.parametrize(
    ("by_agent", "by_model", "taken"),
    [
        (["image/*"], None, True),
        (["image/*"], ["*/*"], True),
        (["image/*"], ["audio/*"], False),
        (["image/*"], [], False),
        ([], ["*/*"], False),
    ],
)
def test_a_model_gets_what_its_agent_and_it_can_take(
    by_agent: list[str], by_model: list[str] | None, *, taken: bool
) -> None:
    """If the model's types are unknown, the agent's count."""
    assert ("image/png" in AcceptedTypes(by_agent, by_model)) is taken


def test_files_of_results_stand_behind_the_last_of_them() -> None:
    """Providers refuse messages between results. Files of types that the model refuses become a line."""
    asks = AssistantMessage(tool_calls=tuple(ToolCall(id=name, name=name, arguments="{}") for name in "ab"))
    first, second = (call.result("done") for call in asks.tool_calls)
    shows = first.model_copy(update={"files": (PNG, PDF)})
    files = ReadFiles(AcceptedTypes(("image/*",)), {PLACE: PICTURE})
    for behind in ([], [AssistantMessage(text="A cat.")]):
        request = build_request("m", AGENT, [asks, shows, second, *behind], files=files)
        roles = [message["role"] for message in request.messages]
        assert roles == ["assistant", "tool", "tool", "user", *("assistant" for _ in behind)]
        assert request.messages[3]["content"] == [
            text("[Files of the results above]"),
            text(PNG_LINE),
            image(DATA_URL),
            text(PDF_LINE.replace("]", " (not shown to you)]")),
        ]


@pytest.mark.parametrize(
    ("part", "content", "offered"),
    [
        (stored("text/plain", size=200_000), LONG, True),
        (stored("text/plain", size=2), b"hi", False),
        (stored("text/plain", size=200_000), b"\xfc" * MAX_TEXT_FILE, True),
        (stored("text/plain", size=200_000), b"\0\xff" * (MAX_TEXT_FILE // 2), False),
        (stored("text/plain", size=200_000), None, False),
        (stored("image/png", size=200_000), b"hi", False),
    ],
)
def test_texts_can_be_read_on_where_there_is_more(
    part: FilePart, content: bytes | None, *, offered: bool
) -> None:
    """In files of clients and of tools."""
    said = UserMessage(message_id="m", parts=(LOOK, part))
    shown = ToolMessage(call_id="c", name="find", content="found", files=(part,))
    for message in (said, shown):
        request = build_request("m", AGENT, [message], files=ReadFiles(AcceptedTypes(), {PLACE: content}))
        assert [tool.name for tool in request.tools] == (["read_attachment"] if offered else [])


def test_a_file_that_is_gone_is_told() -> None:
    """It expired or was deleted: the task goes on without it."""
    gone = content_of(stored("image/png"), {PLACE: None}, "image/*")
    assert gone == "Look:\n\n[file, image/png, 2 bytes; artifact input-1 (no longer available)]"


def test_what_was_said_is_told_with_its_files() -> None:
    """A summary includes them."""
    message = UserMessage(message_id="m", parts=(LOOK, stored("image/png", "a.png")))
    assert user_text(message) == "Look:\n\n[file a.png, image/png, 2 bytes; artifact input-1]"


def test_a_file_counts_as_so_many_tokens() -> None:
    """The model does not read its base64 as text."""
    message = UserMessage(message_id="m", parts=(LOOK, stored("image/png")))
    files = ReadFiles(AcceptedTypes(("image/*",)), {PLACE: PICTURE.ljust(1_000_000)})
    request = build_request("m", AGENT, [message], files=files)
    tokens = estimated_usage((request), AssistantMessage()).input_tokens
    assert FILE_TOKENS < tokens < FILE_TOKENS + 100
