"""The microscope's page shows the measurements, can be explored, and runs no foreign code."""

from __future__ import annotations

import json
import math
import os
import re
import time
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from dynagat.analysis import subset
from dynagat.analysis.attentive import Attentiveness, measure
from dynagat.analysis.capture import Attention
from dynagat.analysis.table import LayerAttention
from dynagat.analysis.verdict import Verdict
from dynagat.report.microscope import microscope, write_microscope
from dynagat.report.microscope.advice import advise, answer, setting, why
from dynagat.report.microscope.edge_sets import edge_sets_of

N = 7
HOSTILE = ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<b>bold</b>",
           "naïve — 木", "'quote'", "{{ 7 * 7 }}", "a" * 300]  # fmt: skip


def softmax(score, query):
    """[E, H] over the edges of each query."""
    weight = score.exp()
    total = torch.zeros(int(query.max()) + 1, score.shape[1]).index_add(0, query, weight)
    return weight / total[query]


def seen(layer, query, key, score, *, kind="GATv2Conv", call=0, one_set=True):
    loops = (query == key) & one_set
    ids = torch.arange(len(query))
    return LayerAttention(layer, kind, query, key, ids, loops, softmax(score, query), score, call)


def captured(*views):
    attention = Attention()
    attention._seen.extend(views)
    return attention


def scores(query, key):
    """A static, a dynamic and a uniform head: [E, 3]"""
    static = (key * 7919 % 3001) / 1000
    dynamic = ((key + 2 * query) % N) * 0.5
    uniform = 0.001 * dynamic
    return torch.stack([static, dynamic, uniform], dim=1).float()


def ring(missing=((2, 5), (3, 3)), size=N):
    """All nodes attend to all, except for the missing edges."""
    pairs = [(i, j) for i in range(size) for j in range(size) if (i, j) not in missing]
    return torch.tensor(pairs).T


@pytest.fixture(scope="module")
def small():
    """Two layers over one graph."""
    query, key = ring()
    first = seen("convs.0", query, key, scores(query, key))
    second = seen("convs.1", query, key, scores(query, key)[:, [0]], kind="GATConv")
    return measure(captured(first, second), labels=torch.arange(N) % 2)


@pytest.fixture(scope="module")
def wide():
    """A ring of 3,000 nodes, each attending to the next twenty; heads as in `small`."""
    size = 3000
    query = torch.arange(size).repeat_interleave(20)
    key = (query + torch.arange(20).repeat(size)) % size
    return measure(captured(seen("conv", query, key, scores(query, key))))


@pytest.fixture
def opened(look_at, tmp_path):
    """A function that opens the page of a result."""

    def open_page(result, width=1280, scheme="light", **options):
        path = write_microscope(result, tmp_path / "page.html", **options)
        return look_at(path, width=width, scheme=scheme)

    return open_page


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def head_of(view, layer, head):
    return view.locator(f".head[data-layer='{layer}'][data-head='{head}']")


def weights_of(result, layer, head):
    """{(query, key): weight} of the first view."""
    view = next(each for each in result.attention.seen if each.layer == layer)
    ends = zip(view.query.tolist(), view.key.tolist(), strict=True)
    return dict(zip(ends, view.weight[:, head].tolist(), strict=True))


def shown_keys(view, head=0):
    """[(id, weight)] of a head's bars, from the top."""
    bars = view.locator("#neighbours > div").nth(head).locator(".to")
    return [tuple(map(float, pair)) for pair in bars.evaluate_all(
        "bars => bars.map((bar) => [bar.dataset.id, bar.lastChild.textContent])")]  # fmt: skip


