"""A shell of its own for each test of the command line."""

from pathlib import Path

import pytest

from tests.acceptance.cli.terminal import Shell
from tests.support.rigs.deployment import Service


@pytest.fixture
def shell(service: Service, tmp_path: Path) -> Shell:
    """Where commands are run: an empty folder, and the gateway of the deployment as the profile."""
    return Shell(tmp_path, {"EVERLOOP_PROFILE": service.gateway.url})
