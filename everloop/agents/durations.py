"""How long anything may take that an agent or a tool sets a time for."""

from datetime import timedelta

LONGEST = timedelta(days=3650)
"""Ten years: no end in sight, and yet a date that calendars and timers can hold."""

TOO_LONG = f"give at most {LONGEST.days} days"
