"""Who is computed with whom."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from selfguide.serving.batching import Batch, BatchQueue, Request


def request(number: int, *lengths: int) -> Request:
    return Request(
        number, [f"{number}.{row}" for row in range(len(lengths))], np.array(lengths), np.zeros((len(lengths), 2), "f4")
    )


def rows(batch: Batch) -> list[tuple[int, int]]:
    return [(found.number, row) for found, row in batch.items]


def test_a_batch_is_full_but_not_over_its_tokens() -> None:
    queue = BatchQueue(100, 1)
    for number in range(6):
        queue.put(request(number, 30))
    assert rows(queue.take()) == [(0, 0), (1, 0), (2, 0)]
    queue.put(request(7, 300))
    assert [len(queue.take().items) for _ in range(2)] == [3, 1]  # a long one is a batch of its own


def test_requests_take_turns_and_their_longest_sentences_go_first() -> None:
    queue = BatchQueue(100, 1)
    queue.put(request(1, 10, 30, 20, 40))
    queue.put(request(2, 5))
    first = queue.take()
    assert rows(first) == [(1, 3), (2, 0), (1, 1), (1, 2)]
    assert (first.started, first.tokens) == ([1, 2], 95)
    assert queue.take().started == []


def test_idle_threads_share_what_waits() -> None:
    queue = BatchQueue(1000, 2)
    queue.put(request(1, *[20] * 10))
    assert [queue.take().tokens, queue.take().tokens] == [100, 100]


def test_vectors_come_back_in_the_rows_of_their_requests() -> None:
    queue = BatchQueue(60, 1)
    one, other = request(1, 20, 30), request(2, 10)
    queue.put(one)
    queue.put(other)
    batch = queue.take()
    done = queue.give(batch, np.array([[found.number, row] for found, row in batch.items], "f4"))
    assert {found.number for found in done} == {1, 2}
    assert one.vectors.tolist() == [[1, 0], [1, 1]]
    assert other.vectors.tolist() == [[2, 0]]


def test_cancelled_requests_are_neither_computed_nor_answered() -> None:
    queue = BatchQueue(50, 1)
    for number in range(4):
        queue.put(request(number, 20, 20))
    queue.cancel(1)
    first = queue.take()
    assert rows(first) == [(0, 0), (2, 0)]
    queue.cancel(0)
    queue.cancel(99)
    assert queue.give(first, np.zeros((2, 2), "f4")) == []
    assert [rows(queue.take()), rows(queue.take())] == [[(3, 0), (2, 1)], [(3, 1)]]


def test_a_failed_batch_drops_its_requests_whole() -> None:
    queue = BatchQueue(40, 1)
    queue.put(request(1, 20, 20, 20))
    queue.put(request(2, 20))
    queue.put(request(3, 10))
    assert queue.fail(queue.take()) == [1, 2]
    assert rows(queue.take()) == [(3, 0)]


@pytest.mark.parametrize("threads", [1, 3])
def test_every_sentence_is_computed_once_by_whatever_thread(threads: int) -> None:
    queue = BatchQueue(64, threads)
    generator = np.random.default_rng(0)
    done: dict[int, np.ndarray] = {}
    lock, end = threading.Lock(), threading.Event()

    def compute() -> None:
        while not end.is_set():
            batch = queue.take()
            vectors = np.array([[found.number, row + 1] for found, row in batch.items], "f4")
            with lock:
                done.update({found.number: found.vectors for found in queue.give(batch, vectors)})
                if len(done) == 300:
                    end.set()
                    for _ in range(threads):
                        queue.put(request(999, 1))  # wakes those that wait

    workers = [threading.Thread(target=compute, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    sizes = generator.integers(1, 20, 300)
    for number, size in enumerate(sizes):
        queue.put(request(number, *generator.integers(1, 40, size)))
    assert end.wait(20)
    for number, size in enumerate(sizes):
        assert done[number].tolist() == [[number, row + 1] for row in range(size)]
