"""FedJAX (Ro et al., 2021), used as in its own examples: python fedjax_loop.py WORK.npz OUT.json."""
# pyright: reportMissingImports=false

import json
import sys
import time
from collections import OrderedDict

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np


def network(work, classes):
    """Returns the work's model, and whether it uses dropout."""

    def apply(x, train):
        if work["model"] == "logistic":
            return hk.Linear(classes)(hk.Flatten()(x))
        if work["model"] == "mlp":
            x = hk.Flatten()(x)
            for width in (64, 30):
                x = hk.Linear(width)(x)
                x = hk.dropout(hk.next_rng_key(), 0.5, x) if train else x
                x = jax.nn.relu(x)
            return hk.Linear(classes)(x)
        if work["model"] == "lenet":
            for channels in (6, 16):
                x = jax.nn.relu(hk.Conv2D(channels, 5, padding="VALID")(x))
                x = hk.MaxPool((2, 2, 1), (2, 2, 1), "VALID")(x)
            x = hk.Flatten()(x)
            for width in (120, 84):
                x = jax.nn.relu(hk.Linear(width)(x))
            return hk.Linear(classes)(x)
        x = jax.nn.relu(hk.Conv2D(32, 3, padding="VALID")(x))
        x = jax.nn.relu(hk.Conv2D(64, 3, padding="VALID")(x))
        x = hk.MaxPool((2, 2, 1), (2, 2, 1), "VALID")(x)
        x = hk.dropout(hk.next_rng_key(), 0.25, x) if train else x
        x = jax.nn.relu(hk.Linear(128)(hk.Flatten()(x)))
        x = hk.dropout(hk.next_rng_key(), 0.5, x) if train else x
        return hk.Linear(classes)(x)

    return apply


def main(source, out):
    """Runs the simulation."""
    file = np.load(source)
    work = json.loads(str(file["work"]))
    mean, std = float(file["mean"]), float(file["std"])

    def floats(x):
        x = (x.astype(np.float32) - mean) / std
        return x[..., None] if x.ndim == 3 else x

    x, y, test_x, test_y = floats(file["x"]), file["y"], floats(file["test_x"]), file["test_y"]
    order, offset, size = file["order"], file["offset"], file["size"]
    apply = network(work, int(y.max()) + 1)
    training = hk.transform(lambda batch: apply(batch["x"], True))
    testing = hk.transform(lambda batch: apply(batch["x"], False))
    model = fedjax.create_model_from_haiku(
        training,
        {"x": jnp.zeros((1, *x.shape[1:])), "y": jnp.zeros((1,), jnp.int32)},
        lambda batch, output: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], output),
        {"accuracy": fedjax.metrics.Accuracy()},
    )
    clients = OrderedDict()
    for i in range(len(size)):
        rows = order[offset[i] : offset[i] + size[i]]
        clients[f"{i:06d}"] = {"x": x[rows], "y": y[rows]}
    data = fedjax.InMemoryFederatedData(clients)
    hyper = fedjax.ShuffleRepeatBatchHParams(batch_size=work["batch_size"], num_epochs=work["epochs"], seed=0)
    gradient = fedjax.model_grad(model)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        gradient, fedjax.optimizers.sgd(work["learning_rate"]), fedjax.optimizers.sgd(1.0), hyper
    )
    begin = model.init(jax.random.PRNGKey(0))
    for i, layer in enumerate(sorted(begin)):  # convolutions also come first by name
        begin[layer] = {"w": jnp.asarray(file[f"kernel_{i}"]), "b": jnp.asarray(file[f"bias_{i}"])}
    state, spent = algorithm.init(begin), []
    for number, cohort in enumerate(file["cohorts"]):
        began = time.perf_counter()
        keys = jax.random.split(jax.random.PRNGKey(number), len(cohort))
        chosen = [(f"{i:06d}", data.get_client(f"{i:06d}"), key) for i, key in zip(cohort, keys, strict=True)]
        state, _ = algorithm.apply(state, chosen)
        jax.block_until_ready(state.params)
        spent.append(time.perf_counter() - began)
    right = 0
    for i in range(0, len(test_y), 500):
        logits = testing.apply(state.params, None, {"x": test_x[i : i + 500]})
        right += int((np.argmax(logits, 1) == test_y[i : i + 500]).sum())
    found = {
        "seconds": spent,
        "accuracy": right / len(test_y),
        "versions": {"fedjax": "0.0.17", "jax": jax.__version__},
    }
    with open(out, "w") as place:
        json.dump(found, place)


main(*sys.argv[1:])
