"""The connection to Temporal that worker and gateway share."""

import re
from collections.abc import Sequence
from datetime import timedelta

from temporalio.client import Client, Plugin
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.service import KeepAliveConfig, RPCError, RPCStatusCode

from everloop.runtime.blobs import Blobs
from everloop.runtime.encryption.keys import EncryptionSettings
from everloop.runtime.settings import StartError
from everloop.runtime.temporal.describe import namespace_id
from everloop.runtime.temporal.payloads import MissingPayloads, data_converter

DEFAULT_ADDRESS = "localhost:7233"

KEEP_ALIVE = KeepAliveConfig(interval_millis=15_000, timeout_millis=10_000)
"""A connection that a router or load balancer forgot is noticed within 25 s, instead of the SDK's 45.
Temporal drops clients that ask more often than every 10 s (`frontend.keepAliveMinTime`)."""

NAMESPACE_TIMEOUT = timedelta(seconds=10)
"""How long a process waits at start for an answer about its namespace; without one it goes on."""

_QUOTED = re.compile(r':?\s*".*')
_NOT_CONNECTED = re.compile(r'ConnectError\("(?:tcp connect|dns) error".*?(?:message|error): "([^"]+)"')


class TemporalUnreachableError(StartError):
    """Nobody answers at the address of Temporal, there is no such namespace, or its settings are wrong.

    The message says what to do.
    """


async def connect_temporal(plugins: Sequence[Plugin] = (), blobs: Blobs | None = None) -> Client:
    """Connect with the profile that Temporal's own environment variables and file describe.

    TEMPORAL_ADDRESS (default localhost:7233), TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_* and
    TEMPORAL_CONFIG_FILE apply, as for the `temporal` command (`temporalio.envconfig`). Payloads of 256 KB and
    more are kept in `blobs`; without it they stay in history. If EVERLOOP_ENCRYPTION_KEYS_FILE names keys,
    all are encrypted.

    Raises:
        TemporalUnreachableError: no connection, or these settings cannot be used.
        ValidationError: the file of keys is wrong.
    """
    return await _connect(plugins, data_converter(blobs, cipher=EncryptionSettings().cipher))


async def connect_worker(plugins: Sequence[Plugin], blobs: Blobs) -> Client:
    """Connect as `connect_temporal` does, for a worker: it also ends workflows whose payloads are lost.

    Raises:
        TemporalUnreachableError: no connection, or the settings cannot be used.
        ValidationError: the file of keys is wrong.
    """
    lost = MissingPayloads()
    lost.client = await _connect(plugins, data_converter(blobs, lost, EncryptionSettings().cipher))
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
    """Return why no connection was made; without what Rust's own form of an error has around the words."""
    refused = _NOT_CONNECTED.search(str(error))
    return refused[1] if refused else str(error)


async def _check_namespace(client: Client, config: ClientConnectConfig) -> None:
    """Find out that there is the namespace: a gateway would serve for ever, and find none of its tasks.

    Who may not ask, as with some keys of Temporal Cloud, finds out at the first call.

    Raises:
        TemporalUnreachableError: there is none.
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


def _read_settings() -> ClientConnectConfig:
    try:
        config = ClientConfig.load_client_connect_config()
    except OSError as error:
        raise TemporalUnreachableError(_unreadable(error)) from error
    except (RuntimeError, ValueError) as error:  # ConfigError is a RuntimeError
        raise TemporalUnreachableError(_problem(error)) from error
    config.setdefault("target_host", DEFAULT_ADDRESS)
    return config


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
    """Return what is wrong without what follows it: lines of the file, and values in double quotes."""
    reason = _QUOTED.sub("", str(error).partition("\n")[0])
    return (
        f"cannot use the settings of the connection to Temporal: {reason}. See TEMPORAL_PROFILE, "
        "TEMPORAL_ADDRESS, TEMPORAL_TLS_... and the file that TEMPORAL_CONFIG_FILE names"
    )
