"""A model's parameters as flat vectors in layer order, and the arithmetic on them. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np


class Params(NamedTuple):
    """theta = sigma + psi. A plain network keeps all of theta in sigma and has no psi.

    Kernels come first. What follows them in sigma (scales and offsets of normalisations) has no psi.
    """

    sigma: np.ndarray  # float32 [n]
    psi: np.ndarray | None = None  # float32 [m], m <= n

    @property
    def parts(self) -> tuple[np.ndarray, ...]:
        """The vectors that there are."""
        return (self.sigma,) if self.psi is None else (self.sigma, self.psi)

    @property
    def shared_part(self) -> np.ndarray:
        """What is sent of a client to those that it helps: its psi, or all of its parameters where there is none."""
        return self.parts[-1]

    def theta(self, l1_thres: float = 0.0) -> np.ndarray:
        """sigma + psi; elements of psi of magnitude up to the threshold count as 0, as in every evaluation."""
        if self.psi is None:
            return self.sigma
        theta, size = np.empty_like(self.sigma), len(self.psi)
        theta[size:] = self.sigma[size:]
        for part in blocks(size):
            psi = self.psi[part]
            np.add(self.sigma[part], hard_threshold(psi, l1_thres) if l1_thres else psi, out=theta[part])
        return theta

    def only_psi(self, l1_thres: float = 0.0) -> np.ndarray:
        """theta with sigma's kernels set to 0; scales and offsets stay, as nothing would pass without them."""
        if self.psi is None:
            raise ValueError("expected sigma and psi, received one set of parameters")
        return np.concatenate([hard_threshold(self.psi, l1_thres), self.sigma[len(self.psi) :]])


def blocks(size: int) -> Iterator[slice]:
    """Parts of a vector that stay in the processor's cache."""
    return (slice(begin, min(begin + _BLOCK, size)) for begin in range(0, size, _BLOCK))


_BLOCK = 2**16


def flatten(kernels: Sequence[np.ndarray]) -> np.ndarray:
    """One float32 vector of all kernels."""
    return np.concatenate([np.asarray(kernel, np.float32).ravel() for kernel in kernels])


def hard_threshold(vector: np.ndarray, threshold: float) -> np.ndarray:
    """The vector with elements of magnitude up to the threshold set to 0, by a product: no branch for any of them."""
    result: np.ndarray = vector * (np.abs(vector) > np.float32(threshold))
    return result


class Mean(NamedTuple):
    """A weighted mean of vectors that come one by one, added up as they come."""

    planned: float  # what the weights are expected to add up to
    weight: float = 0.0  # what they have added up to so far
    vector: np.ndarray | None = None  # the sum so far of weight / planned times vector

    def add(self, vector: np.ndarray, weight: float) -> Mean:
        """The mean with this vector; memory is used again, so that of before is not to be used any more."""
        total = np.zeros_like(vector) if self.vector is None else self.vector
        share = np.float32(weight / self.planned)
        for part in blocks(len(total)):
            total[part] += share * vector[part]
        return self._replace(weight=self.weight + weight, vector=total)

    def result(self) -> np.ndarray:
        """The mean of what has come, at least one vector."""
        if self.vector is None:
            raise ValueError("expected a vector at least, received none")
        return self.vector if self.weight == self.planned else self.vector * np.float32(self.planned / self.weight)
