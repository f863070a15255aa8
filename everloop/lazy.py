"""Public names of a package, imported on first use."""

import ast
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path


def lazy_names(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose public names are listed in its `__init__.pyi`.

    Type checkers read the same file. It has a line for each name: `from module import name as name`.
    """

    @cache
    def modules() -> dict[str, str]:
        stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
        imports = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
        return {each.name: str(line.module) for line in imports for each in line.names}

    def names() -> list[str]:
        return sorted(name for name in modules() if not name.startswith("_"))

    def find(name: str) -> object:
        if name == "__all__":
            return names()
        if name not in modules():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules()[name]), name)

    return find, names
