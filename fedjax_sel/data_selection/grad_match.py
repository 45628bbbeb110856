"""GRAD-MATCH and GCFL: weighted examples whose gradients sum to that of all examples, or to the server's."""

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
    """Per class, examples and weights with small `‖Σ_{j ∈ S} w_j g_j - g‖² + λ ‖w‖²`, by orthogonal matching pursuit.

    The target `g` is the sum of the gradients of the client's `n_c` examples of the class (GRAD-MATCH), or `n_c` times
    the mean gradient of the server's validation examples of the class (GCFL), which is sent to every member, even in
    rounds in which it keeps its coreset. Of the client's `n` examples, a class gets `⌈b n_c / n⌉` in the coreset, where
    `b = max(1, round(fraction · n))`; a class with fewer than `fewest` gets none. If the pursuit ends early, random
    examples of weight 1 fill up the coreset. The selection takes one forward pass over all examples and `L²` numbers of
    memory.

    A client minimises the mean of `w_j ℓ_j` over the coreset. Before the coreset is filled up, `w` is scaled to a mean
    of 1, however much `λ` has shrunk it; negative weights count as 0, and if none is positive, all are 1. The authors'
    code of GRAD-MATCH (CORDS) divides the loss of each minibatch by the sum of its weights instead. Its pursuit takes
    the largest inner product rather than the largest absolute value, drops an example whose weight is negative at once,
    and ends if it would choose an example again. By default it matches a class on its own row of the output layer,
    keeps a coreset for 20 epochs, and has a tolerance of 1e-100; here, `every` and `fewest` have GCFL's values.

    The authors' code of GCFL matches the gradients of a class on its own row of the output layer only, to their mean
    instead of their sum, and clamps the weights to `min(5, max(1, w + 1))` (`weighting="clamped"`). There, the function
    that passes on the weights returns nothing, so training does not use them. In place of the example with the largest
    inner product with the residual, it adds the example nearest to the residual or, with probability 1/2, a random one,
    several at a time; and its gradients are with respect to the output layer, on the server too. Its call of least
    squares has the arguments swapped, so that its weights, from which the residual follows, are not those of the
    pursuit; and where the pursuit ends early, the examples nearest to the residual fill a class's share.

    Attributes:
      fraction: of the client's examples, in (0, 1].
      every: rounds for which a client keeps its coreset.
      gradient: proxy for an example's gradient: that of the loss with respect to the logits (`"output"`, for the
        cross-entropy `p - y`) or to the output layer (`"last_layer"`, that `⊗ (1, h)`; not for `target="validation"`).
      target: `"client"` or `"validation"`.
      weighting: `"matched"`, `"clamped"`, or `"none"` for weights of 1 on what `"matched"` chooses.
      ridge: `λ`.
      tolerance: the pursuit ends when `‖Σ w_j g_j - g‖` falls to this fraction of `‖g‖`.
      fewest: smallest number of examples in a class that is matched.

    Raises:
      ValueError: `target` is `"validation"`, but `gradient` is not `"output"`.

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
        """Returns the server's mean gradient of each class, if it is the target."""
        return {"gradient": signals.ValidationGradient()} if self.target == "validation" else {}

    def count_down(self, classes: int) -> float:
        """Returns `C²` if the server's gradients are sent, `C` if only each class's own row of them is."""
        if self.target != "validation":
            return 0.0
        return float(classes if self.weighting == "clamped" else classes**2)

    def choose(
        self, key: PRNGKey, point: Float[Array, "L k"], valid: Bool[Array, "L"], turn: Turn
    ) -> Float[Array, "L"]:
        """Returns the weights of a new coreset."""
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
    """Returns the weights, scaled so that the positive ones have mean 1; if none is positive, 1 for all chosen.

    >>> normalize(jnp.array([3e-9, 0.0, 1e-9]), jnp.ones(3, bool))
    Array([1.5, 0. , 0.5], dtype=float32)
    """
    total = weight.sum()
    scaled = weight / jnp.where(total > 0, total, 1.0) * (weight > 0).sum()
    return jnp.where(total > 0, scaled, chosen.astype(jnp.float32))
