"""Conversion of values to payloads of Temporal: JSON without fields that have their default.

Histories get smaller, and show operators the input of a task without forty lines of defaults. A default
is therefore a part of the wire format, as the name of its field is.
"""

import dataclasses
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, field_serializer
from pydantic_core import SchemaSerializer
from pydantic_core.core_schema import any_schema
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    PayloadConverter,
)

_WRITER = SchemaSerializer(any_schema())


class _Json(PydanticJSONPlainPayloadConverter):
    """Converter that omits defaults, and returns invalid JSON instead of raising."""

    def to_payload(self, value: object) -> Payload:
        data = _WRITER.to_json(value, exclude_defaults=True)
        return Payload(metadata={"encoding": self.encoding.encode()}, data=data)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> object:
        """Return the value; invalid JSON without a type hint is returned unchanged.

        So a handler of signals receives unreadable ones too (`everloop.workflows.human_input`).
        """
        try:
            return super().from_payload(payload, type_hint)
        except ValueError:
            if type_hint is not None:
                raise
            return RawValue(payload)


_USUAL = DefaultPayloadConverter.default_encoding_payload_converters
_JSON = _Json()
_CONVERTERS = CompositePayloadConverter(
    *(_JSON if each.encoding == _JSON.encoding else each for each in _USUAL)
)


class WirePayloadConverter(PayloadConverter):
    """Converter of wire types. Bytes, protobuf and None are converted as by Temporal.

    The SDK makes one for each workflow and several for each call, so it holds nothing: validators are
    built once for all of them.
    """

    def to_payloads(self, values: Sequence[object]) -> list[Payload]:
        return _CONVERTERS.to_payloads(values)

    def from_payloads(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[object]:
        return _CONVERTERS.from_payloads(payloads, type_hints)


WIRE_DATA_CONVERTER = dataclasses.replace(DataConverter.default, payload_converter_class=WirePayloadConverter)
"""The format alone, without encryption, and without a store for large payloads."""


# Base of all values that cross a process boundary.

HIDE_VALUES = ConfigDict(hide_input_in_errors=True)
"""For type adapters: they do not take this from the models that they hold."""


class Wire(BaseModel):
    """An immutable value; fields that a newer version added are ignored by an older reader.

    Validation errors never show values: they go to logs and histories, and the values are user content.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    @field_serializer("kind", "role", check_fields=False)
    def _keep_tag(self, tag: str) -> str:
        """Write the tag of a union's member even where defaults are omitted."""
        return tag  # pydantic does not compare a field with its default that has a serializer of its own
