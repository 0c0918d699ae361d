"""What a forward's logits must be before anybody reads them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


class Sieve:
    """Takes out of each row what may not come. ``blank``: the ids that no token has."""

    def __init__(self, blank: NDArray[np.intp]) -> None:
        self._blank = torch.from_numpy(blank)

    @torch.inference_mode()
    def apply(self, logits: torch.Tensor) -> None:
        """``logits`` float[R, V], in place: -inf for blank ids, also for a bias to find, and for each NaN of a row
        that has finite logits too. A row of NaN alone stays, and fails whom it belongs to."""
        if len(self._blank):
            self._blank = self._blank.to(logits.device)
            logits.index_fill_(1, self._blank, -torch.inf)
        bad = torch.isnan(logits.amax(1)) if len(logits) else logits.new_zeros(0, dtype=torch.bool)
        for row in torch.nonzero(bad).flatten().tolist():
            known = logits[row]
            if torch.isfinite(known).any():
                known[torch.isnan(known)] = -torch.inf
