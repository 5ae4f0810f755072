"""What crosses between server and client, and what it costs. Weights travel only inside these messages.

A message says which elements changed by more than a threshold and their new values, so applying it is exact. Costs are
ratios to the number of weights of one parameter set (sigma and psi together can cost 2), and bytes as encoded.

`diff`, `encode`, `decode` and `apply` are the message as it would cross a network. The simulation crosses none, so it
takes `merge`, which is both ends in one, and `num_bytes`; tests hold that they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedmatch_tf.networks.params import Params, blocks, hard_threshold


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


def merge(
    new: np.ndarray, old: np.ndarray, threshold: float, l1_thres: float = 0.0, as_is: bool = False
) -> tuple[np.ndarray, int]:
    """(the old vector after the differences were sent and applied, how many elements that were).

    The same as `apply(old, diff(...))`, where elements of `new` up to l1_thres count as 0, in one go through memory.

    Args:
        as_is: small elements count as 0 only where it is decided what is sent; they are sent as they are.
    """
    result, count = np.empty_like(old), 0
    for part in blocks(len(old)):
        after = hard_threshold(new[part], l1_thres) if l1_thres else new[part]
        changed = np.abs(after - old[part]) > np.float32(threshold)
        sent = new[part] if as_is else after
        # Picks one of two bit patterns by arithmetic: a branch for every element would take three times as long.
        old_bits = old[part].view(np.int32)
        np.add(old_bits, (sent.view(np.int32) - old_bits) * changed, out=result[part].view(np.int32))
        count += int(np.count_nonzero(changed))
    return result, count


def num_changed(new: np.ndarray, old: np.ndarray, threshold: float, l1_thres: float = 0.0) -> int:
    """How many elements differ by more than the threshold, where elements up to l1_thres count as 0 on both sides."""
    count = 0
    for part in blocks(len(old)):
        after, before = new[part], old[part]
        if l1_thres:
            after, before = hard_threshold(after, l1_thres), hard_threshold(before, l1_thres)
        count += int(np.count_nonzero(np.abs(after - before) > np.float32(threshold)))
    return count


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


def num_bytes(size: int, count: int) -> int:
    """Length of an encoded message, without making it."""
    return _HEADER + min(4 * count, -(-size // 8)) + 4 * count


def full_broadcast(params: Params) -> Broadcast:
    """All weights: round 0, and a client's first visit. No helpers, as nothing is known of the client."""
    psi = len(params.psi) / len(params.sigma)
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
    size, psi_size = len(server.sigma), len(server.psi)
    sparse = [hard_threshold(helper, l1_thres) if psi_size else helper for helper in helpers]
    own = held.sigma
    if psi_size and (helpers or content != "full"):
        own = hard_threshold(held.psi, l1_thres)
    bases = [np.where(helper != 0, own, np.float32(0)) for helper in sparse]
    received, got_helpers = server, tuple(helpers)
    if content == "full":
        sigma = num_changed(server.sigma, held.sigma, delta_thres)
        psi = num_changed(server.psi, held.psi, delta_thres, l1_thres)
        helped = [num_changed(helper, base, delta_thres) for helper, base in zip(sparse, bases)]
    else:
        new_sigma, sigma = merge(server.sigma, held.sigma, delta_thres)
        new_psi, psi = merge(server.psi, own[:psi_size], delta_thres, l1_thres)
        merged = [merge(helper, base, delta_thres) for helper, base in zip(sparse, bases)]
        received, got_helpers = Params(new_sigma, new_psi), tuple(helper for helper, _ in merged)
        helped = [count for _, count in merged]
    sent_bytes = (
        num_bytes(size, sigma)
        + num_bytes(psi_size, psi)
        + sum(num_bytes(len(helper), count) for helper, count in zip(helpers, helped))
    )
    return Broadcast(received, got_helpers, Cost(sigma / size, psi / size, sum(helped) / size, sent_bytes))


def upload(trained: Params, received: Params, l1_thres: float, delta_thres: float, with_sigma: bool) -> Upload:
    """What the client sends back: changes beyond the threshold; elsewhere both sides keep what was received.

    As in the original, small elements of psi count as 0 in the comparison, and travel as they are if they are sent.

    Args:
        with_sigma: False where clients don't train sigma, as in labels-at-server.
    """
    size = len(received.sigma)
    psi, count = merge(trained.psi, received.psi, delta_thres, l1_thres, as_is=True)
    params, cost = Params(received.sigma, psi), Cost(0.0, count / size, 0.0, num_bytes(len(psi), count))
    if with_sigma:
        sigma, count = merge(trained.sigma, received.sigma, delta_thres)
        params = params._replace(sigma=sigma)
        cost = cost._replace(sigma=count / size, num_bytes=cost.num_bytes + num_bytes(size, count))
    return Upload(params, cost)


def full_upload(trained: Params) -> Upload:
    """All weights, as plain federated averaging sends them."""
    return Upload(trained, Cost(1.0, 0.0, 0.0, trained.sigma.nbytes))


def own_upload(trained: Params) -> Upload:
    """A client that shares nothing keeps its parameters: nothing is sent."""
    return Upload(trained, Cost(0.0, 0.0, 0.0, 0))
