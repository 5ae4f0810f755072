"""Helpers: a model is known by its prediction on one noise image; a client gets the psi of its nearest neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def probe_image(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Noise around grey, [1, h, w, c] in [0, 1]: normal with mean and deviation 125, redrawn until within 0 .. 255."""
    values = rng.normal(125, 125, (1, *shape))
    while (outside := (values < 0) | (values > 255)).any():
        values[outside] = rng.normal(125, 125, int(outside.sum()))
    return (values / 255).astype(np.float32)


def choose_helpers(
    clients: Sequence[int], embeddings: Mapping[int, np.ndarray], num_helpers: int
) -> dict[int, tuple[int, ...]]:
    """Client -> those whose models are nearest to its own, nearest first. Clients that never took part get none.

    With fewer than num_helpers others known, all of them.
    """
    asking = [client for client in clients if client in embeddings]
    if not asking or num_helpers == 0 or len(embeddings) < 2:
        return {}
    from sklearn.neighbors import KDTree  # takes a second to load: not before it is needed

    known = sorted(embeddings)
    tree = KDTree(np.stack([embeddings[other] for other in known]))
    wanted = min(num_helpers + 1, len(known))
    nearest = tree.query(np.stack([embeddings[client] for client in asking]), k=wanted, return_distance=False)
    return {
        client: tuple([known[place] for place in places if known[place] != client][:num_helpers])
        for client, places in zip(asking, nearest)
    }
