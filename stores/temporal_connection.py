"""The connection to Temporal that worker and gateway share."""

from collections.abc import Sequence

from temporalio.client import Client, Plugin
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfig

from stores.blobs import Blobs
from stores.lost_payloads import LostPayloads
from stores.payload_storage import data_converter

DEFAULT_ADDRESS = "localhost:7233"


class TemporalUnreachableError(Exception):
    """Nobody answers at the address of Temporal; the message names it and what to do."""


async def connect_temporal(plugins: Sequence[Plugin] = (), blobs: Blobs | None = None) -> Client:
    """Connect with the profile that Temporal's own environment variables and file describe.

    TEMPORAL_ADDRESS (default localhost:7233), TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_* and
    TEMPORAL_CONFIG_FILE apply, as for the `temporal` command (`temporalio.envconfig`). Payloads of 256 KB and
    more are kept in `blobs`; without it they stay in history.

    Raises:
        TemporalUnreachableError: no connection.
    """
    return await _connect(plugins, data_converter(blobs))


async def connect_worker(plugins: Sequence[Plugin], blobs: Blobs) -> Client:
    """Connect as `connect_temporal` does, for a worker: it also ends workflows whose payloads are lost.

    Raises:
        TemporalUnreachableError: no connection.
    """
    lost = LostPayloads()
    lost.client = await _connect(plugins, data_converter(blobs, lost))
    return lost.client


async def _connect(plugins: Sequence[Plugin], converter: DataConverter) -> Client:
    config = ClientConfig.load_client_connect_config()
    config.setdefault("target_host", DEFAULT_ADDRESS)
    try:
        return await Client.connect(**config, data_converter=converter, plugins=plugins)
    except RuntimeError as error:
        raise TemporalUnreachableError(
            f"cannot reach Temporal at {config.get('target_host')}: {error}. "
            "Start it (`make up` runs one), or set TEMPORAL_ADDRESS to host:port"
        ) from error
