"""A federated problem whose optimum is known: client i's loss is ½ Σ_j a_ij (w_j - b_ij)²."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel import Federation, Task, dataset, partition

A = np.array([[4.0, 0.5], [0.4, 3.0], [1.0, 1.0], [2.5, 0.3], [0.2, 2.0], [1.5, 1.2]])
B = np.array([[1.0, -2.0], [-3.0, 0.5], [2.0, 2.0], [0.0, 4.0], [5.0, -1.0], [-1.0, 1.0]])
OPTIMUM = (A * B).sum(0) / A.sum(0)
"""Of the unweighted mean of the clients' losses."""


class Distance(nn.Module):
    """Of a row (a, b): sqrt(a) (w - b)."""

    @nn.compact
    def __call__(self, x, *, train=False):
        w = self.param("w", nn.initializers.zeros, (2,))
        a, b = x[:, :2], x[:, 2:]
        return jnp.sqrt(a) * (jnp.broadcast_to(w, b.shape) - b)


def half_square(outputs, targets):
    """Half the squared distance."""
    return 0.5 * (outputs**2).sum(-1)


TASK = Task(Distance(), loss=half_square)


def clients(rows=(1, 1, 1, 1, 1, 1)):
    """A federation of these clients, each with so many copies of its row."""
    x = np.repeat(np.concatenate([A, B], 1), rows, axis=0).astype(np.float32)
    owner = np.repeat(np.arange(len(A)), rows)
    y = np.arange(len(x)) % 2
    data = dataset("quadratic", x, y, test=(x, y), owner=owner, classes=2)
    return Federation(data, partition.Natural(), data_seed=0)


def gradient(w, i):
    """Of client i's loss."""
    return A[i] * (w - B[i])


def weights_of(history, seed=0):
    """The final `w` of a run."""
    return np.asarray(jax.tree.leaves(history.variables)[0])[seed]
