"""A shell of its own for each test of the command line."""

from pathlib import Path

import pytest

from tests.acceptance.cli.terminal import Shell
from tests.support.rigs.deployment import Service


@pytest.fixture
def shell(service: Service, tmp_path: Path) -> Shell:
    """A shell in an empty folder, with the gateway of the deployment as its profile."""
    return Shell(tmp_path, {"EVERLOOP_PROFILE": service.gateway.url})
