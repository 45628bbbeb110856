"""Features of a frozen backbone, computed once instead of in every round."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedjax_sel.compiled import jit
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.models._call import apply_model, signature_of
from fedjax_sel.task.task import Task
from fedjax_sel.types import Rows

AT_ONCE = 500
"""The number of examples that pass through the backbone together."""


def precompute_features(task: Task, *datasets: Dataset) -> tuple[Task, list[Dataset]]:
    """Returns the task on the features that its frozen backbone computes, and the datasets of those features.

    The backbone is the model's leading `stages` that are all frozen; if there are none, everything is returned
    unchanged. Rounds are still billed with the backbone, as for clients that run it every time.

    Args:
      task: what is learnt.
      datasets: datasets whose training, test and validation examples are replaced; the first determines their shape.
    """
    stages = getattr(task.model, "stages", ()) if has_stages(task.model) else ()
    end = next((i for i, name in enumerate(stages) if not task.frozen.is_frozen((name,))), len(stages))
    if not end or task.frozen.begin:
        return task, list(datasets)

    def features(x: np.ndarray) -> np.ndarray:
        like: Any = jax.eval_shape(partial(backbone, end=end), task, jnp.zeros((1, *x.shape[1:]), x.dtype))
        out = np.empty((len(x), *like.shape[1:]), like.dtype)
        for i in range(0, len(x), AT_ONCE):
            out[i : i + AT_ONCE] = backbone(task, x[i : i + AT_ONCE], end=end)
        return out

    frozen = task.frozen.replace(
        variables=task.frozen.drop_stages(stages[:end]),
        begin=end,
        costs=task.costs(datasets[0].x),
        example_bytes=datasets[0].x[:1].nbytes,
        normalised=any(np.ndim(a) for a in (task.shift, task.scale)),
    )
    done = [
        replace(d, x=features(d.x), test_x=features(d.test_x), validation_x=features(d.validation_x)) for d in datasets
    ]
    return task.replace(frozen=frozen, shift=0.0, scale=1.0), done


def has_stages(model: Any) -> bool:
    """Returns whether a model runs up to one of its `stages`, by an argument `end`, and on from there, by `begin`."""
    return {"begin", "end"} <= signature_of(model).parameters.keys() and hasattr(model, "stages")


@jit(static_argnames=("end",))
def backbone(task: Task, x: Rows, *, end: int) -> Float[Array, "b ..."]:
    """Returns the features that the model's stages before `end`, all frozen, compute from examples as stored."""
    return apply_model(task.model, task.frozen.variables, task.normalize(x), train=False, end=end)
