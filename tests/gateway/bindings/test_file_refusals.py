"""File parts that cannot be taken: each refusal says what is wrong and what is expected."""

import base64

import pytest

from tests.gateway.harness import RunningGateway, unique

BAD_PARTS: list[tuple[dict[str, str], str]] = [
    ({"url": "ftp://there/x"}, "parts[0].url is no address of a file"),
    ({"url": "file:///etc/passwd"}, "parts[0].url is no address of a file"),
    ({"url": "/etc/passwd"}, "parts[0].url is no address of a file"),
    ({"url": "http://"}, "parts[0].url is no address of a file"),
    ({"url": "http://a b/"}, "parts[0].url is no address of a file"),
    ({"url": "http://a\nb/"}, "parts[0].url is no address of a file"),
    ({"url": "http://[::1/"}, "parts[0].url is no address of a file"),
    ({"url": "http://a:99999/"}, "parts[0].url is no address of a file"),
    ({"url": "https://me:passwd@a/"}, "parts[0].url has a user name or a password"),
    ({"url": "https://me@a/"}, "parts[0].url has a user name or a password"),
    ({"raw": "name,passwd\n1,2\n"}, "parts[0].raw is no base64; encode the bytes of the file"),
    ({"raw": "data:image/png;base64,iVBORw0KGgo="}, "parts[0].raw is no base64"),
    ({"url": ""}, "parts[0].url is no address of a file"),
    ({"url": "http://a/" + "x" * 2000}, "parts[0].url has 2009 characters; a URL may have 2000"),
    ({"raw": "aGk=", "mediaType": "png"}, "parts[0].mediaType is no media type"),
    ({"raw": "aGk=", "mediaType": "image/png\r\nX: 1"}, "parts[0].mediaType is no media type"),
    ({"raw": "aGk=", "mediaType": "image/*"}, "parts[0].mediaType is no media type"),
    ({"raw": "aGk=", "mediaType": "a/" + "b" * 300}, "parts[0].mediaType is no media type"),
    ({"text": "hi", "mediaType": "text plain"}, "parts[0].mediaType is no media type"),
    ({"raw": "aGk=", "filename": "../x"}, "parts[0].filename is a path; give the name of the file alone"),
    ({"raw": "aGk=", "filename": "a\\b"}, "parts[0].filename is a path"),
    ({"raw": "aGk=", "filename": ".."}, "parts[0].filename is a path"),
    ({"raw": "aGk=", "filename": "a\x00b"}, "parts[0].filename has control characters"),
    ({"url": "http://a/", "filename": "a\nb"}, "parts[0].filename has control characters"),
    ({"raw": "aGk=", "filename": "é" * 128}, "parts[0].filename is too long"),
]


@pytest.mark.parametrize(("part", "words"), BAD_PARTS)
async def test_a_file_part_that_cannot_be_taken_is_refused(
    gateway: RunningGateway, part: dict[str, str], words: str
) -> None:
    """Each refusal names the field, what is wrong with it and what is expected, and repeats no content."""
    message = {"role": "ROLE_USER", "messageId": unique("m"), "parts": [part]}

    answer = await gateway.call("SendMessage", {"message": message})
    error = answer.json()["error"]

    assert error["code"] == -32602
    assert answer.json()["id"] == 1
    assert f"message.{words}" in error["message"]
    assert "passwd" not in error["message"]


MANY: dict[str, list[dict[str, str]]] = {
    "files": [{"raw": base64.b64encode(bytes([number])).decode()} for number in range(101)],
    "copies": [{"raw": "aGk="}] * 101,
    "urls": [{"url": "https://there.example/a"}] * 101,
    "both": [{"raw": "aGk="}, *[{"url": "https://there.example/a"}] * 100],
}


@pytest.mark.parametrize("parts", MANY.values(), ids=MANY)
async def test_a_message_of_too_many_files_is_refused(
    gateway: RunningGateway, parts: list[dict[str, str]]
) -> None:
    """Each part counts, whatever is in it; 100 are taken."""
    message = {"role": "ROLE_USER", "messageId": unique("m"), "parts": parts}

    error = (await gateway.call("SendMessage", {"message": message})).json()["error"]

    assert "has 101 files; one message may have 100" in error["message"]
