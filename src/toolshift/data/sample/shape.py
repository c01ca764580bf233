"""Worlds as formats can show them.

In many releases a tool is one function: there is no product with several operations behind one public text. For these
the products of a world are taken apart. What is asked for and how it is said stays; what a capability is changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from toolshift.data.names import local_name
from toolshift.data.sample.world import SampleCapability, SampleEndpoint, World


def one_function_each(world: World) -> World:
    """A world in which every endpoint is a capability of its own; row i of both belong together.

    Its name is provider and operation, unique in the whole world as a key (``local_name``); its description says what
    the operation does, then what the product says publicly. So a false friend differs from the gold in the public text
    too, and not only in the documentation. In ``no_function_gap``, where documents are dealt out at random, so are the
    names and first sentences: only the product's own sentence is true.
    """
    seen: Counter[str] = Counter()
    capabilities: list[SampleCapability] = []
    endpoints: list[SampleEndpoint] = []
    for endpoint in world.endpoints:
        product = world.capabilities[endpoint.capability]
        name = f"{product.provider} {endpoint.document.operation}"
        seen[local_name(name)] += 1
        copies = seen[local_name(name)]
        capabilities.append(
            replace(
                product,
                row=endpoint.row,
                name=name if copies == 1 else f"{name} {copies}",
                description=f"{endpoint.document.description} {product.description}".strip(),
                endpoints=(endpoint.row,),
            )
        )
        endpoints.append(replace(endpoint, capability=endpoint.row))
    return replace(world, capabilities=tuple(capabilities), endpoints=tuple(endpoints))


def within_domains(world: World) -> World:
    """The same library, whose tasks need tools of one domain only: some releases have a tool list per domain."""
    return replace(world, domains=tuple(replace(domain, closed=True) for domain in world.domains))


def with_domain_names(world: World, name: Callable[[str], str]) -> World:
    """The same world with other names of its domains."""
    return replace(
        world,
        domains=tuple(replace(domain, name=name(domain.name)) for domain in world.domains),
        concepts=tuple(replace(concept, domain=name(concept.domain)) for concept in world.concepts),
        capabilities=tuple(replace(row, domain=name(row.domain)) for row in world.capabilities),
    )
