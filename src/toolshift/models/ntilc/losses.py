"""Losses of NTILC over a batch: b queries, c tools, masks for several gold tools (spec/ntilc.md sections 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import torch

FmAverage = Literal["all", "active"]
FM_AVERAGES: tuple[str, ...] = get_args(FmAverage)
# Stands for -infinity in a log-sum-exp that may have no term: exp of it is 0, its gradient is 0 and not NaN.
_NOTHING = -1e4


def circle(
    similarity: torch.Tensor,
    *,
    positive: torch.Tensor,
    negative: torch.Tensor,
    gamma: float = 32.0,
    margin: float = 0.25,
) -> torch.Tensor:
    """Circle loss in its factorised form, mean over the queries [T, C].

    softplus( LSE_n[gamma alpha_n (s_n - margin)] + LSE_p[-gamma alpha_p (s_p - 1 + margin)] ) with
    alpha_p = [1 + margin - s_p]_+ and alpha_n = [s_n + margin]_+, through which no gradient goes. Equal to
    log(1 + sum over all pairs of a positive and a negative). A query without a positive or without a negative costs 0.

    Args:
        similarity: (b, c) cosines.
        positive, negative: (b, c) booleans, disjoint; what is in neither does not count.
    """
    import torch

    s = _precise(similarity)
    alpha_p = (1.0 + margin - s).clamp(min=0.0).detach()
    alpha_n = (s + margin).clamp(min=0.0).detach()
    of_positive = (-gamma * alpha_p * (s - (1.0 - margin))).masked_fill(~positive, _NOTHING)
    of_negative = (gamma * alpha_n * (s - margin)).masked_fill(~negative, _NOTHING)
    total = torch.logsumexp(of_negative, dim=1) + torch.logsumexp(of_positive, dim=1)
    return torch.nn.functional.softplus(total).mean()


@dataclass(frozen=True, kw_only=True)
class FunctionalMargin:
    """The loss, and what it was made of.

    active: (r,) whether a row has a pair with rho > 0 and w > 0. pairs: number of such pairs; rho, w: their sums.
    """

    loss: torch.Tensor
    active: torch.Tensor
    pairs: torch.Tensor
    rho: torch.Tensor
    w: torch.Tensor


def functional_margin(
    cosine: torch.Tensor,
    w: torch.Tensor,
    *,
    allowed: torch.Tensor,
    m0: float = 0.3,
    weight: torch.Tensor | None = None,
    average: str = "all",
    eps: float = 1e-8,
) -> FunctionalMargin:
    """Functional-Margin loss: rho = [m0 - (1 - cosine)]_+, per row sum w rho^2 / (sum of w where rho > 0, + eps) [T].

    Args:
        cosine: (r, c) cosines of a row's gold tool with the tools j.
        w: (r, c) 1 - compat.
        allowed: (r, c) which j count: no gold tool of the row's query.
        m0: margin.
        weight: (r,) weights of the rows in the mean, one per query in all; None: equal.
        average: ``all`` rows count [T], or only the ``active`` ones [C].
        eps: in the denominator.

    Raises:
        ValueError: for another ``average``.
    """
    import torch

    if average not in FM_AVERAGES:
        raise ValueError(f"average={average!r}; expected one of {', '.join(FM_AVERAGES)}")
    rho = (m0 - (1.0 - _precise(cosine))).clamp(min=0.0)
    used = (rho > 0) & allowed
    mass = w * used
    per_row = (mass * rho.square()).sum(dim=1) / (mass.sum(dim=1) + eps)
    active = (mass > 0).any(dim=1)
    share = torch.ones_like(per_row) if weight is None else weight
    if average == "active":
        share = share * active
    loss = (per_row * share).sum() / share.sum().clamp(min=eps)
    counted = mass > 0
    return FunctionalMargin(
        loss=loss,
        active=active,
        pairs=counted.sum(),
        rho=(rho.detach() * counted).sum(),
        w=(w * counted).sum(),
    )


def contrastive(
    similarity: torch.Tensor, *, positive: torch.Tensor, negative: torch.Tensor, temperature: float = 0.07
) -> torch.Tensor:
    """Multi-positive InfoNCE: mean over queries of the mean over their positives p of
    -ln( e^{s_p/T} / (e^{s_p/T} + sum over negatives of e^{s_n/T}) ); other positives are not in the denominator.
    A query without a positive costs 0."""
    import torch

    logits = _precise(similarity) / temperature
    against = torch.logsumexp(logits.masked_fill(~negative, _NOTHING), dim=1, keepdim=True)
    cost = torch.nn.functional.softplus(against - logits) * positive
    return (cost.sum(dim=1) / positive.sum(dim=1).clamp(min=1)).mean()


def prototype_cross_entropy(
    queries: torch.Tensor, prototypes: torch.Tensor, *, positive: torch.Tensor, temperature: float = 0.07
) -> torch.Tensor:
    """Cross-entropy of queries against one learned prototype per tool [C].

    queries: (b, h) unit rows. prototypes: (n, h), normalised here. positive: (b, n) gold tools; none of them is another
    one's negative.
    """
    import torch

    similarity = queries @ torch.nn.functional.normalize(prototypes, dim=1).T
    return contrastive(similarity, positive=positive, negative=~positive, temperature=temperature)


def _precise(values: torch.Tensor) -> torch.Tensor:
    """At least float32, as mixed precision would lose what the exponentials need."""
    import torch

    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
