"""The prefix tree over token ids and the exact accounting of KV slots. numpy only; knows nothing of models."""

from .eviction import LRU, Eviction
from .order import FCFS, LongestPrefixFirst, Order, Waiting
from .pool import IntegrityError, PoolExhausted, SlotPool
from .tree import Insert, Match, Node, RadixTree

__all__ = [
    "FCFS",
    "LRU",
    "Eviction",
    "Insert",
    "IntegrityError",
    "LongestPrefixFirst",
    "Match",
    "Node",
    "Order",
    "PoolExhausted",
    "RadixTree",
    "SlotPool",
    "Waiting",
]
