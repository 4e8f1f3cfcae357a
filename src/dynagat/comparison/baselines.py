"""Baselines: what can be predicted without a graph network, from parts of the data alone.

    majority class, or mean of numbers           nothing
    logistic regression, or ridge for numbers    the features; of molecules, counts
    MLP                                          the same
    label propagation                            the edges; not for molecules

Counts are those of each kind of atom and bond in a molecule. Baselines have the split and the
metric of the networks; their own settings are chosen by the validation part. Label propagation is
ours, because scikit-learn's knows classes only; the rest is scikit-learn's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynagat.comparison.subject import MOLECULES, NODES
from dynagat.metrics import Metric
from dynagat.prediction.graphs import GraphPrediction, GraphProblem
from dynagat.prediction.nodes import NodePrediction, NodeProblem
from dynagat.significance import Sample

PARTS = ("train", "valid", "test")
PENALTIES = (0.01, 0.1, 1.0, 10.0)  # of the squared weights of linear models
DECAYS = (1e-3, 1.0)  # of the MLP's weights
DAMPING = (0.5, 0.9, 0.99)  # of label propagation: how much is passed on to the neighbours
PROPAGATIONS = 30  # steps
HIDDEN = 64  # units of the MLP
MANY = 1_000  # training rows, from which the MLP stops early by a tenth of them
MAX_ROWS = 50_000  # training rows that models of the features are fitted to, drawn at random
LEAST = 1e-6  # probability

AnyPrediction = NodePrediction | GraphPrediction
Predict = Callable[[int], Tensor]  # seed -> [rows, out], as a network's output


@dataclass(frozen=True, eq=False)
class Baseline:
    """A baseline with its scores. It stands beside the results of mechanisms."""

    mechanism: str  # its name
    uses: str  # "nothing", "edges" or the features of a `Subject`
    metric: Metric
    scores: Mapping[str, Mapping[int, float]]  # by part and seed

    def values(self, part: str) -> Mapping[int, float]:
        return self.scores[part]

    def sample(self, part: str) -> Sample:
        return Sample.of(self.scores[part].values())


def baselines(prediction: AnyPrediction, seeds: Sequence[int]) -> list[Baseline]:
    """All that the data allow: without features there are no models of them.

    On one thread: the products are too small for more.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # optimisers may stop before
        return [
            Baseline(name, uses, prediction.metric, _scores(prediction, predict, seeds))
            for name, uses, predict in _models(prediction)
        ]


def _models(prediction: AnyPrediction) -> Iterator[tuple[str, str, Predict]]:
    problem = prediction.problem
    constant = _constant(problem)
    yield (
        "mean" if problem.kind == "regression" else "majority class",
        "nothing",
        (lambda _: constant.expand(len(problem.y), -1)),
    )
    table, uses = _table(problem)
    if table is not None:
        features = _Features.of(prediction, table)
        name = "ridge regression" if problem.kind == "regression" else "logistic regression"
        yield name, uses, _linear(prediction, features)
        yield "MLP", uses, _mlp(prediction, features)
    if isinstance(prediction, NodePrediction):
        yield "label propagation", "edges", _propagation(prediction, constant)


def _table(problem: NodeProblem | GraphProblem) -> tuple[Tensor | None, str]:
    """[rows, features] for models without a graph, and what they are."""
    if isinstance(problem, GraphProblem):
        return problem.totals, MOLECULES.features
    return (problem.x if problem.has_features else None), NODES.features


def _scores(
    prediction: AnyPrediction, predict: Predict, seeds: Sequence[int]
) -> dict[str, dict[int, float]]:
    scores: dict[str, dict[int, float]] = {part: {} for part in PARTS}
    for seed in seeds:
        out = predict(seed)
        for part in PARTS:
            scores[part][seed] = _score(prediction, out, part)
    return scores


def _score(prediction: AnyPrediction, out: Tensor, part: str) -> float:
    rows = prediction.problem.split[part]
    return prediction.value(prediction.metric, out[rows], prediction.target(rows))


def _best(prediction: AnyPrediction, outputs: Iterable[Tensor]) -> Tensor:
    """The output with the best validation score."""
    gain = prediction.metric.gain
    return max(outputs, key=lambda out: gain(_score(prediction, out, "valid"), 0.0))


def _constant(problem: NodeProblem | GraphProblem) -> Tensor:
    """[1, out]: the frequencies of the training rows as log-odds; 0, the mean, for numbers."""
    y = problem.y[problem.split["train"]]
    if problem.kind == "regression":
        return torch.zeros(1, 1)
    if problem.kind == "multilabel":
        return torch.logit(y.nanmean(0, keepdim=True).double(), LEAST).float()
    return _log(torch.bincount(y, minlength=problem.out_dim)[None] / len(y))


def _log(probability: Tensor) -> Tensor:
    return probability.double().clamp_min(LEAST).log().float()


@dataclass(frozen=True, eq=False)
class _Features:
    """Features of all rows, scaled to [-1, 1], and the rows and targets to fit models to."""

    x: np.ndarray  # [N, features]
    rows: np.ndarray
    y: np.ndarray  # of the rows

    @classmethod
    def of(cls, prediction: AnyPrediction, table: Tensor) -> _Features:
        from sklearn.preprocessing import MaxAbsScaler

        chosen = prediction.problem.split["train"]
        if len(chosen) > MAX_ROWS:
            chosen = chosen[torch.randperm(len(chosen), generator=torch.Generator().manual_seed(0))]
            chosen = chosen[:MAX_ROWS]
        rows, x = chosen.numpy(), table.numpy()
        x = np.asarray(MaxAbsScaler().fit(x[rows]).transform(x))
        y = prediction.target(chosen).numpy()
        return cls(x, rows, y.reshape(-1) if prediction.problem.kind == "regression" else y)


