"""The connection to Temporal that worker and gateway share."""

from collections.abc import Sequence

from temporalio.client import Client, Plugin
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig

DEFAULT_ADDRESS = "localhost:7233"


class TemporalUnreachableError(Exception):
    """Nobody answers at the address of Temporal; the message names it and what to do."""


async def connect_temporal(plugins: Sequence[Plugin] = ()) -> Client:
    """Connect with the profile that Temporal's own environment variables and file describe.

    TEMPORAL_ADDRESS (default localhost:7233), TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_* and
    TEMPORAL_CONFIG_FILE apply, as for the `temporal` command (`temporalio.envconfig`).

    Raises:
        TemporalUnreachableError: no connection.
    """
    config = ClientConfig.load_client_connect_config()
    config.setdefault("target_host", DEFAULT_ADDRESS)
    try:
        return await Client.connect(**config, data_converter=pydantic_data_converter, plugins=plugins)
    except RuntimeError as error:
        raise TemporalUnreachableError(
            f"cannot reach Temporal at {config.get('target_host')}: {error}. "
            "Start it (`make up` runs one), or set TEMPORAL_ADDRESS to host:port"
        ) from error
