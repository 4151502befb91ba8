"""Read the next block in a thread while the present one is worked on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items in the same order, each asked for when the one before is handed out.

    There are never more than two in memory. An error of `items` is raised here, when its item
    would have been due.

    Examples
    --------
    >>> from maxmargin.engines.ahead import read_ahead
    >>> list(read_ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    end = object()
    with ThreadPoolExecutor(1) as reader:
        following = reader.submit(next, items, end)
        while (item := following.result()) is not end:
            following = reader.submit(next, items, end)
            yield item  # type: ignore[misc]
            del item  # so that its memory is free before the next is waited for
