"""Batches side by side: one thread a core, and no thread inside an operation.

Splitting every operation over the cores makes them wait for one another a thousand times a second, and far longer where
another program has one of them. Batches are independent, so each core takes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")


def side_by_side(work: Callable[[Item], None], items: Iterable[Item], threads: int) -> None:
    """Call ``work`` for every item, in ``threads`` threads of one core each; the first error is raised."""
    rest = list(items)
    if threads <= 1 or len(rest) <= 1:
        for item in rest:
            work(item)
        return
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(min(threads, len(rest)), initializer=torch.set_num_threads, initargs=(1,))
    try:
        for done in [pool.submit(work, item) for item in rest]:
            done.result()
    finally:
        pool.shutdown(cancel_futures=True)
        # What a thread sets for itself is also what later threads start from.
        torch.set_num_threads(before)
