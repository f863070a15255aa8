"""What is base64, and what only looks like it to a lenient decoder."""

import base64

import pytest

from everloop.gateway.requests.proto import is_base64, legacy_file_flaw, legacy_upload_flaw


def params(*parts: object) -> dict[str, object]:
    return {"message": {"parts": list(parts)}}


def file(content: object) -> dict[str, object]:
    return {"kind": "file", "file": {"bytes": content}}


@pytest.mark.parametrize("text", ["", "YQ", "YQ==", "YWI", "YWI=", "YWJj", "-_+/", "AAAAAA=="])
def test_base64_is_taken(text: str) -> None:
    """Both alphabets, with padding or without."""
    assert is_base64(text)


@pytest.mark.parametrize(
    "text",
    [
        "!!!!",
        "Y Q=",
        "YQ==\n",
        "YQ=",
        "YWI==",
        "YWJj=",
        "Y",
        "AAAAA",
        "=",
        "====",
        "YQ==YQ==",
        "é===",
        "YQ=YQ",
    ],
)
def test_what_is_no_base64_is_refused(text: str) -> None:
    """Also as a file of A2A 0.3, where the text names the part and repeats nothing of it."""
    assert not is_base64(text)
    flaw = legacy_file_flaw(params({"kind": "text", "text": "hi"}, file("YQ=="), file(text)))
    assert flaw.startswith("message.parts[2].file.bytes is no base64")
    assert text not in flaw


@pytest.mark.parametrize("outer", ["message", "request"])
@pytest.mark.parametrize("inner", ["fileWithBytes", "file_with_bytes"])
def test_files_of_the_old_version_are_encoded_twice_over_rest(outer: str, inner: str) -> None:
    """As its clients do; a file that was encoded once would become another."""

    def params(content: str) -> dict[str, object]:
        return {outer: {"content": [{"text": "hi"}, {"file": {inner: content}}]}}

    once = base64.b64encode(b"\xff\xfe a file").decode()
    twice = base64.b64encode(once.encode()).decode()

    assert legacy_upload_flaw(params(twice)) == legacy_upload_flaw(params(twice.rstrip("="))) == ""
    assert legacy_upload_flaw(params(once)).startswith("message.content[1].file.fileWithBytes is not encoded")
    assert legacy_upload_flaw({outer: {"content": [5, {"file": 5}, {"file": {inner: 5}}]}}) == ""
