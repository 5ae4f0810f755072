"""Helpers: a model is known by its prediction on one noise image; a client gets the psi of its nearest neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def probe_image(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Noise around grey, [1, h, w, c] in [0, 1]: normal with mean and deviation 125, redrawn until within 0 .. 255."""
    values = rng.normal(125, 125, (1, *shape))
    while (outside := (values < 0) | (values > 255)).any():
        values[outside] = rng.normal(125, 125, int(outside.sum()))
    return (values / 255).astype(np.float32)


class Neighbours:
    """Every client's newest embedding, and the nearest ones to any of them.

    Most lie in a tree, those that changed since it was made in a list. The tree is made anew when the list has grown to
    some times the root of their number, so a question costs little more with many clients than with few. The answer
    does not depend on when that was: among equally near ones, lower clients come first.
    """

    def __init__(self, embeddings: Mapping[int, np.ndarray]) -> None:
        self._all = dict(embeddings)
        self._tree: Any = None
        self._in_tree: list[int] = []
        self._changed: set[int] = set(embeddings)

    def update(self, embeddings: Mapping[int, np.ndarray]) -> None:
        """Takes in newer embeddings."""
        self._all.update(embeddings)
        self._changed.update(embeddings)

    def nearest(self, client: int, count: int) -> tuple[int, ...]:
        """The other clients nearest to this one, nearest first; all if there are not more; none if it is unknown."""
        count = min(count, len(self._all) - 1)
        if client not in self._all or count <= 0:
            return ()
        if self._tree is None or len(self._changed) > 4 * len(self._all) ** 0.5:
            self._make_tree()
        point = self._all[client][np.newaxis].astype(np.float64)
        found = self._sorted(client, point, self._around(point, client, count))
        return tuple(found[:count])

    def _make_tree(self) -> None:
        from sklearn.neighbors import KDTree  # takes a second to load: not before it is needed

        self._in_tree = sorted(self._all)
        self._tree = KDTree(np.stack([self._all[client] for client in self._in_tree]))
        self._changed = set()

    def _around(self, point: np.ndarray, client: int, count: int) -> set[int]:
        """Clients among which the nearest are, and all that are as near as the last of them."""
        size, wanted = len(self._in_tree), count + 1
        while True:
            rows = self._tree.query(point, k=min(wanted, size), return_distance=False)[0]
            near = [self._in_tree[row] for row in rows if self._in_tree[row] not in self._changed]
            if wanted >= size or len(near) > count:
                break
            wanted *= 2
        ordered = self._sorted(client, point, {*near, *self._changed})
        radius = float(np.linalg.norm(self._all[ordered[count - 1]] - point[0])) * (1 + 1e-9)
        equals = [self._in_tree[row] for row in self._tree.query_radius(point, radius)[0]]
        return {*ordered, *equals}  # some may have moved away since: too many do no harm

    def _sorted(self, client: int, point: np.ndarray, others: set[int]) -> list[int]:
        """The others by distance, then by number."""
        found = sorted(others - {client})
        distances = np.square(np.stack([self._all[other] for other in found]) - point).sum(axis=1)
        return [found[place] for place in np.argsort(distances, kind="stable")]


def choose_helpers(clients: Sequence[int], neighbours: Neighbours, num_helpers: int) -> dict[int, tuple[int, ...]]:
    """Client -> those whose models are nearest to its own, nearest first. Clients that never took part get none."""
    chosen = {client: neighbours.nearest(client, num_helpers) for client in clients}
    return {client: others for client, others in chosen.items() if others}
