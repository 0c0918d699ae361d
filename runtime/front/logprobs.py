"""Numbers of ids, as the core says them -> numbers of tokens, as clients are told them."""

from __future__ import annotations

from collections.abc import Sequence

from .. import wire
from ..protocol import TokenLogprob, TopLogprob
from .settings import ServedModel


class Names:
    """Of one model's tokens. ``bytes`` of a special token are none, and its name is shown all the same."""

    def __init__(self, model: ServedModel) -> None:
        self._name = model.token_text
        self._data = model.tokenizer.vocabulary.bytes

    def tokens(self, items: Sequence[wire.CoreLogprob]) -> tuple[TokenLogprob, ...]:
        return tuple(self._one(item.id, item.logprob, item.top, item.forced) for item in items)

    def prompt(self, items: Sequence[wire.CorePromptLogprob]) -> tuple[TokenLogprob, ...]:
        return tuple(self._one(item.id, item.logprob, item.top, rank=item.rank or None) for item in items)

    def choices(
        self, choices: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]]
    ) -> tuple[tuple[TokenLogprob, ...], ...]:
        return tuple(
            tuple(self._one(token, number, forced=True) for token, number in zip(ids, numbers))
            for ids, numbers in zip(choices, logprobs)
        )

    def alternatives(self, top: Sequence[tuple[int, float]]) -> tuple[TopLogprob, ...]:
        return tuple(TopLogprob(token, self._name(token), self._data(token), number) for token, number in top)

    def _one(
        self,
        token: int,
        logprob: float | None,
        top: Sequence[tuple[int, float]] = (),
        forced: bool = False,
        rank: int | None = None,
    ) -> TokenLogprob:
        name, data = self._name(token), self._data(token)
        return TokenLogprob(token, name, data, logprob, forced, self.alternatives(top), rank)
