"""Prepare the next item in a thread while the last one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.1


def prepared_ahead(make: Callable[[Callable[[], bool]], Iterator[T]]) -> Generator[T, None, None]:
    """Yield what a function yields; it runs in a thread, one item ahead.

    Args:
        make: Gets a function that says whether nothing more is wanted, which it asks now and then, and yields the items.

    Yields:
        The items, in order; an exception of the thread comes after those before it.
    """
    ready: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def give(item: tuple[T] | BaseException | None) -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=_POLL_S)
                return

    def work() -> None:
        try:
            for item in make(stopped.is_set):
                give((item,))
                if stopped.is_set():
                    return
            give(None)
        except BaseException as error:  # raised again where the items are used
            give(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        stopped.set()
        thread.join()
