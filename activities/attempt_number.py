"""Orders everything that the attempts of all calls for one reply publish."""

ATTEMPTS_PER_TRY = 1000
"""How many numbers a call has; from its 999th attempt on they share the last one."""


def attempt_number(tries: int, attempt: int) -> int:
    """Return the number of an attempt after `tries` calls for the same position.

    `attempt` is as `OpenedTranscript.attempt` counts, from 1. Temporal's own count will not do: it begins
    again when an operator resets the activity, and what the view shows of earlier attempts would stay.
    """
    return tries * ATTEMPTS_PER_TRY + min(attempt, ATTEMPTS_PER_TRY - 1)


def is_shared(number: int) -> bool:
    """Whether several attempts may have this number."""
    return number % ATTEMPTS_PER_TRY == ATTEMPTS_PER_TRY - 1
