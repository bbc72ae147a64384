"""Batches in parallel: one batch a core, and no parallelism inside an operation.

Splitting every operation over the cores makes them wait for one another a thousand times a second, and much longer where
another program occupies one of them. Batches are independent, so each core takes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

Item = TypeVar("Item")

_watcher: ContextVar[Callable[[float], None] | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(progress: Callable[[float], None]) -> Iterator[None]:
    """Report the progress of :func:`side_by_side` inside the block.

    Args:
        progress: Called in the calling thread after every item, with the share of the items that are done.

    Yields:
        Nothing.
    """
    former = _watcher.set(progress)
    try:
        yield
    finally:
        _watcher.reset(former)


def side_by_side(work: Callable[[Item], None], items: Iterable[Item], threads: int) -> None:
    """Call a function for every item, in threads of one core each; the first error is raised.

    Args:
        work: The function.
        items: Its arguments.
        threads: Number of threads; 1 runs in the calling thread.
    """
    todo = list(items)
    progress = _watcher.get() or (lambda share: None)
    if threads <= 1 or len(todo) <= 1:
        for number, item in enumerate(todo, 1):
            work(item)
            progress(number / len(todo))
        return
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(min(threads, len(todo)), initializer=torch.set_num_threads, initargs=(1,))
    try:
        for number, future in enumerate([pool.submit(work, item) for item in todo], 1):
            future.result()
            progress(number / len(todo))
    finally:
        pool.shutdown(cancel_futures=True)
        # The number that a thread sets for itself is also the default of later threads.
        torch.set_num_threads(before)