def shown_cells(view):
    """The heat map's keys, and {(query, key): text}."""
    keys, *rows = view.locator("#heat tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    keys = [int(key) for key in keys[1:]]
    cells = {
        (int(row[0]), key): text for row in rows for key, text in zip(keys, row[1:], strict=True)
    }
    return keys, cells


def search(view, text):
    view.locator("#node").fill(text)
    view.locator("#node").press("Enter")


# Without a browser


def test_the_file_loads_nothing_from_the_network_and_is_written_whole(small, tmp_path):
    path = write_microscope(small, tmp_path / "new" / "page.html")
    assert path == tmp_path / "new" / "page.html"
    text = path.read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:)?//""", text)
    assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import|fetch\(|XMLHttpRequest", text)
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert os.listdir(path.parent) == ["page.html"]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            1_000_000,
            "nodes must be at most 20000, because browsers can't open larger pages, but is 1000000",
        ),
        (0, "nodes must be at least 1, but is 0"),
        (-3, "nodes must be at least 1, but is -3"),
    ],
)
def test_too_many_or_too_few_nodes_are_an_error(small, tmp_path, nodes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        write_microscope(small, tmp_path / "page.html", nodes=nodes)
    assert os.listdir(tmp_path) == []


def test_missing_names_are_an_error(small, tmp_path):
    with pytest.raises(ValueError, match=r"names must have at least 7 entries, .* is 6, but has 3"):
        write_microscope(small, tmp_path / "page.html", names=["a", "b", "c"])


def test_the_answer_counts_heads(small):
    assert answer(small.heads) == (
        "3 of 4 heads attend: some neighbours get more weight than others."
        " 1 is uniform: all neighbours get about the same weight."
        " 2 of 4 heads are dynamic: different nodes rank the same neighbours differently."
        " 2 are static: all nodes rank the same neighbours in the same order."
    )
    static = small.layers[0].heads[:1]
    assert "The only head is static" in answer(static)
    assert "Both heads are static" in answer(static * 2)
    assert "All 5 heads are static" in answer(static * 5)


def test_the_reasons_name_numbers_and_limits(small):
    static, dynamic, uniform = small.layers[0].heads
    assert "of the degree: less than 99%. All of" in why(static)
    assert "of the degree: at least 99%. The weighted agreement of" in why(uniform)
    few = replace(static, pairs=7, ranking=Verdict("not enough to tell"))
    assert why(few).endswith(
        "7 pairs of queries can be compared; a verdict on the ranking needs 20."
    )
    alike = replace(static, ranking=Verdict("not enough to tell"))
    assert why(alike).endswith(
        "All queries have the same content, so their rankings can not differ."
    )
    unsure = replace(dynamic, ranking=Verdict("dynamic", ("mixed",)))
    assert why(unsure).endswith("less than 0.5, but the confidence interval includes mixed.")


def test_advice_depends_on_verdicts_and_kinds(small):
    titles = [each.title for each in advise(small.heads)]
    assert titles == [
        "1 head: static by construction",
        "1 head: static, but not by construction",
        "1 head: attention is not used",
        "1 head: nothing to do",
    ]
    (fixed,) = advise(small.layers[1].heads)
    assert "Theorem 1" in fixed.text
    assert "GATv2Conv(in_channels, out_channels, heads=1)" in fixed.code


def test_layers_with_the_same_edges_share_an_edge_set(small):
    _, (edge_set,) = edge_sets_of(small)
    assert edge_set.layers == [0, 1]
    assert edge_set.num_heads == 4


def test_the_page_of_a_large_graph_is_small_and_written_quickly(small):
    generator = torch.Generator().manual_seed(0)
    size, edges = 20_000, 300_000
    query, key = (torch.rand(2, edges, generator=generator) ** 2 * size).long()
    score = torch.randn(edges, 3, generator=generator)
    views = [seen(f"convs.{at}", query, key, score + at) for at in range(3)]
    order = torch.stack([torch.randperm(size, generator=generator) for _ in range(3)], dim=1)
    layers = [
        replace(small.layers[0], name=view.layer, one_ranking=order, views=[view]) for view in views
    ]
    start = time.perf_counter()
    text = microscope(Attentiveness(tuple(layers), captured(*views)), title="large")
    assert time.perf_counter() - start < 10
    assert len(text) < 4_000_000
    assert "2,000 of 20,000 nodes are included" in text or "2,000 of 19," in text
    data = data_of(text)
    assert data["queries"] == 2000
    assert len(data["edgeSets"]) == 1


def test_queries_have_fewer_keys_if_the_page_would_be_too_large(wide, monkeypatch):
    from dynagat.report.microscope import sample

    monkeypatch.setattr(sample, "MAX_BYTES", 3000 * 12 * 10)
    text = microscope(wide, title="small", nodes=3000)
    assert (
        "All 3,000 nodes are included in this page, each with at most its 12 strongest keys" in text
    )


def test_a_sample_of_queries_is_stated_in_the_page(monkeypatch):
    monkeypatch.setattr(subset, "MAX_EDGES", 100)
    query, key = ring(missing=(), size=20)
    result = measure(captured(seen("conv", query, key, scores(query, key))), seed=3)
    text = microscope(result, title="sample", nodes=3)
    assert "20 queries, 20 keys and 400 edges" in setting(result)
    assert "conv: analysed on a random sample of 5 of 20 queries (seed 3)." in text
    assert "3 of 5 analysed nodes are included in this page" in text


# In a browser


def test_the_gauge_has_a_mark_per_head_at_its_agreement(small, opened):
    view = opened(small)
    assert view.locator("#answer").inner_text() == answer(small.heads)
    assert "7 queries, 7 keys and 47 edges" in view.locator("#setting").inner_text()
    assert view.locator(".head").count() == view.locator(".head .marker").count() == 4
    lowest = min(0, math.floor(4 * min(h.weighted_agreement.low for h in small.heads)) / 4)
    for at, layer in enumerate(small.layers):
        for head in layer.heads:
            mark = head_of(view, at, head.head)
            words = f"{head.ranking.word}, {head.attends.word}"
            assert mark.locator(".ranking").inner_text() == str(head.ranking)
            assert mark.locator(".attends").inner_text().startswith(str(head.attends))
            left = float(
                re.search(r"left:([\d.]+)%", mark.locator(".marker").get_attribute("style"))[1]
            )
            assert left == pytest.approx(
                100 * (1 - head.weighted_agreement.value) / (1 - lowest), abs=0.01
            )
            assert f"head {head.head}: {words}" in mark.get_attribute("aria-label")
    shapes = {view.locator(f".head.{kind} .marker *").last.evaluate("e => e.tagName")
              for kind in ("static", "dynamic")}  # fmt: skip
    assert len(shapes) == 2
    fills = {view.locator(f"{kind} .marker *").last.evaluate("e => getComputedStyle(e).fill")
             for kind in (".head.dynamic:not(.uniform)", ".head.dynamic.uniform")}  # fmt: skip
    assert len(fills) == 2


def test_the_numbers_of_a_head_are_shown_on_focus_on_hover_and_in_the_table(small, opened):
    view = opened(small)
    panel = view.locator("#panel")
    head_of(view, 0, 1).focus()
    assert panel.locator("h3").inner_text().startswith("convs.0, head 1: ")
    head_of(view, 1, 0).hover()
    assert panel.locator("h3").inner_text().startswith("convs.1, head 0: ")
    view.mouse.move(0, 0)
    assert panel.locator("h3").inner_text().startswith("convs.0, head 0: ")
    names = [each.inner_text() for each in panel.locator("dt").all()]
    assert names == ["weighted agreement", "pairs", "agreement τ", "same choice", "one ranking",
                     "selected keys", "interaction", "entropy", "effective neighbours",
                     "on self-loops", "on same label", "alike"]  # fmt: skip
    assert panel.locator(".meaning").count() == len(names)
    view.locator("#numbers summary").click()
    assert view.locator("#numbers tbody tr").count() == 4
    row = view.locator("#numbers tbody tr").nth(1)
    head = small.layers[0].heads[1]
    value = f"{head.weighted_agreement.value:.2f}".replace("-", "−")
    assert value in row.locator("td").nth(4).inner_text()
    assert row.locator("td").count() == 4 + len(names)


def test_the_heat_map_has_every_weight_in_the_order_of_the_one_ranking(small, opened):
    view = opened(small)
    for head in (0, 1):
        head_of(view, 0, head).click()
        weights = weights_of(small, "convs.0", head)
        keys, cells = shown_cells(view)
        assert keys == small.layers[0].one_ranking[:, head].tolist()
        for pair, text in cells.items():
            if pair in weights:
                assert float(text) == pytest.approx(weights[pair], abs=0.006)
            else:
                assert text == ""
        assert {pair for pair in cells if cells[pair]} == set(weights)
    words = view.locator("#block-words").inner_text()
    assert re.match(
        r"Dynamic, attends: \d+ of \d+ comparisons within these rows \(\d+ %\) contradict", words
    )


def test_lines_of_a_static_head_never_rise_and_others_do(small, opened):
    view = opened(small)

    def rises():
        lines = view.locator("#lines polyline:not(.gap)").all()
        assert {int(line.get_attribute("data-row")) for line in lines} == set(range(N))
        count = 0
        for line in lines:
            heights = [float(p.split(",")[1]) for p in line.get_attribute("points").split()]
            count += sum(b < a - 1e-6 for a, b in pairwise(heights))
        return count

    assert "agree with the head's one ranking" in view.locator("#block-words").inner_text()
    for scale in ("weight", "log", "rank"):
        view.locator("#pick-scale").select_option(scale)
        assert rises() == 0
    view.locator(".pick-head").select_option("0/1")
    assert head_of(view, 0, 1).get_attribute("aria-pressed") == "true"
    assert rises() > 5


def test_a_click_on_a_row_highlights_it_and_a_second_click_undoes_it(small, opened):
    view = opened(small)
    view.locator("#heat tbody tr").nth(3).locator("td").nth(1).click()
    assert view.locator("#heat tr[aria-current='true']").count() == 1
    rows = {each.get_attribute("data-row") for each in view.locator("#lines .chosen").all()}
    assert rows == {"3"}
    view.locator("#heat .row").nth(3).press("ArrowDown")
    view.keyboard.press("Enter")
    assert view.locator("#heat tr[aria-current='true']").get_attribute("data-row") == "4"
    view.locator("#heat .row").nth(4).click()
    assert view.locator("#lines .chosen").count() == 0


def test_the_explorer_can_search_go_to_a_neighbour_and_go_back(small, opened):
    view = opened(small)
    title = view.locator("#node-title")
    search(view, "2")
    assert title.inner_text() == "node 2"
    for head in range(3):
        weights = weights_of(small, "convs.0", head)
        mine = sorted(((key, w) for (query, key), w in weights.items() if query == 2),
                      key=lambda pair: -pair[1])  # fmt: skip
        shown = shown_keys(view, head)
        assert [w for _, w in shown] == pytest.approx([w for _, w in mine], abs=6e-4)
        if head < 2:  # weights of the uniform head round to ties
            assert [key for key, _ in shown] == [key for key, _ in mine]
    view.locator("#neighbours .to[data-id='6']").first.click()
    assert title.inner_text() == "node 6"
    view.locator("#neighbours .to[data-id='6']").first.click()
    assert view.locator("#message").inner_text() == "This is the current node."
    view.locator("#pick-layer").select_option(label="convs.1")
    assert view.locator("#neighbours > div").count() == 1
    view.locator("#back").click()
    assert title.inner_text() == "node 2"
    search(view, "99")
    assert view.locator("#message").inner_text().startswith("No match for “99” among the 7 of 7")
    assert title.inner_text() == "node 2"


def test_the_list_of_matches_works_with_the_keyboard(small, opened):
    view = opened(small, names=["ant", "bee", "beetle", "cat", "dog", "eel", "bearded fox"])
    view.locator("#node").fill("be")
    names = [each.inner_text() for each in view.locator("#matches li").all()]
    assert names == ["bee (node 1)", "beetle (node 2)", "bearded fox (node 6)"]
    view.locator("#node").press("ArrowDown")
    view.locator("#node").press("ArrowDown")
    view.locator("#node").press("Enter")
    assert view.locator("#node-title").inner_text() == "beetle (node 2)"
    assert view.locator("#matches").is_hidden()


def test_a_sample_states_its_size_and_can_be_explored(wide, opened):
    view = opened(wide, nodes=100)
    expected = (
        "100 of 3,000 nodes are included in this page, each with at most its 60 strongest keys."
    )
    assert view.locator("#included").inner_text() == expected
    inside = view.locator("#neighbours .to:not(.outside)")
    for _ in range(3):
        before = view.locator("#node-title").inner_text()
        inside.first.click()
        assert view.locator("#node-title").inner_text() != before
    assert view.locator("#trail .to").count() == 3
    view.locator("#trail .to").first.click()
    assert view.locator("#trail .to").count() == 0
    data = data_of(microscope(wide, title="", nodes=1))
    assert data["queries"] == 1
    view = opened(wide, nodes=1)
    view.locator("#neighbours .to.outside:not([aria-label*=itself])").first.click()
    assert "is not among the 1 queries in this page" in view.locator("#message").inner_text()


def test_a_node_can_be_compared_with_queries_that_share_its_keys(wide, opened):
    view = opened(wide, nodes=3000)
    search(view, "1234")
    view.locator("#compare").click()
    queries = [each.inner_text() for each in view.locator("#heat tbody th").all()]
    assert queries[0] == "1234"
    assert len(queries) == 12
    assert view.locator("#pick-block").input_value() == "around"
    assert view.locator("#heat tr[aria-current='true'] td.none").count() == 0
    assert "from these rows only" in view.locator("#block-note").inner_text()
    assert "agree with the head's one ranking" in view.locator("#block-words").inner_text()


def test_the_same_node_in_another_call_is_a_different_query(opened):
    query, key = ring()
    later = query + 3, key + 3
    views = [
        seen("conv", query, key, scores(query, key), call=0),
        seen("conv", *later, scores(query, (key * 3) % N), call=1),
    ]
    view = opened(measure(captured(*views)))
    assert view.locator("#included").inner_text().startswith("All 14 queries are included")
    search(view, "9")  # in the second call only
    assert "in call 1" in view.locator("#node-words").inner_text()
    assert view.locator("#call-label").is_hidden()
    view.locator("#neighbours .to[data-id='5']").first.click()
    assert "in call 1" in view.locator("#node-words").inner_text()
    assert {key for key, _ in shown_keys(view)} == set(range(3, 10)) - {8}
    view.locator("#pick-call").select_option("0")
    assert {key for key, _ in shown_keys(view)} == set(range(7))


def test_keys_of_another_node_set_can_not_be_opened(opened):
    query, key = ring(missing=())
    view = opened(measure(captured(seen("conv", query, key, scores(query, key), one_set=False))))
    assert view.locator("#node-title").inner_text() == "query 0"
    view.locator("#neighbours .to[data-id='0']").first.click()
    assert "key 0 is never a query" in view.locator("#message").inner_text()


def test_node_types_connect_layers(opened):
    query, key = ring(missing=())
    names = ("convs.0.<author___writes___paper>", "convs.0.<paper___rev_writes___author>")
    layers = [seen(name, query, key, scores(query, key), one_set=False) for name in names]
    view = opened(measure(captured(*layers)))
    assert view.locator("#node-title").inner_text() == "paper 0"
    view.locator("#neighbours .to[data-id='3']").first.click()
    assert view.locator("#node-title").inner_text() == "author 3"
    assert (
        view.locator("#node-words").inner_text()
        == f"This node is not a query in {names[0]}, only in {names[1]}."
    )
    view.locator("#pick-layer").select_option("1")
    assert view.locator("#neighbours > div").count() == 3


def test_queries_that_share_no_keys_have_a_page(opened):
    query, key = torch.tensor([[0, 0, 0, 1, 1, 1, 2, 3], [0, 1, 2, 0, 1, 2, 4, 5]])
    lone = torch.arange(4), torch.arange(4)
    views = [seen("shared", query, key, scores(query, key)),
             seen("alone", *lone, scores(*lone))]  # fmt: skip
    view = opened(measure(captured(*views)))
    view.locator(".pick-head").select_option("1/0")
    assert (
        view.locator("#block-words").inner_text()
        == "This page contains no queries of this layer that share keys."
    )
    assert "no query has two keys" in view.locator("#sharpness").inner_text()
    search(view, "3")
    assert shown_keys(view) == [(3, 1.0)]


def test_histograms_show_uniform_heads_at_one(small, opened):
    view = opened(small)
    figures = view.locator(".histograms figure")
    assert figures.count() == 4
    assert figures.nth(2).inner_text().split()[-1] == "1.00"
    assert figures.nth(2).locator("rect").count() == 1
    assert float(figures.nth(2).locator("rect").get_attribute("x")) == 195.5
    assert float(figures.nth(0).inner_text().split()[-1]) < 0.95


def test_hostile_names_and_titles_are_inert(small, opened):
    view = opened(small, names=HOSTILE, title="</title><script>alert(2)</script>")
    assert view.locator("h1").inner_text() == "</title><script>alert(2)</script>"
    assert view.locator("img, main script, #heat b").count() == 0
    rows = [each.inner_text() for each in view.locator("#heat tbody th").all()]
    assert set(rows) == {name[:60] for name in HOSTILE}
    search(view, "<script>")
    assert view.locator("#node-title").inner_text() == f"{HOSTILE[0]} (node 0)"
    search(view, "木")
    assert view.locator("#node-title").inner_text() == "naïve — 木 (node 3)"
    search(view, "<i>none</i>")
    assert "<i>none</i>" in view.locator("#message").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (390, "dark"), (800, "dark")])
def test_the_page_does_not_scroll_sideways(small, opened, width, scheme):
    view = opened(small, width, scheme, names=HOSTILE)
    view.locator("#numbers summary").click()
    head_of(view, 0, 1).click()
    assert view.locator("#panel").is_visible()
    view.locator("#neighbours .to:not(.outside)").first.click()
    inner, whole = view.evaluate("[innerWidth, document.documentElement.scrollWidth]")
    assert whole <= inner
    dark = view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 26)"
    assert dark == (scheme == "dark")


def test_on_a_phone_the_numbers_of_a_head_open_below_it(small, opened):
    view = opened(small, 390)
    assert view.locator("#panel").is_hidden()
    head_of(view, 0, 2).click()
    assert view.locator(".head[data-layer='0'][data-head='2'] + #panel").is_visible()
    head_of(view, 0, 2).click()
    assert view.locator("#panel").is_hidden()
