"""What is base64, and what only looks like it to a lenient decoder."""

import pytest

from gateway.raw_parts import raw_flaw


def request(*parts: object) -> dict[str, object]:
    return {"method": "SendMessage", "params": {"message": {"parts": list(parts)}}}


@pytest.mark.parametrize("raw", ["", "YQ", "YQ==", "YWI", "YWI=", "YWJj", "-_+/", "AAAAAA=="])
def test_base64_is_taken(raw: str) -> None:
    """Both alphabets, with padding or without."""
    assert raw_flaw(request({"raw": raw})) == ""


@pytest.mark.parametrize(
    "raw",
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
def test_what_is_no_base64_is_refused(raw: str) -> None:
    """The text names the part and repeats nothing of it."""
    flaw = raw_flaw(request({"text": "hi"}, {"raw": "YQ=="}, {"raw": raw}))

    assert flaw.startswith("message.parts[2].raw is no base64")
    assert raw not in {"", flaw}


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"params": []},
        {"params": {"message": 1}},
        {"params": {"message": {"parts": {}}}},
        request(1, None, {}, {"raw": 5}, {"raw": None}, {"text": "no base64"}),
    ],
)
def test_everything_else_is_not_for_this_check(value: object) -> None:
    """Others say what is wrong with it."""
    assert raw_flaw(value) == ""
