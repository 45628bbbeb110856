"""Rounds for tests of selectors by themselves."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.data.federated import FederatedData
from fedjax_sel.devices.clock import Timing
from fedjax_sel.devices.laws import LogNormal
from fedjax_sel.protocols import Host
from fedjax_sel.types import Cohort, Context

HOST = Host(None, None, None)
"""Of selectors that do not look at it."""

KEY = jax.random.key(0)


def context(size, m, round=0, rounds=50, available=None, seconds=None):
    """A round of clients with so many examples, and, where turns take `seconds`, with devices."""
    size = jnp.asarray(size, jnp.int32)
    available = jnp.ones(size.shape, bool) if available is None else jnp.asarray(available)
    ctx = Context(jnp.int32(round), jnp.int32(rounds), size, available, cohort_size=m)
    if seconds is None:
        return ctx
    seconds = jnp.asarray(seconds, jnp.float32)
    return ctx.replace(devices=LogNormal().draw(0, len(size)), timing=Timing(seconds, 0 * seconds, 0 * seconds))


def cohort(client, mask=None, weight=None):
    """A cohort of these clients; -1 is an empty slot."""
    client = jnp.asarray(client, jnp.int32)
    mask = client >= 0 if mask is None else jnp.asarray(mask)
    weight = jnp.where(mask, 1.0, 0.0) if weight is None else jnp.asarray(weight, jnp.float32)
    return Cohort(client, mask, weight)


def members(cohort):
    """Who counts, in the order of the slots."""
    return np.asarray(cohort.client)[np.asarray(cohort.mask)].tolist()


@jax.jit
def select_for(keys, selector, state, ctx, before):
    """One program for all selectors that differ in numbers alone."""
    return jax.vmap(lambda key: selector.select(key, state, ctx, **before))(keys)


def many(selector, state, ctx, draws, **before):
    """Cohorts of `draws` keys."""
    return select_for(jax.random.split(KEY, draws), selector, state, ctx, before)


def inclusion(cohorts, n):
    """How often each client is in."""
    client, mask = np.asarray(cohorts.client), np.asarray(cohorts.mask)
    return np.bincount(client[mask], minlength=n) / len(client)


def labelled(counts):
    """A host whose clients have so many examples of each class."""
    counts = np.asarray(counts)
    y = np.concatenate([np.repeat(np.arange(counts.shape[1]), own) for own in counts])
    size = counts.sum(1)
    x, none = np.zeros((len(y), 1), np.float32), np.zeros(0, np.int32)
    data = FederatedData(
        x=x,
        y=y,
        order=np.arange(len(y)),
        owner=np.repeat(np.arange(len(size)), size),
        offset=np.concatenate([[0], size.cumsum()[:-1]]),
        num_examples=size,
        num_holdout=np.zeros_like(size),
        test_x=x[:0],
        test_y=none,
        validation_x=x[:0],
        validation_y=none,
        classes=counts.shape[1],
        longest=int(size.max()),
    )
    return Host(None, data, None)
