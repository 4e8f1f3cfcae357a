"""Hits@k and MRR equal those of OGB's official evaluator, and bad input is refused."""

import importlib.util
import math
import os
import pickle
from pathlib import Path

import pytest
import torch

from dynagat import link_metrics
from dynagat.link_metrics import HITS_10, HITS_20, HITS_50, HITS_100, MRR, hits_metric
from dynagat.metrics import find_metric

SCORES = {
    "random": lambda *shape: torch.randn(*shape),
    "tied": lambda *shape: torch.randint(0, 4, shape).float(),
    "equal": lambda *shape: torch.zeros(*shape),
    "infinite": lambda *shape: torch.tensor([-math.inf, 0.0, math.inf])[torch.randint(0, 3, shape)],
}
every_kind = pytest.mark.parametrize("kind", SCORES)


@pytest.fixture(scope="module")
def official():
    """OGB's evaluator; its file alone, since `import ogb` asks the network for updates."""
    package = importlib.util.find_spec("ogb")
    if package is None:
        if os.environ.get("CI"):
            pytest.fail("ogb is not installed, but CI must compare with its evaluator")
        pytest.skip("ogb is not installed")
    path = Path(package.submodule_search_locations[0], "linkproppred", "evaluate.py")
    spec = importlib.util.spec_from_file_location("ogb_evaluate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def evaluate(dataset, links, negatives, k=None):
        evaluator = module.Evaluator(dataset)
        evaluator.K = k
        return evaluator.eval({"y_pred_pos": links, "y_pred_neg": negatives})

    return evaluate


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(link_metrics, "BLOCK", 64)


def shuffled(links, negatives):
    """Scores and targets of pairs, in random order."""
    score, target = torch.cat([links, negatives]), torch.zeros(len(links) + len(negatives))
    target[: len(links)] = 1
    order = torch.randperm(len(score))
    return score[order], target[order]


def rows_with_links(score):
    """Targets with one link per row in a random column, then the links and negatives alone."""
    column = torch.randint(score.shape[1], (len(score),))
    target = torch.nn.functional.one_hot(column, score.shape[1])
    is_link = target == 1
    return target, score[is_link], score[~is_link].reshape(len(score), -1)


@every_kind
@pytest.mark.parametrize("metric", [HITS_10, HITS_20, HITS_50, HITS_100], ids=lambda m: m.name)
def test_hits_equal_those_of_ogb(official, small_blocks, kind, metric):
    k = metric.function.k
    for num_links, num_negatives in ((300, 1000), (7, 100), (5, 10), (1, 49)):
        links, negatives = SCORES[kind](num_links), SCORES[kind](num_negatives)
        expected = official("ogbl-collab", links, negatives, k)[f"hits@{k}"]
        assert metric.function(*shuffled(links, negatives)) == expected


@every_kind
def test_reciprocal_ranks_equal_those_of_ogb(official, small_blocks, kind):
    score = SCORES[kind](200, 21)
    target, links, negatives = rows_with_links(score)
    expected = official("ogbl-citation2", links, negatives)["mrr_list"]
    ranks = link_metrics.link_ranks(score, target)
    assert torch.equal(1 / ranks.float(), expected)
    mean = MRR.function(score, target)
    assert mean == pytest.approx(float(expected.mean()), abs=1e-6)
    assert mean == float((1 / ranks).mean())


def test_twenty_million_scores_are_judged_as_by_ogb(official):
    """In blocks of their true size: about a second, most of it OGB's."""
    score = torch.rand(20_000, 1_000, generator=torch.Generator().manual_seed(0))
    target = (torch.arange(1_000) == 999).expand_as(score)
    links, negatives = score[:, 999], score[:, :999]
    for k in (10, 100_000):
        expected = official("ogbl-collab", links, negatives.flatten(), k)[f"hits@{k}"]
        assert link_metrics.hits(score.flatten(), target.flatten(), k=k) == expected
    assert expected > 0
    expected = official("ogbl-citation2", links, negatives)["mrr_list"].double().mean()
    assert MRR.function(score, target) == pytest.approx(float(expected), rel=1e-6)


def test_links_must_be_strictly_above_the_kth_negative():
    score = torch.tensor([3.0, 2.0, 1.0, 3.0, 2.0, 0.0])
    target = torch.tensor([1, 1, 1, 0, 0, 0])
    assert link_metrics.hits(score, target, k=1) == 0
    assert link_metrics.hits(score, target, k=2) == 1 / 3
    assert link_metrics.hits(score, target, k=3) == 1


def test_ties_count_half():
    score = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]])
    assert link_metrics.link_ranks(score, torch.tensor([[0, 1, 0, 0, 0]])).tolist() == [2]


