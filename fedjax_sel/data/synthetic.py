"""The synthetic(α, β) federation of FedProx: every client has a linear model and inputs of its own.

`α` says how much the clients' models differ, and `β` how much their inputs do. Sizes follow a lognormal law, which is
heavy-tailed: few clients have many examples.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

from fedjax_sel.arrays import divide_in_proportion
from fedjax_sel.data.checks import check_wholes
from fedjax_sel.data.dataset import Dataset, dataset

PURPOSE = 0x5E17
"""The first word of the random stream, so that no two uses of a seed draw the same numbers."""

FEATURES, CLASSES = 60, 10
DECAY = -1.2
"""Exponent of `j` in the variance of input `j`, where `j` starts at 1."""

SIZE_MEAN, SIZE_SPREAD, SIZE_LEAST = 4.0, 2.0, 50
"""Mean and deviation of the logarithm in the lognormal law of sizes, and the offset added to every client's size."""


def synthetic(
    alpha: float = 1.0,
    beta: float = 1.0,
    seed: int = 0,
    *,
    clients: int = 30,
    num_examples: int = 10_000,
    num_test_examples: int = 1_000,
    num_validation_examples: int = 0,
) -> Dataset:
    """Returns one draw; client `k` owns its training examples (partition: natural).

    Each client draws `u_k ~ N(0, α)` and `B_k ~ N(0, β)`; its labels are `argmax(W_k x + b_k)` with all entries of
    `W_k` and `b_k` from `N(u_k, 1)`, and its inputs `x ~ N(v_k, Σ)` with `v_k ~ N(B_k, 1)` and `Σ` diagonal, `Σ_jj =
    j^-1.2`. As in the authors' code, α and β are standard deviations, and sizes are in proportion to `⌊s⌋ + 50`,
    `ln s ~ N(4, 2)`. In that code their sum differs from draw to draw; here all draws have the same number of examples,
    so that seeds run side by side. Test and validation examples are drawn from the clients in the same proportion.

    Args:
      alpha: α, at least 0.
      beta: β, at least 0.
      seed: seed of all draws.
      clients: `N`.
      num_examples: training examples of all clients, at least one each.
      num_test_examples: test examples of the server.
      num_validation_examples: validation examples of the server.

    Raises:
      ValueError: a parameter is out of range.

    Source: Li et al., "Federated Optimization in Heterogeneous Networks", 2020, https://arxiv.org/abs/1812.06127,
    section 5.1 and appendix C.1, with the authors' code, https://github.com/litian96/FedProx.

    >>> synthetic(0.5, 0.5, num_examples=300, num_test_examples=60)
    Dataset('synthetic(0.5, 0.5)': 300 training, 60 test, 0 validation examples of 60 float32, 10 classes, 30 owners)
    """
    for name, value in {"alpha": alpha, "beta": beta}.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"synthetic: {name} is {value!r}; it is a standard deviation, 0 or above")
    check_wholes(
        "synthetic",
        clients=clients,
        num_examples=num_examples,
        num_test_examples=num_test_examples,
        num_validation_examples=num_validation_examples,
    )
    if clients < 1 or num_examples < clients or num_test_examples < 1 or num_validation_examples < 0:
        raise ValueError(
            f"synthetic: {clients} clients, {num_examples} training, {num_test_examples} test and "
            f"{num_validation_examples} validation examples; there must be at least one client, one training example "
            "of each, and one test example"
        )
    rng = np.random.default_rng((PURPOSE, seed))
    size = rng.lognormal(SIZE_MEAN, SIZE_SPREAD, clients).astype(int) + SIZE_LEAST
    counts = [
        divide_in_proportion(size, num_examples, least=1),
        divide_in_proportion(size, num_test_examples),
        divide_in_proportion(size, num_validation_examples),
    ]
    drawn = draw_clients(rng, alpha, beta, np.sum(counts, axis=0))
    parts = []
    for begin, count in zip(np.cumsum([np.zeros(clients, int), *counts[:2]], axis=0), counts, strict=True):
        pieces = [(x[b : b + c], y[b : b + c]) for (x, y), b, c in zip(drawn, begin, count, strict=True)]
        parts.append(tuple(np.concatenate(of) for of in zip(*pieces, strict=True)))
    (x, y), test, validation = parts
    owner = np.repeat(np.arange(clients), counts[0])
    name = f"synthetic({alpha:g}, {beta:g})"
    return dataset(name, x, y, test=test, validation=validation, owner=owner, classes=CLASSES)


def draw_clients(
    rng: np.random.Generator, alpha: float, beta: float, size: Int[np.ndarray, "N"]
) -> list[tuple[Float[np.ndarray, "n d"], Int[np.ndarray, "n"]]]:
    """Returns the examples and labels of each client.

    Args:
      rng: draws `u`, then `B`, then `v` of all clients; then `W`, `b` and the inputs client by client.
      alpha, beta: as for `synthetic`.
      size: number of examples of each client.
    """
    u = rng.normal(0, alpha, len(size))
    shift = rng.normal(0, beta, len(size))
    centre = rng.normal(shift[:, None], 1, (len(size), FEATURES))
    deviation = np.arange(1, FEATURES + 1) ** (DECAY / 2)
    out = []
    for mean, middle, count in zip(u, centre, size, strict=True):
        weights = rng.normal(mean, 1, (FEATURES, CLASSES))
        bias = rng.normal(mean, 1, CLASSES)
        x = middle + deviation * rng.standard_normal((count, FEATURES))
        out.append((x.astype(np.float32), np.argmax(x @ weights + bias, axis=1).astype(np.int32)))
    return out
