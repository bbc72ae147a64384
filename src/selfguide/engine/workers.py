"""Batches in parallel: one batch a core, and no parallelism inside an operation.

Splitting every operation over the cores makes them wait for one another a thousand times a second, and much longer where
another program occupies one of them. Batches are independent, so each core takes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")


def side_by_side(work: Callable[[Item], None], items: Iterable[Item], threads: int) -> None:
    """Call a function for every item, in threads of one core each; the first error is raised.

    Args:
        work: The function.
        items: Its arguments.
        threads: Number of threads; 1 runs in the calling thread.
    """
    todo = list(items)
    if threads <= 1 or len(todo) <= 1:
        for item in todo:
            work(item)
        return
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(min(threads, len(todo)), initializer=torch.set_num_threads, initargs=(1,))
    try:
        for future in [pool.submit(work, item) for item in todo]:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        # The number that a thread sets for itself is also the default of later threads.
        torch.set_num_threads(before)
