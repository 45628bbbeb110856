"""Selection of whole batches against a slow loop, and by what must hold of any."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.data_selection.entropy_batches import EntropyBatches


def keep(samples, key, valid, entropy):
    return np.asarray(samples.select(key, (), jnp.asarray(valid), entropy=jnp.asarray(entropy, jnp.float32)))


def by_hand(order, entropy, size, target):
    """Cut, average, sort, and add batch after batch while that comes nearer to `target` rows."""
    batches = [order[i : i + size] for i in range(0, len(order), size)]
    batches.sort(key=lambda rows: -np.mean([entropy[i] for i in rows]))
    chosen = list(batches[0])
    for rows in batches[1:]:
        if abs(len(chosen) + len(rows) - target) >= abs(len(chosen) - target):
            break
        chosen += list(rows)
    return chosen


@pytest.mark.parametrize("size", [1, 4, 7, 64])
@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.5, 0.9, 1.0])
def test_the_batches_kept_are_those_of_a_slow_loop(size, fraction):
    rng = np.random.default_rng(1)
    samples, most = EntropyBatches(fraction, size), 50
    for n in (1, 3, 20, 49, 50):
        key = jax.random.key(n)
        valid = np.zeros(most, bool)
        valid[rng.choice(most, n, replace=False)] = True
        entropy = np.where(valid, rng.random(most), 99.0)
        noise = np.asarray(jax.random.uniform(key, (most,), jnp.float32))
        order = sorted(np.flatnonzero(valid), key=lambda i: -noise[i])
        chosen = by_hand(order, entropy, size, max(1, round(fraction * n)))
        assert np.flatnonzero(keep(samples, key, valid, entropy)).tolist() == sorted(chosen)


def test_the_count_is_as_near_to_the_share_as_whole_batches_come():
    valid, entropy = np.arange(100) < 96, np.random.default_rng(0).random(100)
    counts = {
        f: int(keep(EntropyBatches(f, 8), jax.random.key(0), valid, entropy).sum()) for f in (0.02, 0.2, 0.5, 1.0)
    }
    assert counts == {0.02: 8, 0.2: 16, 0.5: 48, 1.0: 96}  # of 2, 19, 48 and 96


def test_batches_of_one_row_are_rows_of_highest_entropy():
    entropy = np.random.default_rng(0).random(40)
    chosen = keep(EntropyBatches(0.25, 1), jax.random.key(3), np.ones(40, bool), entropy)
    assert set(np.flatnonzero(chosen)) == set(np.argsort(-entropy)[:10])


def test_rows_are_cut_afresh_every_round_and_the_same_key_cuts_the_same():
    valid, entropy = np.ones(40, bool), np.random.default_rng(0).random(40)
    chosen = [keep(EntropyBatches(0.25, 5), jax.random.key(k), valid, entropy).tolist() for k in (0, 0, 1, 2, 3)]
    assert chosen[0] == chosen[1]
    assert len({tuple(c) for c in chosen}) == 4


def test_high_entropy_helps_a_row_but_does_not_decide():
    """Batches mask what single rows have: the row of highest entropy is kept more often than others, not always."""
    valid, entropy = np.ones(40, bool), np.random.default_rng(0).random(40)
    entropy[17] = 1.5
    samples = EntropyBatches(0.25, 5)
    chosen = jax.vmap(lambda k: samples.select(k, (), jnp.asarray(valid), entropy=jnp.asarray(entropy, jnp.float32)))(
        jax.random.split(jax.random.key(0), 400)
    )
    share = np.asarray(chosen.mean(0))
    assert (chosen.sum(1) == 10).all()
    assert share.argmax() == 17
    assert 0.35 < share[17] < 0.95
    assert np.corrcoef(share, entropy)[0, 1] > 0.8
