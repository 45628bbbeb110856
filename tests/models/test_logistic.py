"""Against scikit-learn."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression as Reference

from fedjax_sel.models.logistic import LogisticRegression


def test_logits_are_scikit_learns_with_its_own_coefficients():
    x, y = datasets.load_digits(return_X_y=True)
    fitted = Reference(max_iter=1000).fit(x / 16, y)
    variables = {"params": {"kernel": jnp.asarray(fitted.coef_), "bias": jnp.asarray(fitted.intercept_)}}
    images = jnp.asarray(x.reshape(-1, 8, 8, 1) / 16, jnp.float32)
    model = LogisticRegression(classes=10)
    np.testing.assert_allclose(model.apply(variables, images), fitted.decision_function(x / 16), rtol=1e-4, atol=1e-4)
    like = jax.eval_shape(model.init, jax.random.key(0), images)
    assert jax.tree.map(np.shape, like) == jax.tree.map(np.shape, variables)


def test_every_class_is_equally_likely_at_the_start():
    model = LogisticRegression(classes=3)
    assert not model.apply(model.init(jax.random.key(0), jnp.ones((2, 5))), jnp.ones((2, 5))).any()
