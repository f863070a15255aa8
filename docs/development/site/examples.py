"""Shows examples of docstrings as code: mkdocstrings takes them for quotations."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!$|>>> ).*\n?)*)+", re.MULTILINE)
"""Lines for the interpreter, and what it prints, up to an empty line."""


class Examples(griffe.Extension):
    """Puts fences around them."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401 -- griffe's
        """Change the docstring of whatever was found."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return a docstring with its examples as blocks of code."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
