"""Every client draws its own mix of classes; a quadratic program makes sizes as equal as the mixes allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # imports its submodules on first use
from jaxtyping import Float, Int

from fedjax_sel.data.partition._ops import NO_CLIENT, check_alpha, check_count, group_by_class
from fedjax_sel.data.partition.dirichlet import DRAWS

__all__ = ["QuadraticDirichlet"]

TOLERANCE = 1e-9
"""Largest error in a class's share of all examples."""

NEARLY = 1e-6
"""How far a cell may fall short of a whole example and still count as one: sizes come from a linear solve."""


@dataclass(frozen=True)
class QuadraticDirichlet:
    """Client i draws q_i ~ Dir(alpha * prior) over the classes; a quadratic program chooses the sizes `x`.

        min ½ ‖x‖²   subject to   Q x = d,  x >= 0,      Q = [q_1 ... q_N], d the examples of each class

    so that sizes are as equal as the mixes allow and sum to `n`. Client i owns `⌊Q_ci x_i⌋` examples of class c, drawn
    without replacement; examples left over by rounding go to clients drawn uniformly, with replacement, and are all
    that a client of size 0 owns. `prior` is the share of each class among all examples. If no sizes fit the mixes, or a
    client gets no examples, the mixes are redrawn, at most 100 times.

    The "Dir" of FedCor and GPFL, where alpha is 0.2: Tang et al., "FedCor: Correlation-Based Active Client Selection
    Strategy for Heterogeneous Federated Learning", CVPR 2022, https://arxiv.org/abs/2103.13822; the program is that of
    the authors' code, which does not redraw. Not to be confused with `ClientDirichlet`, where sizes are equal and late
    clients find classes exhausted, nor with `Dirichlet`.

    Attributes:
      clients: `N`, several times the number of classes: no sizes fit the mixes of fewer clients than classes, and sizes
        seldom fit those of only a few more.
      alpha: concentration; near 0: one class per client, large: every client has the mix of the whole.

    >>> y, rng = np.arange(12) % 3, np.random.default_rng(0)
    >>> np.bincount(QuadraticDirichlet(4, alpha=9.0).assign(y, rng)).sum()
    np.int64(12)
    """

    clients: int = 100
    alpha: float = 0.2

    def assign(
        self, y: Int[np.ndarray, "n"], rng: np.random.Generator, owner: Int[np.ndarray, "n"] | None = None
    ) -> Int[np.ndarray, "n"]:
        """Returns the client of each example.

        Raises `ValueError` if none of 100 draws gives every client examples.
        """
        check_count("clients", self.clients, len(y))
        check_alpha(self.alpha)
        classes = group_by_class(y, rng)
        examples = np.array([len(of_class) for of_class in classes])
        unfit = 0
        for _ in range(DRAWS):
            count = self._counts(examples, rng)
            if count is None:
                unfit += 1
                continue
            client = np.full(len(y), NO_CLIENT, np.int64)
            for of_class, take in zip(classes, count, strict=True):
                client[of_class[: take.sum()]] = np.repeat(np.arange(self.clients), take)
            left = np.flatnonzero(client == NO_CLIENT)
            client[left] = rng.integers(self.clients, size=len(left))
            if np.bincount(client, minlength=self.clients).all():
                return client
        wrong = []
        if unfit:
            wrong.append(f"in {unfit} no sizes of the clients add up to the classes' examples (raise alpha or clients)")
        if unfit < DRAWS:
            wrong.append(
                f"in {DRAWS - unfit} a client was left without examples (raise alpha, or lower clients where examples "
                "are few)"
            )
        raise ValueError(
            f"{DRAWS} draws of Dir(alpha={self.alpha} * prior) for {self.clients} clients and {len(y)} examples of "
            f"{len(classes)} classes gave no partition: {'; '.join(wrong)}"
        )

    def _counts(self, examples: Int[np.ndarray, "C"], rng: np.random.Generator) -> Int[np.ndarray, "C N"] | None:
        """Returns each client's number of examples of each class, without the left-over ones; None if no sizes fit.

        No example is given away twice: the cells of a class exceed its size by less than one example, errors and
        `NEARLY` together, and whole cells cannot exceed it by less than one.
        """
        mix = rng.dirichlet(self.alpha * examples / examples.sum(), self.clients).T
        sizes = solve_least_sizes(mix, examples)
        return None if sizes is None else np.floor(mix * sizes + NEARLY).astype(np.int64)


def solve_least_sizes(mix: Float[np.ndarray, "C N"], examples: Int[np.ndarray, "C"]) -> Float[np.ndarray, "N"] | None:
    """Returns the `x >= 0` of least `‖x‖` with `mix x = examples`; None if there is none.

    `x0 = Qᵀ(QQᵀ)⁻¹d` is the answer if no entry is negative. Otherwise, `x = x0 + z`, where `z`, in the null space of
    `Q` with projector `P`, is as short as `x >= 0` allows. Its dual is a non-negative least squares problem,

        min ‖[P; -x0ᵀ] u - [0; 1]‖²,  u >= 0;      x = x0 + P u / h,  h = 1 + x0ᵀ u,

    (x0 scaled to length 1), with few `u` above 0: one for each active bound. At the optimum, `h` is `‖x0‖² / ‖x‖²`,
    which is at least 1/N because `x` and `x0` have the same sum; `h` is 0 if there is no such `x`.

    Source: Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23, problem LDP.

    >>> solve_least_sizes(np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]]), np.array([6, 6])).round(6)
    array([4., 4., 4.])
    """
    share = examples / examples.sum()
    left, value, right = np.linalg.svd(mix / share[:, None], full_matrices=False)
    span = value > 1e-12 * value[0]
    left, value, right = left[:, span], value[span], right[span]
    sizes = (left.sum(0) / value) @ right
    if sizes.min() < 0:
        clients, length = len(sizes), np.linalg.norm(sizes)
        null = np.eye(clients) - right.T @ right
        u, _ = scipy.optimize.nnls(np.vstack([null, -sizes / length]), np.append(np.zeros(clients), 1.0))
        h = 1 + sizes @ u / length
        if h < 0.5 / clients:
            return None
        sizes = np.maximum(sizes + length * (null @ u) / h, 0)
    return sizes * examples.sum() if np.abs(mix @ sizes - share).max() < TOLERANCE else None
