"""Bytes of events that streams have not been able to send, bounded for each and for all."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Account:
    """One stream's share. ``cut`` is called once, when it holds more than it may."""

    def __init__(self, cut: Callable[[], None]) -> None:
        self.size = 0
        self.cut = cut


class Unsent:
    """Thread-safe: events arrive on the backend's thread and leave on the server's."""

    def __init__(self, most: int, most_of_all: int) -> None:
        self._most = most
        self._most_of_all = most_of_all
        self._lock = threading.Lock()
        self._open: dict[Account, None] = {}
        self._size = 0

    def open(self, cut: Callable[[], None]) -> Account:
        account = Account(cut)
        with self._lock:
            self._open[account] = None
        return account

    def add(self, account: Account, size: int) -> None:
        """May cut this one, or the one that holds most of all."""
        with self._lock:
            if account not in self._open:
                return
            account.size += size
            self._size += size
            largest: Account | None = None
            if account.size > self._most:
                largest = account
            elif self._size > self._most_of_all:
                largest = max(self._open, key=lambda one: one.size)
            if largest is None:
                return
            self._forget(largest)
        largest.cut()

    def take(self, account: Account, size: int) -> None:
        with self._lock:
            if account in self._open:
                account.size -= size
                self._size -= size

    def close(self, account: Account) -> None:
        with self._lock:
            if account in self._open:
                self._forget(account)

    def _forget(self, account: Account) -> None:
        del self._open[account]
        self._size -= account.size
