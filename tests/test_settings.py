"""Settings are set by name, and know where they depart from the released code."""

import json
import re
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from dynagat.benchmarks import (
    BENCHMARKS,
    DICTIONARY_LOOKUP,
    OGBN_MAG,
    OGBN_PRODUCTS,
    OGBN_PROTEINS,
    PUBMED,
    find,
)
from dynagat.experiment import as_published, departure, departures, fidelity, grid
from dynagat.experiment.settings import as_dict, flat, parse_numbers, paths, resolve, restored
from dynagat.experiment.tuning import Tuning, choices_of

# No code was released of PubMed (D45), and the paper has nothing of the other two.
ONE_READING = ("pubmed", "cora", "citeseer")
every_benchmark = pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=BENCHMARKS)


@dataclass(frozen=True)
class Shape:
    width: int = 6
    parts: int = 3
    name: str = "plain"

    def __post_init__(self) -> None:
        if self.width % self.parts:
            raise ValueError(f"parts must divide width={self.width}, but is {self.parts}")


@dataclass(frozen=True)
class Paint:
    colour: Literal["red", "blue"] = departure("red", published="blue", number="D1")
    layers: int | None = departure(None, published=11, number="D2")
    on: tuple[str, ...] = departure((), published=("wood", "glass"), number="D3")
    gloss: float = 0.5
    wet: bool = False
    name: str = "matt"


@dataclass(frozen=True)
class House:
    shape: Shape = Shape()
    paint: Paint = Paint()


HOUSE = House()


def only(*assignments: str) -> House:
    [made] = grid(HOUSE, list(assignments))
    return made


# Departures


def test_departures_are_found_with_their_path_and_both_values() -> None:
    found = {mark.path: (mark.number, mark.corrected, mark.published) for mark in departures(HOUSE)}
    assert found == {
        "paint.colour": ("D1", "red", "blue"),
        "paint.layers": ("D2", None, 11),
        "paint.on": ("D3", (), ("wood", "glass")),
    }


def test_as_published_takes_back_every_departure_and_nothing_else() -> None:
    painted = House(Shape(12), Paint(gloss=0.1, colour="red"))
    expected = Paint(colour="blue", layers=11, on=("wood", "glass"), gloss=0.1)
    assert as_published(painted) == House(Shape(12), expected)
    assert painted.paint.colour == "red"


@every_benchmark
def test_every_departure_has_a_number_of_the_register_and_departs(benchmark) -> None:
    marks = list(departures(benchmark.settings))
    assert bool(marks) == (benchmark.name not in ONE_READING)
    for mark in marks:
        assert re.fullmatch(r"[DF]\d+", mark.number), mark
        assert mark.published != mark.corrected, mark


@every_benchmark
def test_a_benchmark_is_corrected_as_published_or_changed(benchmark) -> None:
    assert fidelity(benchmark) == "corrected"
    published = as_published(benchmark.settings)
    reading = "corrected" if benchmark.name in ONE_READING else "as-published"
    assert fidelity(benchmark.with_settings(published)) == reading
    for mark in departures(benchmark.settings):  # neither, once one is on the other side
        part, _, name = mark.path.partition(".")
        mixed = replace(getattr(published, part), **{name: mark.corrected})
        changed = benchmark.with_settings(replace(published, **{part: mixed}))
        assert fidelity(changed) == "changed", mark


@every_benchmark
def test_the_departures_of_the_benchmark_are_those_of_its_default_settings(benchmark) -> None:
    now = flat(as_dict(benchmark.settings))
    for mark in departures(benchmark.settings):
        assert now[mark.path] == as_dict(mark.corrected), mark


def test_dictionary_lookup_departs_by_every_number_of_the_register() -> None:
    numbers = {mark.number for mark in departures(DICTIONARY_LOOKUP.settings)}
    assert {"D1", "D2", "D4", "D5", "D6", "D7", "D8"} <= numbers


@every_benchmark
def test_the_smoke_settings_make_one_valid_run_and_other_settings(benchmark) -> None:
    [smoke] = grid(benchmark.settings, list(benchmark.smoke))
    assert smoke != benchmark.settings


@every_benchmark
def test_published_numbers_are_of_mechanisms_settings_and_shares_that_there_are(benchmark) -> None:
    assert bool(benchmark.published) == (benchmark.name not in ("cora", "citeseer"))
    for each in benchmark.published:
        known = {None, *benchmark.mechanisms[each.mechanism]}
        if benchmark.name == "edge-noise":  # D17: 8 of GAT on arxiv, 1 of all else
            known = {
                8 if (each.mechanism, each.settings["dataset"]) == ("gat", "ogbn-arxiv") else 1
            }
        assert each.heads in known, each
        assert all(resolve(benchmark.settings, name) for name in each.settings), each
        assert 0 <= each.mean <= 1, each


