"""Prepare the next item in a thread while the last one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.1


def prepared_ahead(make: Callable[[Callable[[], bool]], Generator[T, None, None]]) -> Generator[T, None, None]:
    """Yield what a function yields; it runs in a thread, one item ahead.

    At most two items exist at a time: the one in use, and the next one.

    Args:
        make: Yields the items; it gets a function that says whether to stop, and calls it now and then.

    Yields:
        The items, in order; an exception of the thread comes after those before it.
    """
    ready: queue.Queue[tuple[T] | BaseException | None] = queue.Queue()
    taken = threading.Semaphore(0)
    stopped = threading.Event()

    def give(item: tuple[T] | BaseException | None) -> None:
        ready.put(item)
        while not (stopped.is_set() or taken.acquire(timeout=_POLL_S)):
            pass

    def work() -> None:
        try:
            with closing(make(stopped.is_set)) as items:
                for item in items:
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
            taken.release()
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        stopped.set()
        thread.join()
