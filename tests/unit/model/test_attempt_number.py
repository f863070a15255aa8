"""Numbers of attempts: what is later is greater."""

from hypothesis import given
from hypothesis import strategies as st

from everloop.activities.model.drafts import attempt_number, is_shared

ATTEMPTS = st.integers(1, 5_000)


def test_the_first_call_counts_its_attempts() -> None:
    """A task that never had to call again numbers its attempts from 1."""
    assert [attempt_number(0, attempt) for attempt in (1, 2, 998)] == [1, 2, 998]


@given(st.integers(0, 500), ATTEMPTS, ATTEMPTS)
def test_a_later_call_is_newer(tries: int, attempt: int, other: int) -> None:
    """However many attempts an earlier call had."""
    assert attempt_number(tries + 1, attempt) > attempt_number(tries, other)


@given(st.integers(0, 500), ATTEMPTS)
def test_a_number_that_comes_again_is_known(tries: int, attempt: int) -> None:
    """A later attempt of the same call is newer, unless its number says that it may be shared."""
    number = attempt_number(tries, attempt)

    assert attempt_number(tries, attempt + 1) > number or is_shared(number)
