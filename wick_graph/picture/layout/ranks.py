"""Which box stands below which: cycles are opened, and every box is given a rank."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from wick_graph.picture.layout.shapes import Link

Edges = Sequence[tuple[int, Link]]
"""Links with their numbers."""


def components(count: int, links: Sequence[Link]) -> list[list[int]]:
    """Split boxes into groups that no link connects, each in order, by their first box."""
    parent = list(range(count))

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    for link in links:
        a, b = find(link.source), find(link.target)
        parent[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = {}
    for node in range(count):
        groups.setdefault(find(node), []).append(node)
    return list(groups.values())


def returning(nodes: Sequence[int], edges: Edges) -> set[int]:
    """Find the links that lead back to a box on the way that leads to them.

    Without them, and without links from a box to itself, there is no cycle. The way is followed
    from boxes that no link reaches, and from the first box of a cycle, in the order given.
    """
    follow: dict[int, list[tuple[int, int]]] = {node: [] for node in nodes}
    reached = set()
    for number, link in edges:
        follow[link.source].append((number, link.target))
        if link.source != link.target:
            reached.add(link.target)
    back: set[int] = set()
    done: set[int] = set()
    for root in sorted(nodes, key=lambda node: node in reached):
        if root not in done:
            _walk(root, follow, done, back)
    return back


def _walk(
    root: int, follow: dict[int, list[tuple[int, int]]], done: set[int], back: set[int]
) -> None:
    open_nodes = {root}
    stack: list[tuple[int, Iterator[tuple[int, int]]]] = [(root, iter(follow[root]))]
    while stack:
        node, ways = stack[-1]
        for number, target in ways:
            if target in open_nodes:
                back.add(number)
            elif target not in done:
                open_nodes.add(target)
                stack.append((target, iter(follow[target])))
                break
        else:
            stack.pop()
            open_nodes.discard(node)
            done.add(node)


def rank(nodes: Sequence[int], edges: Edges) -> dict[int, int]:
    """Give each box the number of links on the longest way to it; `edges` have no cycle.

    A box that more links leave than reach is moved down to where these lead.
    """
    below: dict[int, list[int]] = {node: [] for node in nodes}
    above: dict[int, list[int]] = {node: [] for node in nodes}
    for _, link in edges:
        below[link.source].append(link.target)
        above[link.target].append(link.source)
    missing = {node: len(above[node]) for node in nodes}
    order = [node for node in nodes if not missing[node]]
    ranks = dict.fromkeys(nodes, 0)
    for node in order:
        for target in below[node]:
            ranks[target] = max(ranks[target], ranks[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                order.append(target)
    for node in reversed(order):
        if len(below[node]) > len(above[node]):
            ranks[node] = min(ranks[target] for target in below[node]) - 1
    return ranks


def wrapped(
    ranks: Mapping[int, int], widths: Mapping[int, int], fixed: Collection[int], limit: int
) -> dict[int, int]:
    """Spread the boxes of a rank that is wider than `limit` over several.

    That helps only where one line leads to all of them; a rank with a `fixed` box stays whole.
    """
    members: dict[int, list[int]] = {}
    for node in sorted(ranks):
        members.setdefault(ranks[node], []).append(node)
    made: dict[int, int] = {}
    row = 0
    for number in sorted(members):
        nodes = members[number]
        width = sum(widths[node] for node in nodes)
        whole = any(node in fixed for node in nodes)
        parts = 1 if whole else min(-(-width // max(limit, 1)), len(nodes))
        for place, node in enumerate(nodes):
            made[node] = row + place * parts // len(nodes)
        row = made[nodes[-1]] + 1
    return made
