"""Ctrl-C while rounds run, and other signals to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any


def endings() -> list[signal.Signals]:
    """Signals that ask a process to end; a terminal that closes counts, unless the user says otherwise (nohup)."""
    return [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]


class Interrupts:
    """The first Ctrl-C asks to stop after the round, the second stops at once; so do SIGTERM and SIGHUP."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._stopping = False
        self.asked = False

    def __enter__(self) -> Interrupts:
        heard = threading.current_thread() is threading.main_thread()  # others have no say in signals
        numbers = (signal.SIGINT, *endings()) if heard else ()
        self._before = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: Any) -> None:
        if not self._stopping:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Raises KeyboardInterrupt; from here on nothing interrupts the clearing up."""
        self._stopping = True
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    def _handle(self, number: int, _: Any) -> None:
        if self.asked or number != signal.SIGINT:
            self.stop()
        self.asked = True
        self._note("Stopping after this round; Ctrl-C again stops at once")
