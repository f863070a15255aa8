"""The addresses of the HTTP extension."""

import pytest

from everloop.workflows.contract.http_extension import Address


@pytest.mark.parametrize(
    ("address", "ids", "path"),
    [
        (Address.SHOW_SYSTEM, [], "/operator/system"),
        (Address.SHOW_USAGE, ["a/b c"], "/tasks/a%2Fb%20c/usage"),
        (Address.RUN_SCHEDULE, ["{id}"], "/schedules/%7Bid%7D:run"),
        (Address.ANSWER_APPROVAL, ["t\\1", "q"], "/approvals/t%5C1/q"),
    ],
)
def test_an_id_is_one_segment_of_a_path(address: Address, ids: list[str], path: str) -> None:
    """With any characters."""
    assert address.path_of(*ids) == path
