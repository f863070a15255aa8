"""Kinds that operators bring along: no package for Python has their schemas.

The fields that we use, as the documentation of KEDA 2.21 and the types of the Prometheus operator and of
Temporal's worker controller have them. A field that is not here may exist: look it up, and add it.
"""

from collections.abc import Mapping
from typing import Any

import jsonschema

Schema = Mapping[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_DURATION: Schema = {"type": "string", "pattern": "^([0-9]+(h|m|s))+$"}
_LABELS: Schema = {"type": "object", "minProperties": 1, "additionalProperties": _TEXT}


def _fields(optional: Mapping[str, Schema] | None = None, **required: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


_TEMPORAL_TRIGGER = _fields(
    endpoint=_TEXT,
    namespace=_TEXT,
    taskQueue=_TEXT,
    queueTypes={"enum": ["workflow", "activity", "workflow,activity"]},
    targetQueueSize={"type": "string", "pattern": "^[1-9][0-9]*$"},
    workerDeploymentName=_TEXT,
    workerDeploymentBuildId=_TEXT,
)

_SCALE_DOWN = _fields(
    stabilizationWindowSeconds={"type": "integer", "minimum": 0, "maximum": 3600},
    policies=_list(_fields(type={"enum": ["Pods", "Percent"]}, value=_COUNT, periodSeconds=_COUNT)),
)

_SPECS: Mapping[str, Schema] = {
    "keda.sh/v1alpha1 ScaledObject": _fields(
        scaleTargetRef=_fields(apiVersion=_TEXT, kind=_TEXT, name=_TEXT),
        minReplicaCount=_COUNT,
        maxReplicaCount=_COUNT,
        pollingInterval=_COUNT,
        advanced=_fields(horizontalPodAutoscalerConfig=_fields(behavior=_fields(scaleDown=_SCALE_DOWN))),
        triggers=_list(
            _fields(
                type={"const": "temporal"},
                metadata=_TEMPORAL_TRIGGER,
                optional={"authenticationRef": _fields(name=_TEXT)},
            )
        ),
    ),
    "keda.sh/v1alpha1 TriggerAuthentication": _fields(
        secretTargetRef=_list(_fields(parameter={"const": "apiKey"}, name=_TEXT, key=_TEXT))
    ),
    "monitoring.coreos.com/v1 PodMonitor": _fields(
        selector=_fields(matchLabels=_LABELS),
        podTargetLabels=_list(_TEXT),
        podMetricsEndpoints=_list(_fields(port=_TEXT, path=_TEXT, interval=_DURATION)),
    ),
    "temporal.io/v1alpha1 Connection": _fields(
        hostPort={"type": "string", "pattern": "^[a-zA-Z0-9.-]+:[0-9]+$"}
    ),
    "temporal.io/v1alpha1 WorkerDeployment": _fields(
        replicas=_COUNT,
        workerOptions=_fields(connectionRef=_fields(name=_TEXT), temporalNamespace=_TEXT),
        rollout=_fields(
            strategy={"const": "Progressive"},
            steps=_list(
                _fields(
                    rampPercentage={"type": "integer", "minimum": 1, "maximum": 99}, pauseDuration=_DURATION
                )
            ),
        ),
        sunset=_fields(scaledownDelay=_DURATION, deleteDelay=_DURATION),
        template={"type": "object"},
    ),
}


def validate(resource: Mapping[str, Any]) -> None:
    """Check the specification of a custom resource; the template of pods in it is not looked into.

    Raises `KeyError` for a kind that is not here, and `jsonschema.ValidationError`.
    """
    schema = _SPECS[f"{resource['apiVersion']} {resource['kind']}"]
    jsonschema.validate(resource["spec"], schema)
