"""What is wrong with a schedule, as a person reads it."""


class ScheduleError(Exception):
    """A schedule cannot be made, found or changed; the message is one line and says what to do."""
