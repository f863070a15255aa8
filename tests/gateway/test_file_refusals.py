"""File parts that cannot be taken: each refusal says what is wrong and what is expected."""

import base64

import pytest

from tests.gateway.stage import RunningGateway, unique

BAD_PARTS: list[tuple[dict[str, str], str]] = [
    ({"url": "ftp://there/x"}, "parts[0].url is no address of a file"),
    ({"url": "file:///etc/passwd"}, "parts[0].url is no address of a file"),
    ({"url": "/etc/passwd"}, "parts[0].url is no address of a file"),
    ({"url": "http://"}, "parts[0].url is no address of a file"),
    ({"url": "http://a b/"}, "parts[0].url is no address of a file"),
    ({"url": "http://a\nb/"}, "parts[0].url is no address of a file"),
    ({"url": "http://[::1/"}, "parts[0].url is no address of a file"),
    ({"url": "http://a:99999/"}, "parts[0].url is no address of a file"),
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

    error = (await gateway.call("SendMessage", {"message": message})).json()["error"]

    assert error["code"] == -32602
    assert f"message.{words}" in error["message"]
    assert "passwd" not in error["message"]


async def test_a_message_of_too_many_files_is_refused(gateway: RunningGateway) -> None:
    """Each is stored by itself; 100 are taken."""
    parts = [{"raw": base64.b64encode(bytes([number])).decode()} for number in range(101)]
    message = {"role": "ROLE_USER", "messageId": unique("m"), "parts": parts}

    error = (await gateway.call("SendMessage", {"message": message})).json()["error"]

    assert "has 101 files; one message may have 100" in error["message"]
