"""The base of everything that crosses a process boundary."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """An immutable value; fields that a newer version added are ignored by an older reader."""

    model_config = ConfigDict(frozen=True, extra="ignore")
