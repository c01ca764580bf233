"""Losses over packed candidate lists, for one network or for several that are trained side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

SAME_ITEM = ("masked", "zero_logit")
"""What `contrastive` does with in-batch partners that are the row's own one."""


def listwise(
    scores: torch.Tensor,
    offsets: NDArray[np.int64],
    *,
    positive: NDArray[np.bool_],
    temperature: float,
    weights: NDArray[np.floating] | None = None,
) -> torch.Tensor:
    """Multi-positive listwise loss (tact.md section 2): mean over lists t of the mean over positives p of
    -ln( e^{s_p/T} / (e^{s_p/T} + sum over negatives n of t of w_n e^{s_n/T}) ).

    Other positives are not in the denominator. Lists without a positive do not count; a list without a negative costs
    nothing. Written in score differences, so that no score is too large; in at least float32, whatever ``scores`` is.

    Args:
        scores: (..., p), any leading axes, for example one per network.
        offsets: (b+1,) list i holds the candidates ``offsets[i]:offsets[i+1]``.
        positive: (p,).
        temperature: T > 0.
        weights: (p,) w of the negatives, at least 0; that of a positive is not read. None: 1.

    Returns:
        (...), 0 where there is no list with a positive.
    """
    import torch

    lengths = np.diff(offsets)
    width = max(int(lengths.max(initial=0)), 1)
    slot = np.arange(positive.size) + np.repeat(np.arange(lengths.size) * width - offsets[:-1], lengths)
    gain = np.full(lengths.size * width, -np.inf)
    share = np.zeros(lengths.size * width)
    with np.errstate(divide="ignore"):
        gain[slot] = np.where(positive, -np.inf, 0.0 if weights is None else np.log(weights))
    share[slot] = _share_of_positives(positive, lengths)
    gain, share = gain.reshape(-1, width), share.reshape(-1, width)
    against = np.isfinite(gain).any(axis=1, keepdims=True)
    gain, share = np.where(against, gain, 0.0), share * against

    values = scores if scores.dtype == torch.float64 else scores.float()
    # index_copy, because the gradient of indexing adds up in no fixed order as soon as there are two threads.
    padded = values.new_zeros((*values.shape[:-1], gain.size))
    padded = padded.index_copy(-1, torch.from_numpy(slot).to(values.device), values / temperature)
    padded = padded.unflatten(-1, gain.shape)
    total = torch.logsumexp(padded + torch.from_numpy(gain).to(padded), dim=-1, keepdim=True)
    cost = -torch.nn.functional.logsigmoid(padded - total)
    return (cost * torch.from_numpy(share).to(padded)).sum(dim=(-2, -1))


def _share_of_positives(positive: NDArray[np.bool_], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """(p,) 1 / (positives of the list x lists with a positive) for positives, 0 for negatives."""
    owner = np.repeat(np.arange(lengths.size), lengths)
    count = np.bincount(owner[positive], minlength=lengths.size)
    lists = max(int((count > 0).sum()), 1)
    return np.where(positive, 1.0 / (np.maximum(count, 1)[owner] * lists), 0.0)


def contrastive(
    logits: torch.Tensor, *, same: torch.Tensor, excluded: torch.Tensor | None = None, same_item: str = "masked"
) -> torch.Tensor:
    """In-batch InfoNCE, mean over rows i of -ln( e^{l_ii} / sum_j e^{l_ij} ).

    Args:
        logits: (..., q, q), the own partner of a row on the diagonal.
        same: (q, q) pairs whose partner is the row's own one once more; their diagonal is not read.
        excluded: (q, q) further pairs that are no negatives; never on the diagonal.
        same_item: ``masked`` removes the ``same`` terms (logit -infinity); ``zero_logit`` sets their logit to 0 as the
            released code of UniSRec does, which adds 1 to the denominator for each of them.

    Raises:
        ValueError: for another ``same_item``.
    """
    import torch

    if same_item not in SAME_ITEM:
        raise ValueError(f"same_item={same_item!r}; expected {' or '.join(SAME_ITEM)}")
    own = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    filled = logits.masked_fill(same & ~own, -torch.inf if same_item == "masked" else 0.0)
    if excluded is not None:
        filled = filled.masked_fill(excluded & ~own, -torch.inf)
    diagonal = logits.diagonal(dim1=-2, dim2=-1)
    return (torch.logsumexp(filled, dim=-1) - diagonal).mean(dim=-1)
