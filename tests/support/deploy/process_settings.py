"""All settings of workers and gateways, found in the code."""

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from everloop.runtime.environment import Settings

ROOT = Path(__file__).parents[3]
PACKAGES = tuple(
    f"everloop/{name}"
    for name in ("activities", "agents", "examples", "gateway", "models", "runtime", "stores", "workers")
)

NOT_DEPLOYED = frozenset({"everloop.examples.conformance_agent"})
"""Modules with settings of agents that are not deployed."""


def process_settings() -> Mapping[str, FieldInfo]:
    """Return the variable of each setting, and its field."""
    return {
        variable: field
        for settings in settings_classes()
        for name, field in settings.model_fields.items()
        for variable in variables_of(settings, name, field)
    }


def settings_classes() -> Iterator[type[Settings]]:
    """Yield the classes that define settings."""
    for module in _modules():
        for each in vars(importlib.import_module(module)).values():
            if isinstance(each, type) and issubclass(each, Settings) and each.__module__ == module:
                yield each


def _modules() -> Iterator[str]:
    """Return the modules that may define settings; others need no import."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            if "(Settings)" in file.read_text(encoding="utf-8") and module not in NOT_DEPLOYED:
                yield module


def variables_of(settings: type[Settings], name: str, field: FieldInfo) -> list[str]:
    """Return the variables of a field."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice).upper() for choice in alias.choices]
    if alias:
        return [str(alias).upper()]
    return [f"{settings.model_config.get('env_prefix', '')}{name}".upper()]
