"""An explanation as text of at most 100 columns, or as JSON with stable keys."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence

from toolshift.evaluation.explanation import (
    AppliedCorrection,
    Candidate,
    ContextualPart,
    Explanation,
    FunctionalPart,
    ListPlace,
    Matrix,
    PooledEndpoint,
    Requirement,
    Term,
)
from toolshift.settings.tree import as_mapping

WIDTH = 100
# Characters of a public text, and spans of a requirement, that are shown.
_TEXT, _SPANS = 360, 12
# Columns of the overview: names, and ranks in all views together.
_NAME, _RANKS = 26, 32


def to_json(found: Explanation) -> str:
    """Every number, keys sorted; requirements, endpoints and prototypes are numbered from 0."""
    content = as_mapping(found)
    for plain, candidate in zip(content["candidates"], found.candidates, strict=True):
        plain["agrees"] = candidate.agrees
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)


def to_text(found: Explanation) -> str:
    """The task, its candidates side by side, and the named candidate in full; counted from 1."""
    lines = [*_head(found), "", *_overview(found)]
    if not found.named:
        lines += ["", "One of them in full: capability=ID (or a part of its name); all of them: format=json."]
    for candidate in found.candidates if found.named else ():
        lines += ["", *_candidate(candidate, found)]
    return "\n".join(line.rstrip() for line in lines)


def _head(found: Explanation) -> Iterator[str]:
    chosen = ", ".join(f"{key}={value}" for key, value in sorted(found.choice.items())) or "nothing"
    yield from _wrapped(
        f"run {found.run} ({found.experiment}, {found.model}), target {found.target}, seed {found.seed}"
    )
    yield from _wrapped(f"selected on the sources: {chosen}", indent=2)
    yield from _wrapped(f"stages: anchor, {', '.join(found.stages)}" if found.stages else "stages: anchor", indent=2)
    yield from _wrapped(f"task {found.task_id} (domain {found.task_domain or 'none'})")
    yield from _wrapped(found.task_text, indent=2)
    yield from _wrapped(f"gold: {', '.join(found.gold)}", indent=2)
    yield f"requirements ({len(found.requirements)})"
    for number, requirement in enumerate(found.requirements, start=1):
        yield from _requirement(number, requirement)


def _requirement(number: int, requirement: Requirement) -> Iterator[str]:
    yield from _wrapped(f"r{number} {requirement.text}", indent=2)
    types = ", ".join(requirement.types) or "none"
    yield f"     types of values: {types}; rarity of its words {requirement.weight:.2f}"
    shown = " | ".join(requirement.spans[:_SPANS])
    more = f" and {len(requirement.spans) - _SPANS} more" if len(requirement.spans) > _SPANS else ""
    yield from _wrapped(f"spans: {shown}{more}", indent=5)


def _overview(found: Explanation) -> Iterator[str]:
    width = max(min(_RANKS // max(len(found.views), 1), 8), 4)
    views = "".join(f"{view[: width - 1]:>{width}}" for view in found.views)
    yield f"{'candidates (* gold)':{_NAME}}{'s0':>7}{'rel.':>7}{'func.':>7}{'cont.':>7}{'supp.':>7}{'score':>7}{views}"
    for candidate in found.candidates:
        pair, of = candidate.pair, {place.view: _rank(place, width) for place in candidate.lists}
        parts = [
            pair.scores.relation if pair.scores.relation_strength else None,
            None if pair.functional is None else pair.functional.correction.added,
            None if pair.contextual is None else pair.contextual.correction.added,
            None if pair.support is None else pair.support.added,
        ]
        added = "".join(f"{'-' if x is None else f'{x:+.3f}':>7}" for x in parts)
        ranks = "".join(f"{of.get(view, '-'):>{width}}" for view in found.views)
        name = f"{'*' if candidate.is_gold else ' '} {candidate.name[: _NAME - 2]}"
        yield f"{name:{_NAME}}{pair.scores.anchor:7.3f}{added}{pair.scores.score:7.3f}{ranks}"


def _rank(place: ListPlace, width: int) -> str:
    """``3/20``, or the rank alone where columns are narrow."""
    whole = f"{place.rank}/{place.of}"
    return whole if len(whole) < width else str(place.rank)


def _candidate(candidate: Candidate, found: Explanation) -> Iterator[str]:
    gold = "gold" if candidate.is_gold else "not gold"
    yield from _wrapped(
        f"capability {candidate.capability_id} ({candidate.name}, domain {candidate.domain or 'none'}): {gold}"
    )
    yield from _wrapped(textwrap.shorten(candidate.text, _TEXT, placeholder=" ..."), indent=2)
    yield "scores"
    yield from _scores(candidate)
    yield from _endpoints(candidate.pair.endpoints, gold=candidate.gold_endpoints)
    yield from _evidence(candidate, found)
    yield from _functional(candidate.pair.functional)
    yield from _contextual(candidate.pair.contextual)


def _scores(candidate: Candidate) -> Iterator[str]:
    scores, pair = candidate.pair.scores, candidate.pair
    kind = "blend of label-free signals" if scores.anchor_terms else "cosine of the texts"
    yield f"  s0 {scores.anchor:8.4f}  {kind}"
    yield from _terms(scores.anchor_terms, indent=16)
    strength = f"at most {scores.relation_strength:g}" if scores.relation_strength else "off"
    yield f"  s1 {scores.s1:8.4f}  relation {scores.relation:+.4f} ({strength})"
    yield f"  s2 {scores.s2:8.4f}  functional {_added(None if pair.functional is None else pair.functional.correction)}"
    yield f"  s3 {scores.s3:8.4f}  contextual {_added(None if pair.contextual is None else pair.contextual.correction)}"
    if pair.support is not None:
        yield f"  s4 {scores.score:8.4f}  support {pair.support.added:+.4f} = {pair.support.strength:g} * S_c"
    if candidate.published is None:
        yield "  in no list of the task, so there is no published score"
    else:
        word = "the same" if candidate.agrees else "ANOTHER ONE: made by other code or data"
        yield f"  published {candidate.published:.6f}, recomputed {scores.score:.6f}: {word}"
    for place in candidate.lists:
        tied = f", {place.tied} with the same score" if place.tied else ""
        yield f"  list {place.view}: rank {place.rank} of {place.of}{tied}; there as {place.role or 'unknown'}"


def _added(correction: AppliedCorrection | None) -> str:
    if correction is None:
        return "off"
    return f"{correction.added:+.4f} = gate {correction.gate:.3f} * D {correction.bounded:+.4f}"


def _endpoints(endpoints: Sequence[PooledEndpoint], *, gold: Sequence[str]) -> Iterator[str]:
    yield f"endpoints ({len(endpoints)} pooled)" if endpoints else "endpoints: none, so no functional evidence"
    for number, endpoint in enumerate(endpoints, start=1):
        required = ", ".join(f"{name} ({kind})" for name, kind in endpoint.required) or "nothing"
        word = " [gold]" if endpoint.endpoint_id in gold else ""
        yield from _wrapped(f"e{number} {endpoint.operation}{word}; requires {required}", indent=2)
        yield from _wrapped(endpoint.endpoint_id, indent=5)


def _evidence(candidate: Candidate, found: Explanation) -> Iterator[str]:
    pair, count = candidate.pair, len(candidate.pair.endpoints)
    if not count or not found.requirements:
        return
    yield "evidence (requirements in rows, endpoints in columns; -- no evidence; * matched)"
    head = "".join(f"{f'e{j + 1}':>6}" for j in range(count))
    blocks: list[tuple[str, Matrix, Sequence[bool]]] = [
        ("operation", pair.channels.operation, [True] * count),
        ("argument", pair.channels.argument, [e.has_argument for e in pair.endpoints]),
        ("type", pair.channels.type, [e.has_type for e in pair.endpoints]),
    ]
    if pair.functional is not None:
        blocks.append(("composed", pair.functional.evidence, [True] * count))
    matched = {(c.requirement, c.endpoint) for c in pair.functional.matching} if pair.functional else set()
    for left in range(0, len(blocks), 2):
        two = blocks[left : left + 2]
        yield "    " + "    ".join(f"{name:<11}{head}" for name, _, _ in two)
        for i in range(len(found.requirements)):
            cells = [
                f"{f'r{i + 1}':<11}" + _row(matrix[i], mask, starred=_stars(i, name, matched))
                for name, matrix, mask in two
            ]
            yield "    " + "    ".join(cells)


def _stars(row: int, name: str, matched: set[tuple[int, int]]) -> set[int]:
    return {j for i, j in matched if i == row} if name == "composed" else set()


def _row(values: Sequence[float], mask: Sequence[bool], *, starred: set[int]) -> str:
    shown = [f"{x:.2f}" if there else "--" for x, there in zip(values, mask, strict=True)]
    return "".join(f"{f'*{text}' if j in starred else text:>6}" for j, text in enumerate(shown))


def _functional(part: FunctionalPart | None) -> Iterator[str]:
    if part is None:
        yield "functional validation: off"
        return
    yield f"functional validation (at most {part.strength:g}, {part.composition})"
    yield f"  channel weights: operation 1, argument {part.argument_weight:.3f}, type {part.type_weight:.3f}"
    pairs = [f"r{c.requirement + 1}-e{c.endpoint + 1} {c.evidence:.3f} (gain {c.gain:+.3f})" for c in part.matching]
    yield from _wrapped(f"matching z* over kappa {part.kappa:g}: {'; '.join(pairs) or 'empty'}", indent=2)
    yield (
        f"  F {part.match:.4f}, usual at this s1: F_ref {part.reference:.4f} = {part.intercept:.4f} "
        f"{part.slope:+.4f} * s1; tau_F {part.scale:.4f}"
    )
    yield f"  rho_F {part.reliability:.4f} = sigmoid of"
    yield from _terms(part.reliability_terms, indent=4)
    yield from _correction("F", part.strength, part.correction, of="(F - F_ref) / tau_F")


def _contextual(part: ContextualPart | None) -> Iterator[str]:
    if part is None:
        yield "contextual validation: off"
        return
    yield f"contextual validation (at most {abs(part.strength):g})"
    use = part.use
    yield (
        f"  source evidence by {use.lookup}: n_c {use.records:.2f}, S_c {use.support:.3f}, "
        f"contexts {use.contexts_share * use.n_contexts:.3g} of {use.n_contexts}"
    )
    where = f" in {', '.join(use.own_contexts)}" if use.own_contexts else ""
    yield from _wrapped(f"gold for {use.own_records} source tasks{where}", indent=2)
    if part.signal != "profiles":
        yield f"  a control in place of the profiles: {part.signal} {part.value:.4f}"
        correction = part.correction
        yield f"  D_C {correction.bounded:+.4f} = {part.strength:g} * {part.signal}; gate {correction.gate:.3f}"
        return
    yield from _prototypes(part)
    yield f"  C {part.value:+.4f}; tau_C {part.scale:.4f}"
    yield f"  q {part.confidence:.4f} = sigmoid of"
    yield from _terms(part.confidence_terms, indent=4)
    held = "hold" if part.trusted else "do not hold"
    yield (
        f"  rho_C {part.reliability:.4f}: records, S_c >= {part.least_support:g} and nearest prototype >= "
        f"{part.least_nearness:g} {held}"
    )
    yield from _correction("C", part.strength, part.correction, of="C / tau_C")


def _prototypes(part: ContextualPart) -> Iterator[str]:
    if not part.prototypes:
        yield "  no source evidence, so C is 0"
        return
    yield f"  {'prototype':>9}{'R':>8}{'R mean':>8}{'ln ratio':>10}{'eta':>7}{'adds':>9}  nearest source task"
    for one in part.prototypes:
        numbers = f"{one.number + 1:>9}{one.routing:8.3f}{one.mean_routing:8.3f}{one.log_ratio:+10.3f}{one.eta:7.3f}"
        text = textwrap.shorten(one.nearest_task, WIDTH - 55, placeholder=" ...")
        yield f"  {numbers}{one.added:+9.4f}  {text}"


def _correction(letter: str, strength: float, found: AppliedCorrection, *, of: str) -> Iterator[str]:
    yield f"  D_{letter} {found.bounded:+.4f} = {strength:g} * rho_{letter} * tanh({of})"
    if not found.gate_terms:
        yield f"  gate {found.gate:.4f} (corrections are not gated)"
        return
    yield f"  gate {found.gate:.4f} = sigmoid of"
    yield from _terms(found.gate_terms, indent=4)


def _terms(terms: Sequence[Term], *, indent: int) -> Iterator[str]:
    for term in terms:
        product = term.value * term.weight
        yield f"{' ' * indent}{term.name:<33}{term.value:9.4f} * {term.weight:+9.4f} = {product:+9.4f}"


def _wrapped(text: str, *, indent: int = 0) -> list[str]:
    """Lines of at most ``WIDTH`` columns; a word that is longer is cut."""
    left = " " * indent
    return textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent=left, subsequent_indent=left + "  ") or [left]
