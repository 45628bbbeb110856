"""Selectors that begin with clients that they do not know, where some never return."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.client_selection.greedy_shapley import GreedyShapley
from fedjax_sel.client_selection.rpow_d import RPowD
from fedjax_sel.client_selection.ucb_cs import UCBCS
from tests.client_selection.rounds import HOST, KEY, context, members

SILENT, N, M = (0, 1, 2, 3), 12, 3


@pytest.mark.parametrize(
    "selector",
    [UCBCS(), UCBCS(1.0), GreedyShapley(), GreedyShapley(rule="ucb"), GreedyShapley(memory="ema"), RPowD(d=N)],
    ids=str,
)
def test_clients_that_never_return_do_not_keep_the_others_out(selector):
    rng = np.random.default_rng(0)
    state, ctx, returned = selector.init(KEY, context(np.ones(N), M), HOST), context(np.ones(N), M), []
    for t in range(30):
        now = ctx.replace(round=jnp.int32(t))
        now = now.replace(candidates=selector.candidates(jax.random.key(t), state, now))
        one = selector.select(jax.random.key(t), state, now)
        back = one.replace(mask=one.mask & ~jnp.isin(one.client, jnp.array(SILENT)))
        told = {name: jnp.asarray(rng.uniform(0.5, 1, M), jnp.float32) for name in selector.signals().after}
        if "training_loss_rms" in told:
            told["training_loss_rms"] = told["training_loss"] + 0.1
        state = selector.observe(jax.random.key(t), state, now, back, **told)
        returned.append(len(members(back)))
    assert sum(returned[:6]) >= N - len(SILENT), "everybody has a turn first"
    assert sum(returned[6:]) > M * 24 / 2
