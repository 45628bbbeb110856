"""Stratified splits of examples."""

from __future__ import annotations

import numbers

import numpy as np


def hold_out(
    what: str, y: np.ndarray | None, examples: np.ndarray, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the examples that stay and those set apart, both in their original order.

    The split is stratified by label. If that is impossible (a class has one example, or one side would have fewer
    examples than there are classes), the share is drawn uniformly at random.

    Args:
      what: name of the share in errors ("iris: test").
      y: Int[n], labels of all examples; None: they have none, and the share is drawn at random.
      examples: indices of the examples to split.
      share: how many to set apart, as a share of `examples` in [0, 1).
      seed: seed of the draw.

    Raises:
      ValueError: the share is not in [0, 1), or leaves one side without examples.

    >>> stay, apart = hold_out("iris: test", np.arange(10) % 2, np.arange(10), share=0.4, seed=0)
    >>> len(stay), (apart % 2).sum()
    (6, np.int64(2))
    """
    if not isinstance(share, numbers.Real) or not 0 <= share < 1:
        raise ValueError(f"{what} is {share!r}; it is (examples, labels) or a share of the examples in [0, 1)")
    if share == 0:
        return examples, examples[:0]
    from sklearn.model_selection import train_test_split  # imported here because it takes a second

    count = round(share * len(examples))
    if not 0 < count < len(examples):
        raise ValueError(
            f"{what} is {share} of {len(examples)} examples, which is {count} examples; each side needs at least one"
        )
    stratify = None
    if y is not None:
        _, sizes = np.unique(y[examples], return_counts=True)
        possible = sizes.min() >= 2 and len(sizes) <= min(count, len(examples) - count)
        stratify = y[examples] if possible else None
    stay, apart = train_test_split(examples, test_size=count, stratify=stratify, random_state=seed)
    return np.sort(stay), np.sort(apart)
