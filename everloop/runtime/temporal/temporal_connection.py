"""The connection of workers and gateways to Temporal."""

import os
import re
from collections.abc import Sequence
from datetime import timedelta

from temporalio.client import Client, Plugin
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.service import KeepAliveConfig, RPCError, RPCStatusCode

from everloop.runtime.blobs import Blobs
from everloop.runtime.encryption.key_file import EncryptionSettings
from everloop.runtime.environment import StartError, is_utf8
from everloop.runtime.temporal.blob_payloads import MissingPayloads, data_converter
from everloop.runtime.temporal.describe import namespace_id, problem_of_search_attributes

DEFAULT_ADDRESS = "localhost:7233"

KEEP_ALIVE = KeepAliveConfig(interval_millis=15_000, timeout_millis=10_000)
"""Detects a connection lost in a router or load balancer within 25 s, in place of the SDK's 45. Temporal
drops clients that ping more often than every 10 s (`frontend.keepAliveMinTime`)."""

NAMESPACE_TIMEOUT = timedelta(seconds=10)
"""Timeout of the namespace check at start; without an answer the process starts anyway."""

_QUOTED = re.compile(r':?\s*".*')
_NOT_CONNECTED = re.compile(r'ConnectError\("(?:tcp connect|dns) error".*?(?:message|error): "([^"]+)"')


class TemporalUnreachableError(StartError):
    """Temporal does not answer, the namespace does not exist, or the settings are invalid.

    The message names the remedy.
    """


async def connect_temporal(plugins: Sequence[Plugin] = (), blobs: Blobs | None = None) -> Client:
    """Connect with the profile of Temporal's own environment variables and configuration file.

    TEMPORAL_ADDRESS (default localhost:7233), TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_* and
    TEMPORAL_CONFIG_FILE apply, as for the `temporal` command (`temporalio.envconfig`). Payloads of 256
    KB and more are stored in `blobs`; without it they stay in history. If EVERLOOP_ENCRYPTION_KEYS_FILE
    names keys, all are encrypted.

    Raises:
        TemporalUnreachableError: no connection, or the settings are invalid.
        ValidationError: the key file is invalid.
    """
    return await _connect(plugins, data_converter(blobs, cipher=EncryptionSettings().cipher))


async def connect_worker(plugins: Sequence[Plugin], blobs: Blobs) -> Client:
    """Connect as `connect_temporal` does; workflows whose payloads are lost are ended too.

    Raises:
        TemporalUnreachableError: no connection, or the settings are invalid.
        StartError: the namespace lacks search attributes.
        ValidationError: the key file is invalid.
    """
    lost = MissingPayloads()
    lost.client = await _connect(plugins, data_converter(blobs, lost, EncryptionSettings().cipher))
    await check_search_attributes(lost.client)
    return lost.client


async def _connect(plugins: Sequence[Plugin], converter: DataConverter) -> Client:
    config = _read_settings()
    try:
        client = await Client.connect(
            **config, data_converter=converter, plugins=plugins, keep_alive_config=KEEP_ALIVE
        )
    except ValueError as error:
        raise TemporalUnreachableError(_problem(error)) from error
    except RuntimeError as error:
        raise TemporalUnreachableError(
            f"cannot reach Temporal at {config.get('target_host')}: {_reason(error)}. "
            "Start it (`everloop dev` or `up` runs one), or set TEMPORAL_ADDRESS to host:port"
        ) from error
    await _check_namespace(client, config)
    return client


def _reason(error: RuntimeError) -> str:
    """Return the reason of a failed connection without Rust's debug formatting."""
    refused = _NOT_CONNECTED.search(str(error))
    return refused[1] if refused else str(error)


async def _check_namespace(client: Client, config: ClientConnectConfig) -> None:
    """Check that the namespace exists: a gateway would otherwise serve and find no task.

    A caller without permission, as with some keys of Temporal Cloud, skips the check.

    Raises:
        TemporalUnreachableError: the namespace does not exist.
    """
    try:
        await namespace_id(client, rpc_timeout=NAMESPACE_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise TemporalUnreachableError(
                f"Temporal at {config.get('target_host')} has no namespace {client.namespace!r}. Correct "
                "TEMPORAL_NAMESPACE (or `namespace` in the file that TEMPORAL_CONFIG_FILE names), or create "
                "it: "
                f"everloop temporal operator namespace create --namespace {client.namespace}"
            ) from error


async def check_search_attributes(client: Client) -> None:
    """See that the namespace has our search attributes: without them no task can be started.

    Who may not ask, as with some keys of Temporal Cloud, finds out at the first task.

    Raises:
        StartError: it lacks some; the message has the command that makes them.
    """
    try:
        problem = await problem_of_search_attributes(client, rpc_timeout=NAMESPACE_TIMEOUT)
    except RPCError:
        return
    if problem:
        raise StartError(f"the namespace {client.namespace!r} of Temporal cannot be used: {problem}")


def _read_settings() -> ClientConnectConfig:
    try:
        config = ClientConfig.load_client_connect_config(override_env_vars=_environment())
    except OSError as error:
        raise TemporalUnreachableError(_unreadable(error)) from error
    except (RuntimeError, ValueError) as error:  # ConfigError is a RuntimeError
        raise TemporalUnreachableError(_problem(error)) from error
    config.setdefault("target_host", DEFAULT_ADDRESS)
    return config


def _environment() -> dict[str, str]:
    """Return the environment without what is not in UTF-8, over which the SDK panics, and prints it."""
    variables = {name: value for name, value in os.environ.items() if is_utf8(name + value)}
    if other := next((name for name in os.environ.keys() - variables if name.startswith("TEMPORAL_")), None):
        raise TemporalUnreachableError(f"{other} is not in UTF-8; write it in UTF-8")
    return variables


def _unreadable(error: OSError) -> str:
    path = str(error.filename)
    # Who mistakes a path for the text in it may have put a key here.
    name = repr(path) if path.isprintable() and "-----" not in path else "what is given as a path"
    return (
        f"cannot read {name} for the connection to Temporal: {error.strerror}. Correct "
        "TEMPORAL_TLS_SERVER_CA_CERT_PATH, TEMPORAL_TLS_CLIENT_CERT_PATH or TEMPORAL_TLS_CLIENT_KEY_PATH, or "
        "`tls` in the file that TEMPORAL_CONFIG_FILE names"
    )


def _problem(error: Exception) -> str:
    """Return the problem without file lines and quoted values."""
    reason = _QUOTED.sub("", str(error).partition("\n")[0])
    return (
        f"cannot use the settings of the connection to Temporal: {reason}. See TEMPORAL_PROFILE, "
        "TEMPORAL_ADDRESS, TEMPORAL_TLS_... and the file that TEMPORAL_CONFIG_FILE names"
    )
