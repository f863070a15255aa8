"""One engine for all tests of containers, and the images of this checkout, built once."""

from uuid import uuid4

import pytest

from tests.containers.engine import Engine, engine

__all__ = ["engine", "version"]


@pytest.fixture(scope="session")
def version(engine: Engine) -> str:
    """Build both images; return their tag."""
    tag = f"test-{uuid4().hex[:8]}"
    for target in ("worker", "gateway"):
        engine.build_ours(target, tag)
    return tag