# Names


def test_a_setting_is_found_by_its_path_or_by_its_last_name() -> None:
    assert resolve(HOUSE, "paint.gloss") == resolve(HOUSE, "gloss") == "paint.gloss"


def test_an_ambiguous_name_is_told_with_what_it_may_mean() -> None:
    with pytest.raises(ValueError, match=r"^'name' is ambiguous: shape\.name, paint\.name$"):
        resolve(HOUSE, "name")
    assert only("paint.name=new").paint.name == "new"


@pytest.mark.parametrize("name", ["glos", "paint", "gloss.paint", ""])
def test_an_unknown_name_lists_the_known_ones(name) -> None:
    known = ", ".join(paths(HOUSE))
    assert "shape.width, shape.parts, shape.name, paint.colour" in known
    with pytest.raises(ValueError, match=f"^there is no setting {name!r}; there are {known}$"):
        grid(HOUSE, [f"{name}=1"])


def test_a_setting_without_a_value_is_told() -> None:
    with pytest.raises(ValueError, match=r"^a setting must be written name=value, but is 'gloss'$"):
        grid(HOUSE, ["gloss"])


def test_an_unknown_benchmark_lists_the_known_ones() -> None:
    assert find("dictionary-lookup") is DICTIONARY_LOOKUP
    with pytest.raises(ValueError, match=r"no benchmark 'lookup'; there are .*dictionary-lookup"):
        find("lookup")


# Values


def test_no_assignment_asks_for_the_record_itself() -> None:
    assert grid(HOUSE, []) == [HOUSE]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("width=9", 9),
        (" width = 9 ", 9),
        ("gloss=1e-3", 0.001),
        ("gloss=2", 2.0),
        ("gloss=-0.5", -0.5),
        ("wet=true", True),
        ("wet=False", False),
        ("colour=blue", "blue"),
        ("layers=none", None),
        ("layers=3", 3),
        ("on=wood", ("wood",)),
        ("on=wood,glass", ("wood", "glass")),
        ("on=wood, glass", ("wood", "glass")),
        ("on=", ()),
        ("shape.name=a=b", "a=b"),
    ],
)
def test_a_text_is_read_as_the_fields_type(text, value) -> None:
    path = resolve(HOUSE, text.partition("=")[0].strip())
    found = flat(as_dict(only(text)))[path]
    assert found == as_dict(value)
    assert type(found) is type(as_dict(value))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("width=wide", "shape.width must be a whole number, but is 'wide'"),
        ("width=1.5", "shape.width must be a whole number, but is '1.5'"),
        ("width=", "shape.width must be a whole number, but is ''"),
        ("layers=many", "paint.layers must be a whole number, but is 'many'"),
        ("gloss=much", "paint.gloss must be a number, but is 'much'"),
        ("gloss=nan", "paint.gloss must be a number, but is 'nan'"),
        ("gloss=0.1,inf", "paint.gloss must be a number, but is 'inf'"),
        ("wet=1", "paint.wet must be true or false, but is '1'"),
        ("colour=green", "paint.colour must be one of red, blue, but is 'green'"),
        ("width=6-x", "shape.width must be numbers and ranges such as 0-3,7, but is '6-x'"),
        ("width=9-6", "shape.width must be numbers and ranges such as 0-3,7, but is '9-6'"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_in_a_sentence(text, sentence) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        grid(HOUSE, [text])


def test_a_record_refuses_a_value_in_its_own_sentence() -> None:
    with pytest.raises(ValueError, match=r"^parts must divide width=6, but is 4$"):
        grid(HOUSE, ["parts=4"])


# Several


def test_ranges_and_lists_ask_for_every_combination_in_order() -> None:
    made = grid(HOUSE, ["width=6-8", "parts=1", "gloss=0.1,0.2"])
    found = [(each.shape.width, each.shape.parts, each.paint.gloss) for each in made]
    assert found == [(6, 1, 0.1), (6, 1, 0.2), (7, 1, 0.1), (7, 1, 0.2), (8, 1, 0.1), (8, 1, 0.2)]


@pytest.mark.parametrize("texts", [("parts=4", "width=8"), ("width=8", "parts=4")])
def test_settings_that_need_each_other_are_set_at_once(texts) -> None:
    """4 does not divide 6, and 3 does not divide 8: in no order is each step allowed."""
    assert only(*texts).shape == Shape(8, 4)


def test_of_two_values_for_a_setting_the_last_counts() -> None:
    assert only("gloss=0.1", "gloss=0.2").paint.gloss == 0.2
    assert [each.paint.gloss for each in grid(HOUSE, ["gloss=0.1,0.3", "gloss=0.2"])] == [0.2]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("7", [7]), ("0-3", [0, 1, 2, 3]), ("0-2,7", [0, 1, 2, 7]), ("3,1,3,0-1", [3, 1, 0])],
)
def test_numbers_are_listed_once_each_in_the_order_written(text, numbers) -> None:
    assert parse_numbers(text, "seeds") == numbers


