"""FedDyn: every client's objective is shifted until its own optimum is that of all."""

from __future__ import annotations

import math

import jax
from jaxtyping import Array, Int

from fedjax_sel.arrays import add_weighted, wide_zeros, widen
from fedjax_sel.protocols import Correction
from fedjax_sel.pytree import Pytree, Scalar, param
from fedjax_sel.types import Cohort, Variables

__all__ = ["FedDyn"]


class FedDynState(Pytree):
    """What the clients and the server keep.

    Attributes:
      client: the gradient that each client's last local optimum had, a leading `N`.
      server: `h`, the mean of these gradients over all clients.
    """

    client: Variables
    server: Variables


class FedDyn(Correction):
    """`∇L_i(w) - g_i + α (w - w_t)`, where `g_i` estimates the client's gradient where its last training ended.

    After the merge the server moves the mean of the members' models by `-h / α`. At the optimum of all clients
    nothing moves any more, although their own optima differ. As in the paper, the server's mean weighs members equally
    (`mean` without `weighting`); with any other aggregator this is another method.

    The authors' code divides `α` by `n_i / n̄` on a client with `n_i` examples, where `n̄` is the clients' mean, and
    clips every gradient, with these terms, to norm 10. The accuracy that it reports is that of the mean of all clients'
    last models; here, it is the server's.

    Attributes:
      alpha: `α`; the paper has 0.001 to 0.1.

    Source: Acar et al., "Federated Learning Based on Dynamic Regularization", 2021,
    https://arxiv.org/abs/2111.04263, Algorithm 1.

    >>> import jax.numpy as jnp
    >>> zero, one = jnp.float32(0), jnp.float32(1)
    >>> FedDyn(alpha=0.5).correct(FedDynState(one / 4, zero), gradient=2 * one, variables=one, received=zero)
    Array(2.25, dtype=float32)
    """

    alpha: Scalar = param(default=0.01, above=0, below=math.inf)

    pulls = True

    def init(self, variables: Variables, num_clients: int) -> FedDynState:
        """Returns gradients of 0, of at least 32 bits, since they are sums over rounds."""
        return FedDynState(wide_zeros(variables, num_clients), wide_zeros(variables))

    def client_state(self, state: FedDynState, client: Int[Array, ""]) -> FedDynState:
        """Returns the client's gradient; what the server keeps stays there."""
        return FedDynState(jax.tree.map(lambda leaf: leaf[client], state.client), ())

    def correct(
        self, client_state: FedDynState, gradient: Variables, variables: Variables, received: Variables
    ) -> Variables:
        """Returns the gradient of the client's shifted objective."""
        # Alg. 1: ∇ of L_k(θ) - ⟨∇L_k(θ_k^{t-1}), θ⟩ + α/2 ‖θ - θ^{t-1}‖²
        return jax.tree.map(
            lambda g, own, w, start: (g - own + self.alpha * (w - start)).astype(g.dtype),
            gradient,
            client_state.client,
            variables,
            received,
        )

    def upload(self, client_state: FedDynState, delta: Variables, step_size_sum: Array) -> Variables:
        """Returns the update, which the server has already, so that nothing is billed."""
        return delta

    def merge(self, state: FedDynState, cohort: Cohort, uploads: Variables) -> FedDynState:
        """Returns the state after the round, with the gradients of the returned members and the server's updated."""
        num_clients = jax.tree.leaves(state.client)[0].shape[0]

        uploads = widen(uploads)

        def add_up(leaf: Array) -> Array:
            return add_weighted(cohort.mask.astype(leaf.dtype), leaf)

        # Alg. 1: ∇L_k(θ_k^t) = ∇L_k(θ_k^{t-1}) - α (θ_k^t - θ^{t-1}), and h^t = h^{t-1} - α/m Σ_k (θ_k^t - θ^{t-1})
        return FedDynState(
            client=jax.tree.map(
                lambda own, up: own.at[cohort.returned].add((-self.alpha * up).astype(own.dtype), mode="drop"),
                state.client,
                uploads,
            ),
            server=jax.tree.map(
                lambda h, up: (h - self.alpha * add_up(up) / num_clients).astype(h.dtype), state.server, uploads
            ),
        )

    def adjust(self, state: FedDynState, variables: Variables) -> Variables:
        """Returns the new global model, moved by what the server keeps."""
        # Alg. 1: θ^t = mean_k θ_k^t - h^t / α
        return jax.tree.map(lambda w, h: (w - h / self.alpha).astype(w.dtype), variables, state.server)
