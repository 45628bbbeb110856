"""Which clients can be reached in a round, and which return after training, drawn by the same kind of law."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from fedjax_sel.engine.contract import check_array
from fedjax_sel.engine.debug import stage
from fedjax_sel.engine.keys import Purpose, key_for
from fedjax_sel.protocols import Availability
from fedjax_sel.types import PRNGKey


def draw_available(
    law: Availability, purpose: Purpose, run_key: PRNGKey, t: Int[Array, ""], num_clients: int
) -> Bool[Array, "N"]:
    """Returns which clients a law of availability, or of volatility, lets take part in round `t`.

    Raises:
      ValueError: the law returned anything else than true or false for each client.
    """
    with stage(purpose.name.lower(), round=t):
        available = law.available(key_for(run_key, purpose, t), t, num_clients)
    words = f"true or false for each of the N = {num_clients} clients"
    check_array(f"{type(law).__name__}.available", available, (num_clients,), jnp.bool_, words)
    return jnp.asarray(available)  # a user's law may return a NumPy array
