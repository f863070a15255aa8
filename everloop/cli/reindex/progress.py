"""Progress of a rebuild."""

import shutil
import time
from typing import TextIO

PAUSE = 5.0
"""Seconds between progress lines."""


class ReindexProgress:
    """Counter of tasks that prints progress every few seconds; on a terminal the line is overwritten."""

    def __init__(self, screen: TextIO) -> None:
        self._screen = screen
        self._is_terminal = screen.isatty()
        self._began = self._shown = time.monotonic()
        self._restored = 0
        self._left_out = 0
        self.failed: dict[str, str] = {}

    @property
    def result(self) -> dict[str, object]:
        """Result as data."""
        return {
            "restored": self._restored,
            "left_out": self._left_out,
            "not_restored": self.failed,
            "seconds": round(time.monotonic() - self._began, 3),
        }

    @property
    def summary(self) -> str:
        seconds = time.monotonic() - self._began
        return (
            f"{self._restored} tasks restored, {self._left_out} not shown to clients or gone, "
            f"{len(self.failed)} not restored, in {seconds:.0f} s"
        )

    def restored(self) -> None:
        """Count a task that clients see again."""
        self._restored += 1
        self._show()

    def left_out(self) -> None:
        """Count a task that clients do not see."""
        self._left_out += 1
        self._show()

    def not_restored(self, task_id: str, reason: str) -> None:
        """Count a task that Redis shows incompletely, or not at all."""
        self.failed[task_id] = reason
        self._show()

    def end(self) -> None:
        """End the progress line."""
        if self._is_terminal:
            self._screen.write("\n")

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown < (PAUSE / 10 if self._is_terminal else PAUSE):
            return
        self._shown = now
        width = shutil.get_terminal_size().columns - 1  # a wrapped line cannot be overwritten
        self._screen.write(f"\r{self.summary[:width]}" if self._is_terminal else f"{self.summary}\n")
        self._screen.flush()
