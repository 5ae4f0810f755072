"""What server and client have of each other after a message, and what the message counts as.

Counted are, as in the original, the elements that differ by more than a threshold from what the other side holds: as
ratios to the number of weights of one parameter set (sigma and psi together can cost 2), and as the bytes of their new
values behind a bitmap or their places. An upload is exactly what is counted. So is a broadcast with
`s2c_content=counted`; with `full`, the original's way, the client gets all weights, whatever is counted.

Nothing is encoded: `merge` is both ends of a message in one, and `num_bytes` is how long it would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedmatch_tf.networks.params import Params, blocks, hard_threshold


class Cost(NamedTuple):
    """What a message counts as, in weights sent over weights of one parameter set."""

    sigma: float = 0.0
    psi: float = 0.0
    helpers: float = 0.0
    num_bytes: int = 0

    @property
    def sum(self) -> float:
        """All parts together."""
        return self.sigma + self.psi + self.helpers

    def with_frozen(self, num_frozen: int, size: int) -> Cost:
        """That of a message with weights that nobody trains as well, beside `size` weights of one parameter set."""
        return self._replace(sigma=self.sigma + num_frozen / size, num_bytes=self.num_bytes + 4 * num_frozen)


class Broadcast(NamedTuple):
    """Server to client: what the client holds once it has received the message."""

    params: Params
    helpers: tuple[np.ndarray, ...]  # psi of other clients
    cost: Cost


class Upload(NamedTuple):
    """Client to server: what both hold of the client's parameters afterwards."""

    params: Params
    cost: Cost


def merge(
    new: np.ndarray, old: np.ndarray, threshold: float, l1_thres: float = 0.0, as_is: bool = False
) -> tuple[np.ndarray, int]:
    """(the old vector after the differences were sent and applied, how many elements that were).

    Elements of `new` up to l1_thres count as 0.

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


def num_bytes(size: int, count: int) -> int:
    """Bytes of so many new values of a vector, with a bitmap or their places, whichever is shorter, and a head."""
    return 9 + min(4 * count, -(-size // 8)) + 4 * count


def full_broadcast(params: Params) -> Broadcast:
    """All weights: round 0, and a client's first visit. No helpers, as nothing is known of the client."""
    psi = 0.0 if params.psi is None else len(params.psi) / len(params.sigma)
    return Broadcast(params, (), Cost(1.0, psi, 0.0, sum(part.nbytes for part in params.parts)))


def full_upload(trained: Params) -> Upload:
    """All weights, as plain federated averaging sends them."""
    return Upload(trained, Cost(1.0, num_bytes=trained.sigma.nbytes))


def broadcast(
    server: Params, held: Params, helpers: Sequence[np.ndarray], l1_thres: float, delta_thres: float, content: str
) -> Broadcast:
    """What the server sends to a client that still holds `held` from its last round.

    Args:
        content: `full`, the client gets all weights though only the differences are counted, as in the original;
            `counted`, it gets exactly what is counted.
    """
    size, at_client = len(server.sigma), held.shared_part  # what psi and helpers are compared with
    if held.psi is None:
        l1_thres = 0.0
    elif helpers or content == "counted":
        at_client = hard_threshold(at_client, l1_thres)

    def send(new: np.ndarray, old: np.ndarray, l1_thres: float) -> tuple[np.ndarray, int]:
        """(what the client then has of it, how many elements are counted)."""
        if content == "full":
            return new, num_changed(new, old, delta_thres, l1_thres)
        return merge(new, old, delta_thres, l1_thres)

    sigma, sigma_count = send(server.sigma, held.sigma, 0.0)
    psi, psi_count = (None, 0) if server.psi is None else send(server.psi, at_client, l1_thres)
    # Where a helper is 0, nothing of it is counted, whatever the client has there.
    shown = [np.where(np.abs(helper) > np.float32(l1_thres), at_client, np.float32(0)) for helper in helpers]
    helped = [send(helper, old, l1_thres) for helper, old in zip(helpers, shown)]
    total_bytes = num_bytes(size, sigma_count) + num_bytes(0 if psi is None else len(psi), psi_count)
    total_bytes += sum(num_bytes(len(helper), count) for helper, count in helped)
    cost = Cost(sigma_count / size, psi_count / size, sum(count for _, count in helped) / size, total_bytes)
    return Broadcast(Params(sigma, psi), tuple(helper for helper, _ in helped), cost)


def upload(trained: Params, received: Params, l1_thres: float, delta_thres: float, with_sigma: bool) -> Upload:
    """What the client sends back: changes beyond the threshold; elsewhere both sides keep what was received.

    As in the original, small elements of psi count as 0 in the comparison, and travel as they are if they are sent.

    Args:
        with_sigma: False where clients don't train sigma, as in labels-at-server.
    """
    size, params, cost = len(received.sigma), received, Cost(num_bytes=num_bytes(0, 0))
    if trained.psi is not None and received.psi is not None:
        psi, count = merge(trained.psi, received.psi, delta_thres, l1_thres, as_is=True)
        params, cost = params._replace(psi=psi), Cost(psi=count / size, num_bytes=num_bytes(len(psi), count))
    if with_sigma:
        sigma, count = merge(trained.sigma, received.sigma, delta_thres)
        params = params._replace(sigma=sigma)
        cost = cost._replace(sigma=count / size, num_bytes=cost.num_bytes + num_bytes(size, count))
    return Upload(params, cost)
