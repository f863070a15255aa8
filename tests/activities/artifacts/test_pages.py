"""What the model reads through the tools of the plugin `artifacts`."""

from everloop.agents.artifact_tools import LISTED, PAGE
from tests.support.rigs.artifact_harness import Desk


async def test_a_text_is_read_page_by_page() -> None:
    """Each page says where the next one starts."""
    desk = Desk()
    text = "".join(f"{n:09} " for n in range(PAGE // 5)) + "é"
    await desk.update({"text": text})
    pages: list[str] = []
    for start in (0, PAGE, 2 * PAGE):
        page = await desk.call("get_artifact", artifact_id="doc", start=start)
        head, content = page.content.split("\n", 1)
        assert head.startswith("doc: version 1, building")
        pages.append(content)
    assert pages[0].endswith(f"\n[more from start={PAGE} on]")
    assert "".join(page.split("\n[more")[0] for page in pages) == text
    beyond = await desk.call("get_artifact", artifact_id="doc", start=len(text) + 1)
    assert beyond.content.endswith(f"[the content has {len(text)} characters]")


async def test_a_text_of_one_page_has_no_second() -> None:
    """Nobody asks for a page that is empty."""
    desk = Desk()
    await desk.update({"text": "a" * PAGE})
    page = await desk.call("get_artifact", artifact_id="doc")
    assert page.content.endswith("a" * PAGE)


async def test_several_parts_are_told_apart() -> None:
    """What is no text is described."""
    desk = Desk()
    await desk.update(
        {"text": "One"}, {"data": {"a": 1}}, {"media_type": "image/png", "filename": "a.png", "raw": "aGk="}
    )
    read = await desk.call("get_artifact", artifact_id="doc")
    assert read.content.split("\n", 1)[1] == (
        '[part 0]\nOne\n\n[part 1]\n{"a":1}\n\n[part 2]\n[a.png, image/png, 2 bytes: no text]'
    )


async def test_what_the_user_sent_is_listed_and_read() -> None:
    """A text file is text, whoever made it; an empty one says so."""
    desk = Desk()
    await desk.put("input-1", b"a,b", "text/csv")
    await desk.put("input-2", b"", "text/plain")
    listed = await desk.call("list_artifacts")
    first = await desk.call("get_artifact", artifact_id="input-1")
    second = await desk.call("get_artifact", artifact_id="input-2")
    line = "input-1: version 1, building, 1 part, 3 bytes, text/csv, sent by the user"
    assert line in listed.content.splitlines()
    assert first.content == f"{line}\na,b"
    assert second.content.endswith("[it is empty]")


async def test_a_list_has_an_end() -> None:
    """The newest ones are named."""
    desk = Desk()
    assert (await desk.call("list_artifacts")).content == "There is no artifact yet."
    for number in range(LISTED + 2):
        await desk.put(f"a{number}", b"")
    lines = (await desk.call("list_artifacts")).content.splitlines()
    assert lines[0] == "[2 older ones are left out]"
    assert len(lines) == LISTED + 1
    assert lines[-1].startswith(f"a{LISTED + 1}:")
