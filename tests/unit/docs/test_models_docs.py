"""docs/models.md says what ships and what models.toml takes, and its examples work."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from everloop.models.catalogue import Catalogue
from everloop.models.file import EntryTable, ModelTable, ProviderTable
from everloop.models.interface import ModelRequest, TextDelta
from tests.support.deploy.prometheus import ROOT

DOCS = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
SHIPPED = Catalogue.load(None, None, {}).providers
VARIABLES = {"OFFICE_KEY": "key", "OFFICE_SIGN": "sign"}


def block(language: str, words: str = "") -> str:
    """Return the first example in a language with these words in it."""
    found = re.findall(rf"^```{language}\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)
    return next(each for each in found if words in each)


def first_cells(heading: str) -> list[str]:
    """Return the names in the first column of the table that begins with a heading."""
    table = DOCS.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [
        name
        for row in table.splitlines()[2:]
        for name in re.findall(r"`(\w+)`", row.removeprefix("|").partition("|")[0])
    ]


def test_what_ships_is_listed() -> None:
    """Each provider, and the variable of its key."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\|", DOCS, re.MULTILINE))
    listed = {name: rows.get(name) for name in first_cells("provider")}
    assert listed == {name: provider.key_variable for name, provider in SHIPPED.items()}


@pytest.mark.parametrize(
    ("heading", "known"),
    [
        ("of a provider", ProviderTable.model_fields.keys() - EntryTable.model_fields.keys()),
        ("of a provider, or of a model", EntryTable.model_fields.keys()),
        ("of a model", ModelTable.model_fields.keys() - EntryTable.model_fields.keys()),
    ],
)
def test_what_may_stand_in_a_table_is_listed(heading: str, known: set[str]) -> None:
    """Each field, and no other one."""
    assert sorted(first_cells(heading)) == sorted(known)


def test_the_example_of_models_toml_is_read(tmp_path: Path) -> None:
    """It lays over what ships, and adds."""
    file = tmp_path / "models.toml"
    file.write_text(block("toml"), encoding="utf-8")
    catalogue = Catalogue.load(file, "office/qwen3", VARIABLES)

    chosen = catalogue.find(None, "agent")
    assert (chosen.window, chosen.takes, chosen.starts_thinking) == (40_960, ("image/*",), True)
    assert chosen.provider.headers == {"X-Team": "search", "X-Sign": "sign"}
    assert catalogue.providers["deepseek"].concurrency == 20
    assert catalogue.find("ollama/qwen3", "agent").price is not None
    assert "office" not in catalogue.missing


async def test_the_model_of_the_example_answers() -> None:
    """It is written as it stands there."""
    module = ModuleType("acme")
    exec(block("python", "acme.py"), vars(module))  # noqa: S102 -- an example of ours
    model = module.make(SHIPPED["ollama"])
    request = ModelRequest(model="acme/echo", messages=({"role": "user", "content": "Hi there"},))

    deltas = [delta async for delta in model.stream(request, "echo")]
    assert deltas[:-1] == [TextDelta("Hi "), TextDelta("there ")]
    assert deltas[-1].reason == "stop"
