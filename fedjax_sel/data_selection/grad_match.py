"""GRAD-MATCH and GCFL: weighted examples whose gradients add up to that of all, or to the server's."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from fedjax_sel import signals
from fedjax_sel.data_selection._coreset import Coreset
from fedjax_sel.data_selection._ops import count_kept, places, share_among_classes
from fedjax_sel.kernels.matching_pursuit import pursue
from fedjax_sel.protocols import ServerSignal
from fedjax_sel.pytree import Scalar, param, static
from fedjax_sel.types import PRNGKey, Turn

__all__ = ["GradMatch"]


class GradMatch(Coreset):
    """In each class, examples and weights of small `‖Σ_{j ∈ S} w_j g_j - g‖² + λ ‖w‖²`, by orthogonal matching pursuit.

    The target `g` is the sum of the class's gradients on the client (GRAD-MATCH), or that many times their mean over
    the server's validation examples of the class (GCFL), which is then sent to every member. A class of which the
    client has `n_c` of its `n` examples has `⌈b n_c / n⌉` in the coreset, `b = max(1, round(fraction · n))`; a class
    with less than `fewest` has none. Where the pursuit ends early, the coreset is filled up with random examples of
    weight 1. It takes one forward pass over all examples, and `L²` numbers of memory.

    A client trains on the mean of `w_j ℓ_j` over the coreset, with `w` scaled to a mean of 1, however much `λ` has
    shrunk it, before it is filled up; weights below 0 count as 0, and where none is above 0, all are 1. The authors'
    code of GRAD-MATCH divides the loss of each minibatch by the sum of its weights instead.

    In the authors' code of GCFL the gradients of a class are matched on its own row of the output layer alone, and to
    their mean in place of the sum, whose weights are clamped, `min(5, max(1, w + 1))` (`weighting="clamped"`). The
    function that passes the weights on returns nothing there, so that training is without. It adds, in place of the
    largest inner product with the residual, the example that is nearest to it, or with a chance of one half a random
    one, several at a time, and its gradients are those by the output layer, on the server too.

    Attributes:
      fraction: of the client's examples, in (0, 1].
      every: rounds for which a client keeps its coreset.
      gradient: what stands for an example's gradient, that of the loss by the logits (`"output"`, `p - y`) or by the
        output layer (`"last_layer"`, `(p - y) ⊗ (1, h)`; not for `target="validation"`).
      target: `"client"` or `"validation"`.
      weighting: `"matched"`, `"clamped"`, or `"none"` for weights of 1 on what is chosen for `"matched"`.
      ridge: `λ`.
      tolerance: the pursuit ends where `‖Σ w_j g_j - g‖` falls below so much of `‖g‖`.
      fewest: examples of a class that is matched.

    Raises:
      ValueError: the gradient of the output layer is to match the server's.

    Source: Killamsetty et al., "GRAD-MATCH: Gradient Matching based Data Subset Selection for Efficient Deep Model
    Training", 2021, https://arxiv.org/abs/2103.00123, Algorithm 2; GCFL: Sivasubramanian et al., "Gradient Coreset for
    Federated Learning", 2024, https://arxiv.org/abs/2401.06989; code: https://github.com/nlokeshiisc/GCFL_Release.

    >>> GradMatch(target="validation").validation_signals()
    {'gradient': ValidationGradient(split='validation')}
    """

    every: int = static(default=10, low=1)
    target: str = static(default="client", choices=["client", "validation"])
    weighting: str = static(default="matched", choices=["matched", "clamped", "none"])
    ridge: Scalar = param(default=0.5, low=0)
    tolerance: Scalar = param(default=1e-4, low=0)
    fewest: int = static(default=3, low=1)

    def __check_init__(self) -> None:
        """Refuses a target that the server does not measure."""
        if self.target == "validation" and self.gradient != "output":
            raise ValueError(
                f"grad_match: gradient is {self.gradient!r}, but target is 'validation', which the server measures by "
                "the logits alone; give gradient='output'"
            )

    def validation_signals(self) -> dict[str, ServerSignal]:
        """Returns the mean gradient of each class."""
        return {"gradient": signals.ValidationGradient()} if self.target == "validation" else {}

    def count_down(self, classes: int) -> float:
        """Returns `C²` where the server's gradients are sent, `C` where of each class's its own row is."""
        if self.target != "validation":
            return 0.0
        return float(classes if self.weighting == "clamped" else classes**2)

    def choose(
        self, key: PRNGKey, point: Float[Array, "L k"], valid: Bool[Array, "L"], turn: Turn
    ) -> Float[Array, "L"]:
        """Returns the weights of a fresh coreset."""
        count = count_kept(valid, self.fraction)
        budget = share_among_classes(turn.y, valid, count, turn.classes)

        def match(c):
            own = valid & (turn.y == c)
            if self.target == "validation":
                target = own.sum() * turn.validation["gradient"][c]
            else:
                target = jnp.where(own[:, None], point, 0.0).sum(0)
            steps = jnp.where(own.sum() >= self.fewest, budget[c], 0)
            if self.weighting != "clamped":
                return pursue(point, target, own, steps, self.ridge, self.tolerance)  # Alg. 2
            row = point.reshape(len(point), turn.classes, -1)[:, c]
            mean = target.reshape(turn.classes, -1)[c] / jnp.maximum(own.sum(), 1)
            return pursue(row, mean, own, steps, self.ridge, self.tolerance)

        weights, sets = jax.lax.map(match, jnp.arange(turn.classes))
        weight, chosen = weights.sum(0), sets.any(0)
        left = valid & ~chosen
        filled = left & (places(left, jax.random.uniform(key, valid.shape, jnp.float32)) < count - chosen.sum())
        if self.weighting == "none":
            return (chosen | filled).astype(jnp.float32)
        if self.weighting == "clamped":
            return jnp.where(chosen, jnp.clip(weight + 1, 1, 5), filled.astype(jnp.float32))
        return jnp.where(filled, 1.0, normalize(jnp.maximum(weight, 0.0), chosen))


def normalize(weight: Float[Array, "L"], chosen: Bool[Array, "L"]) -> Float[Array, "L"]:
    """Returns the weights, scaled so that the mean of those above 0 is 1; 1 for all that are chosen where none is.

    >>> normalize(jnp.array([3e-9, 0.0, 1e-9]), jnp.ones(3, bool))
    Array([1.5, 0. , 0.5], dtype=float32)
    """
    total = weight.sum()
    scaled = weight / jnp.where(total > 0, total, 1.0) * (weight > 0).sum()
    return jnp.where(total > 0, scaled, chosen.astype(jnp.float32))
