"""Ctrl-C and other signals to end: in a command, while rounds run, and while something must not be disturbed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # that end a process, unless it says otherwise


def _handlers() -> dict[signal.Signals, Any]:
    """What this thread can set, as it is now: nothing outside the main one, nor what a library in C has set."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in ALL}
    return {number: handler for number, handler in handlers.items() if handler is not None}


def _set(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _endings() -> list[signal.Signals]:
    """SIGTERM, and SIGHUP of a terminal that closes, unless the user says otherwise (nohup)."""
    return [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]


def interrupt(heard: list[int]) -> None:
    """From now on SIGTERM and SIGHUP end the command as Ctrl-C does; which of them came is put on the list."""

    def end(number: int, _: Any) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    ctrl_c = [signal.SIGINT] if signal.getsignal(signal.SIGINT) is signal.default_int_handler else []
    _set(dict.fromkeys((*ctrl_c, *_endings()), end))


def ignore() -> None:
    """From now on nothing is left to be interrupted."""
    _set(dict.fromkeys(ALL, signal.SIG_IGN))


@contextmanager
def restored() -> Iterator[None]:
    """Whatever handles signals meanwhile, afterwards it is what it was."""
    before = _handlers()
    try:
        yield
    finally:
        _set(before)


@contextmanager
def delayed() -> Iterator[None]:
    """Signals to end are heard at the end of it."""
    heard: list[int] = []
    before = {number: handler for number, handler in _handlers().items() if callable(handler)}
    _set(dict.fromkeys(before, lambda number, _: heard.append(number)))
    try:
        yield
    finally:
        _set(before)
    if heard:
        signal.raise_signal(heard[0])


class Interrupts:
    """The first Ctrl-C asks to stop after the round, the second stops at once; so do SIGTERM and SIGHUP."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._stopping = False
        self.asked = False

    def __enter__(self) -> Interrupts:
        wanted = {signal.SIGINT, *_endings()}
        self._before = {number: handler for number, handler in _handlers().items() if number in wanted}
        _set(dict.fromkeys(self._before, self._handle))
        return self

    def __exit__(self, *_: Any) -> None:
        if not self._stopping:
            _set(self._before)

    def stop(self) -> None:
        """Raises KeyboardInterrupt; from here on nothing interrupts the clearing up."""
        self._stopping = True
        _set(dict.fromkeys(self._before, signal.SIG_IGN))
        raise KeyboardInterrupt

    def _handle(self, number: int, _: Any) -> None:
        if self.asked or number != signal.SIGINT:
            self.stop()
        self.asked = True
        self._note("Stopping after this round; Ctrl-C again stops at once")