def _linear(prediction: AnyPrediction, features: _Features) -> Predict:
    """Logistic regression, for each label; ridge regression for numbers. Needs no seed."""
    from sklearn.linear_model import LogisticRegression, Ridge

    x, rows, kind = features.x, features.rows, prediction.problem.kind
    weights = prediction.settings.class_weights
    options = {"max_iter": 200, "tol": 1e-3, "class_weight": None if weights == "none" else weights}

    def fit(penalty: float) -> Tensor:
        if kind == "regression":
            return torch.from_numpy(Ridge(alpha=penalty).fit(x[rows], features.y).predict(x))[
                :, None
            ]
        model = LogisticRegression(C=1 / penalty, **options)
        if kind == "classification":
            return _of_classes(model.fit(x[rows], features.y), x, prediction.problem.out_dim)
        return torch.stack([_of_label(model, features, y) for y in features.y.T], dim=1)

    best = _best(prediction, map(fit, PENALTIES))
    return lambda _: best


def _of_label(model: Any, features: _Features, y: np.ndarray) -> Tensor:
    """[N] log-odds of a label, fitted to the rows where it is known."""
    known = ~np.isnan(y)
    if len(np.unique(y[known])) < 2:
        return torch.full((len(features.x),), float(np.nan_to_num(y[known].mean())) - 0.5)
    model.fit(features.x[features.rows[known]], y[known])
    return torch.from_numpy(model.decision_function(features.x))


def _of_classes(model: Any, x: np.ndarray, out_dim: int) -> Tensor:
    """[N, out] log-probabilities; the model may not have seen all classes."""
    probability = torch.zeros(len(x), out_dim, dtype=torch.double)
    probability[:, torch.from_numpy(model.classes_)] = torch.from_numpy(
        model.predict_proba(x).astype(np.float64)
    )
    return _log(probability)


def _mlp(prediction: AnyPrediction, features: _Features) -> Predict:
    """One hidden layer. Unknown labels of several count as absent here."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    problem = prediction.problem
    x, rows, y = features.x, features.rows, np.nan_to_num(features.y)
    is_many = len(rows) >= MANY and (problem.kind != "classification" or np.bincount(y).min() > 9)
    options = {"hidden_layer_sizes": (HIDDEN,), "early_stopping": is_many, "max_iter": 100}

    def fit(decay: float, seed: int) -> Tensor:
        make: Any = MLPRegressor if problem.kind == "regression" else MLPClassifier
        model = make(alpha=decay, random_state=seed, **options).fit(x[rows], y)
        if problem.kind == "classification":
            return _of_classes(model, x, problem.out_dim)
        if problem.kind == "regression":
            return torch.from_numpy(model.predict(x))[:, None]
        probability = torch.from_numpy(model.predict_proba(x)).reshape(len(x), -1)
        return torch.logit(probability.double(), LEAST)

    def predict(seed: int) -> Tensor:
        return _best(prediction, [fit(decay, seed) for decay in DECAYS[: 1 if is_many else 2]])

    return predict


def _propagation(prediction: NodePrediction, constant: Tensor) -> Predict:
    """z ← d D^-½ A D^-½ z + (1 - d) z₀, of the training labels y and of their number 1; then the
    ratio of both. Nodes that no label reaches get the constant prediction."""
    problem = prediction.problem
    train = problem.split["train"]
    target = prediction.target(train)
    if problem.kind == "classification":
        target = torch.nn.functional.one_hot(target, problem.out_dim)
    target = target.reshape(len(train), -1).double()
    known = ~target.isnan()
    start = np.zeros((2, len(problem.x), target.shape[1]))
    start[:, train.numpy()] = torch.stack([target.nan_to_num(), known.double()]).numpy()
    adjacency = _normalised(problem)

    def run(damping: float) -> Tensor:
        labels, mass = (torch.from_numpy(_propagate(adjacency, each, damping)) for each in start)
        ratio = labels / mass
        if problem.kind == "classification":
            ratio = _log(ratio)
        elif problem.kind == "multilabel":
            ratio = torch.logit(ratio, LEAST)
        return torch.where(mass > 0, ratio.float(), constant)

    best = _best(prediction, map(run, DAMPING))
    return lambda _: best


def _propagate(adjacency: Any, start: np.ndarray, damping: float) -> np.ndarray:
    now = start
    for _ in range(PROPAGATIONS):
        now = damping * (adjacency @ now) + (1 - damping) * start
    return now


def _normalised(problem: NodeProblem) -> Any:
    """D^-½ A D^-½ of the edges in both directions, without self-loops, as a sparse matrix."""
    from scipy import sparse

    graph, num_nodes = problem.whole_edges, len(problem.x)
    query, key = graph.query_index.numpy(), graph.key_index.numpy()
    is_edge = query != key
    ones = np.ones(int(is_edge.sum()))
    matrix = sparse.coo_array((ones, (query[is_edge], key[is_edge])), (num_nodes, num_nodes))
    both = (matrix + matrix.T).tocsr()
    both.data[:] = 1
    scale = sparse.diags_array(1 / np.sqrt(np.maximum(both.sum(1), 1)))
    return (scale @ both @ scale).tocsr()
