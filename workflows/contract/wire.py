"""The base of everything that crosses a process boundary."""

from pydantic import BaseModel, ConfigDict, field_serializer

HIDE_VALUES = ConfigDict(hide_input_in_errors=True)
"""For type adapters: they do not take this from the models that they hold."""


class Wire(BaseModel):
    """An immutable value; fields that a newer version added are ignored by an older reader.

    What does not fit is never shown: errors go to logs and histories, and the values are what people wrote.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    @field_serializer("kind", "role", check_fields=False)
    def _keep_tag(self, tag: str) -> str:
        """Write what tells the members of a union apart also where defaults are left out."""
        return tag  # pydantic does not compare a field with its default that has a serializer of its own