def test_targets_may_be_an_expanded_view():
    target = torch.tensor([1, 0, 0]).expand(4, 3)
    score = torch.tensor([[1.0, 2, 3], [3, 2, 1], [2, 1, 3], [3, 1, 2]])
    assert MRR.function(score, target) == pytest.approx((1 / 3 + 1 + 1 / 2 + 1) / 4)


def test_with_fewer_than_k_negatives_every_link_is_a_hit():
    assert HITS_10.function(torch.zeros(12), torch.tensor([1] * 3 + [0] * 9)) == 1
    assert HITS_10.function(torch.zeros(3), torch.ones(3)) == 1
    assert HITS_10.function(torch.zeros(13), torch.tensor([1] * 3 + [0] * 10)) == 0


@pytest.mark.parametrize("place", [0, 5])
def test_a_nan_among_the_scores_gives_nan(place, small_blocks):
    score, target = torch.zeros(6), torch.tensor([1, 1, 0, 0, 0, 0])
    score[place] = math.nan
    assert math.isnan(link_metrics.hits(score, target, k=2))
    assert math.isnan(HITS_100.function(score, target))
    assert math.isnan(MRR.function(score.view(2, 3), torch.tensor([[1, 0, 0], [0, 1, 0]])))


@pytest.mark.parametrize(
    ("score", "target", "text"),
    [
        (torch.zeros(3), torch.zeros(3), "at least one link"),
        (torch.zeros(0), torch.zeros(0), "at least one link"),
        (torch.zeros(3), torch.ones(2), r"both be \[P\], but are \[3\] and \[2\]"),
        (torch.zeros(3, 1), torch.ones(3, 1), r"both be \[P\]"),
    ],
)
def test_pairs_that_cannot_be_judged_by_hits_are_refused(score, target, text):
    with pytest.raises(ValueError, match=text):
        HITS_20.function(score, target)
    with pytest.raises(ValueError, match="k must be 1 or more, but is 0"):
        link_metrics.hits(torch.zeros(2), torch.tensor([0, 1]), k=0)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ([[1, 0], [0, 0]], "one link .* in each row, but a row has 0"),
        ([[1, 0], [1, 1]], "one link .* in each row, but a row has 2"),
        ([[1], [1]], "a negative in each row"),
        ([1, 0], r"both be \[n, 1 \+ K\], but are \[2\] and \[2\]"),
    ],
)
def test_rows_that_have_no_rank_are_refused(target, text):
    target = torch.tensor(target)
    with pytest.raises(ValueError, match=text):
        MRR.function(torch.zeros(target.shape), target)
    with pytest.raises(ValueError, match="at least one row"):
        MRR.function(torch.zeros(0, 3), torch.zeros(0, 3))


def test_metrics_of_links_have_names_titles_and_per_cent():
    assert [(m.name, m.title, m.unit) for m in (HITS_20, MRR)] == [
        ("hits_20", "Hits@20", "%"),
        ("mrr", "MRR", "%"),
    ]
    assert hits_metric(50) == HITS_50 != HITS_20
    assert pickle.loads(pickle.dumps(HITS_50)) == HITS_50
    assert find_metric("Hits@50", [HITS_20, HITS_50, MRR]) is HITS_50
