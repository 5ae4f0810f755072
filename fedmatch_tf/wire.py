"""What crosses between server and client, and what it costs. Weights travel only inside these messages.

A message says which elements changed by more than a threshold and their new values, so applying it is exact. Costs are
ratios to the number of weights of one parameter set (sigma and psi together can cost 2), and bytes as encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedmatch_tf.params import Params, hard_threshold


class SparseDelta(NamedTuple):
    """New values of some elements of a vector."""

    places: np.ndarray  # uint32 [k], ascending
    values: np.ndarray  # float32 [k]
    size: int  # of the whole vector


class Cost(NamedTuple):
    """What a message costs, in weights sent over weights of one parameter set."""

    sigma: float
    psi: float
    helpers: float
    num_bytes: int

    @property
    def sum(self) -> float:
        """All parts together."""
        return self.sigma + self.psi + self.helpers


class Broadcast(NamedTuple):
    """Server to client: what the client holds once it has received the message."""

    params: Params
    helpers: tuple[np.ndarray, ...]  # psi of other clients
    cost: Cost


class Upload(NamedTuple):
    """Client to server: what both hold of the client's parameters afterwards."""

    params: Params
    cost: Cost


def diff(new: np.ndarray, old: np.ndarray, threshold: float) -> SparseDelta:
    """The elements that differ by more than the threshold."""
    index = np.flatnonzero(np.abs(new - old) > np.float32(threshold))
    return SparseDelta(index.astype(np.uint32), new[index], len(new))


def apply(old: np.ndarray, delta: SparseDelta) -> np.ndarray:
    """The old vector with the new values in place."""
    result = old.copy()
    result[delta.places] = delta.values
    return result


def encode(delta: SparseDelta) -> bytes:
    """The message as bytes: values behind their indices or behind a bitmap, whichever is smaller."""
    bitmap = np.zeros(delta.size, bool)
    bitmap[delta.places] = True
    where = delta.places.astype("<u4").tobytes()
    packed = np.packbits(bitmap).tobytes()
    kind, places = (b"B", packed) if len(packed) < len(where) else (b"I", where)
    return (
        kind
        + np.array([delta.size, len(delta.places)], "<u4").tobytes()
        + places
        + delta.values.astype("<f4").tobytes()
    )


def decode(message: bytes) -> SparseDelta:
    """The delta of an encoded message."""
    kind, (size, count) = message[:1], np.frombuffer(message, "<u4", 2, offset=1)
    values = np.frombuffer(message, "<f4", count, offset=len(message) - 4 * int(count))
    places = message[_HEADER : len(message) - 4 * int(count)]
    if kind == b"B":
        bits = np.unpackbits(np.frombuffer(places, np.uint8), count=int(size))
        index = np.flatnonzero(bits).astype(np.uint32)
    else:
        index = np.frombuffer(places, "<u4")
    return SparseDelta(index, values, int(size))


_HEADER = 9  # kind, size and count


def num_bytes(delta: SparseDelta) -> int:
    """Length of the encoded message, without making it."""
    return _HEADER + min(4 * len(delta.places), -(-delta.size // 8)) + 4 * len(delta.values)


def full_broadcast(params: Params) -> Broadcast:
    """All weights: round 0, and a client's first visit. No helpers, as nothing is known of the client."""
    psi = 1.0 if len(params.psi) else 0.0
    return Broadcast(params, (), Cost(1.0, psi, 0.0, params.sigma.nbytes + params.psi.nbytes))


def own_broadcast(params: Params) -> Broadcast:
    """A client that shares nothing goes on with its own parameters: nothing is sent."""
    return Broadcast(params, (), Cost(0.0, 0.0, 0.0, 0))


def helper_part(params: Params) -> np.ndarray:
    """What a helper is known by: its psi, or all of its parameters where there is no psi."""
    return params.psi if len(params.psi) else params.sigma


def broadcast(
    server: Params, held: Params, helpers: Sequence[np.ndarray], l1_thres: float, delta_thres: float, content: str
) -> Broadcast:
    """What the server sends to a client that still holds `held` from its last round.

    Args:
        content: `full`, the client gets all weights though only the differences are counted, as in the original;
            `counted`, it gets exactly what is counted.
    """
    size = len(server.sigma)
    held_psi = hard_threshold(held.psi, l1_thres)
    sigma = diff(server.sigma, held.sigma, delta_thres)
    psi = diff(hard_threshold(server.psi, l1_thres), held_psi, delta_thres)
    own = held_psi if len(held_psi) else held.sigma
    sparse = [hard_threshold(helper, l1_thres) if len(held_psi) else helper for helper in helpers]
    bases = [np.where(helper != 0, own, np.float32(0)) for helper in sparse]
    deltas = [diff(helper, base, delta_thres) for helper, base in zip(sparse, bases)]
    cost = Cost(
        len(sigma.places) / size,
        len(psi.places) / size,
        sum(len(delta.places) for delta in deltas) / size,
        sum(num_bytes(delta) for delta in (sigma, psi, *deltas)),
    )
    if content == "full":
        return Broadcast(server, tuple(helpers), cost)
    received = Params(apply(held.sigma, sigma), apply(held_psi, psi))
    return Broadcast(received, tuple(apply(base, delta) for base, delta in zip(bases, deltas)), cost)


def upload(trained: Params, received: Params, l1_thres: float, delta_thres: float, with_sigma: bool) -> Upload:
    """What the client sends back: changes beyond the threshold; elsewhere both sides keep what was received.

    Args:
        with_sigma: False where clients don't train sigma, as in labels-at-server.
    """
    size = len(received.sigma)
    psi = diff(hard_threshold(trained.psi, l1_thres), received.psi, delta_thres)
    params, cost = (
        Params(received.sigma, apply(received.psi, psi)),
        Cost(0.0, len(psi.places) / size, 0.0, num_bytes(psi)),
    )
    if with_sigma:
        sigma = diff(trained.sigma, received.sigma, delta_thres)
        params = params._replace(sigma=apply(received.sigma, sigma))
        cost = cost._replace(sigma=len(sigma.places) / size, num_bytes=cost.num_bytes + num_bytes(sigma))
    return Upload(params, cost)


def full_upload(trained: Params, shared: bool) -> Upload:
    """All weights, as plain federated averaging sends them; a client that shares nothing keeps them at no cost."""
    return Upload(trained, Cost(1.0, 0.0, 0.0, trained.sigma.nbytes) if shared else Cost(0.0, 0.0, 0.0, 0))