@pytest.mark.parametrize("text", ["", "a", "1-", "1,", "-", "3-1", "1.5", "0-3-5"])
def test_what_is_no_list_of_numbers_is_told_in_a_sentence(text) -> None:
    sentence = f"seeds must be numbers and ranges such as 0-3,7, but is {text!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        parse_numbers(text, "seeds")


@pytest.mark.parametrize("text", ["9223372036854775808", "0-99999999999999999999", "0-10000"])
def test_too_many_or_too_large_numbers_are_told(text) -> None:
    with pytest.raises(ValueError, match=r"^seeds must be at most 10,000 numbers below"):
        parse_numbers(text, "seeds")


def test_a_negative_seed_is_a_sentence_too() -> None:
    with pytest.raises(ValueError, match=r"^seeds must be numbers and ranges such as 0-3,7"):
        parse_numbers("-3", "seeds")


def test_a_field_that_came_later_is_not_told_at_its_default():
    """So that records that were made before keep their keys; but it can be set, and then tells."""
    settings = DICTIONARY_LOOKUP.settings
    assert "schedule.weight_decay" in paths(settings)
    assert "weight_decay" not in as_dict(settings, whole=False)["schedule"]
    (changed,) = grid(settings, ["weight_decay=0.1"])
    assert as_dict(changed, whole=False)["schedule"]["weight_decay"] == 0.1
    before = DICTIONARY_LOOKUP.key("gat", 0)
    assert DICTIONARY_LOOKUP.with_settings(changed).key("gat", 0) != before


def test_a_record_from_before_a_later_field_gets_its_default_back() -> None:
    """Even if the benchmark has another value by now: then the record's was the default."""
    assert PUBMED.schedule.weight_decay != 0
    (plain,) = grid(PUBMED.settings, ["weight_decay=0", "max_rounds=3"])
    told = as_dict(plain, whole=False)
    assert "weight_decay" not in told["schedule"]
    assert restored(PUBMED.settings, told) == plain
    assert restored(PUBMED.settings, as_dict(plain)) == plain


@every_benchmark
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("published", [True, False])
def test_settings_come_back_from_what_is_told_of_them(benchmark, whole, published) -> None:
    settings = as_published(benchmark.settings) if published else benchmark.settings
    told = json.loads(json.dumps(as_dict(settings, whole=whole)))
    assert restored(benchmark.settings, told) == settings


def test_what_was_tuned_for_a_mechanism_is_its_start_and_no_others() -> None:
    tuned = replace(PUBMED, tuned={"gat": {"heads": 4, "schedule.lr": 0.02}})
    assert (tuned.base("gat").network.heads, tuned.base("gat").schedule.lr) == (4, 0.02)
    assert tuned.base("gatv2") == tuned.settings == PUBMED.settings


def test_layers_and_numbers_of_neighbours_go_together() -> None:
    sentence = r"^neighbours must be a number for each of 3 layers, but is 10,10$"
    with pytest.raises(ValueError, match=sentence):
        grid(OGBN_MAG.settings, ["layers=3"])
    (deeper,) = grid(OGBN_MAG.settings, ["layers=3", "neighbours=5,5,5"])
    assert deeper.network.layers == 3
    with pytest.raises(ValueError, match=r"^looked_at must be a number for each of 6 layers, but"):
        grid(OGBN_PROTEINS.settings, ["looked_at=60"])
    with pytest.raises(ValueError, match=r"for each of 2 layers, but is 5$"):
        grid(PUBMED.settings, ["neighbours=5"])  # whose layers are hidden ones


@pytest.mark.parametrize("benchmark", [OGBN_MAG, OGBN_PRODUCTS, OGBN_PROTEINS],
                         ids=lambda each: each.name)  # fmt: skip
def test_the_grid_of_a_sampled_benchmark_has_all_depths_of_the_paper(benchmark) -> None:
    tuning = Tuning(benchmark, "gat", choices_of(benchmark, []), (0,))
    points, _ = tuning.points()
    assert {point["network.layers"] for point in points} == {2, 3, 6}
    assert len(points) == 3 * 3 * 4
