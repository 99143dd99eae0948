"""Pieces through a few threads, in order and with bounded memory."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def ahead(workers: int, work: Callable[[A], B], items: Iterable[A]) -> Iterator[tuple[A, B]]:
    """(item, what `work` made of it) in the order of the items; at most `workers` are in hand at once.

    Leaving early, by an exception of `work` or of the consumer, waits for those in hand and starts no more.
    """
    if workers == 1:
        for item in items:
            yield item, work(item)
        return
    with ThreadPoolExecutor(workers) as pool:
        running: deque[tuple[A, Future[B]]] = deque()
        for item in items:
            if len(running) == workers:
                first, done = running.popleft()
                yield first, done.result()
            running.append((item, pool.submit(work, item)))
        while running:
            first, done = running.popleft()
            yield first, done.result()
