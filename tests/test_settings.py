"""Settings: set by name, marked where they depart from the released code, stored in records."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import pytest

from dynagat.benchmarks import (
    BENCHMARKS,
    DICTIONARY_LOOKUP,
    OGBN_MAG,
    OGBN_PRODUCTS,
    OGBN_PROTEINS,
    OWN_GRAPH,
    PUBMED,
    find,
)
from dynagat.experiment import as_published, departure, departures, fidelity, grid, improved
from dynagat.experiment.settings import (
    as_dict,
    as_stored,
    parse_numbers,
    paths,
    resolve,
    restored,
    values_of,
)
from dynagat.experiment.tuning import Tuning, choices_of
from dynagat.prediction.nodes import NodeTask

# No code for PubMed was released (D45), and the paper has no results on the other two.
WITHOUT_DEPARTURES = ("pubmed", "cora", "citeseer")
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
    [house] = grid(HOUSE, list(assignments))
    return house


# Departures


def test_departures_have_their_path_and_both_values() -> None:
    marks = {mark.path: (mark.number, mark.corrected, mark.published) for mark in departures(HOUSE)}
    assert marks == {
        "paint.colour": ("D1", "red", "blue"),
        "paint.layers": ("D2", None, 11),
        "paint.on": ("D3", (), ("wood", "glass")),
    }


def test_as_published_reverts_every_departure_and_nothing_else() -> None:
    painted = House(Shape(12), Paint(gloss=0.1, colour="red"))
    expected = Paint(colour="blue", layers=11, on=("wood", "glass"), gloss=0.1)
    assert as_published(painted) == House(Shape(12), expected)
    assert painted.paint.colour == "red"


@every_benchmark
def test_every_departure_has_a_number_and_two_different_values(benchmark) -> None:
    marks = list(departures(benchmark.settings))
    assert bool(marks) == (benchmark.name not in WITHOUT_DEPARTURES)
    for mark in marks:
        assert re.fullmatch(r"[DF]\d+", mark.number), mark
        assert mark.corrected not in (mark.published, mark.improved) or (
            mark.published != mark.improved
        ), mark


@every_benchmark
def test_a_benchmark_is_corrected_as_published_or_changed(benchmark) -> None:
    assert fidelity(benchmark) == "corrected"
    published = as_published(benchmark.settings)
    expected = "corrected" if benchmark.name in WITHOUT_DEPARTURES else "as-published"
    assert fidelity(benchmark.with_settings(published)) == expected
    marks = list(departures(benchmark.settings))
    for mark in [m for m in marks if m.published != m.corrected]:  # neither, if one is reverted
        part, _, name = mark.path.partition(".")
        mixed = replace(getattr(published, part), **{name: mark.corrected})
        changed = benchmark.with_settings(replace(published, **{part: mixed}))
        assert fidelity(changed) == "changed", mark


@every_benchmark
def test_improvements_are_a_fidelity_of_their_own(benchmark) -> None:
    ours = benchmark.with_settings(improved(benchmark.settings))
    has_some = benchmark.name == "dictionary-lookup"
    assert fidelity(ours) == ("improved" if has_some else "corrected")
    assert (ours.settings != benchmark.settings) == has_some


def test_a_field_that_was_added_later_has_its_old_value_in_old_records() -> None:
    @dataclass(frozen=True)
    class Later:
        pairs: str = departure("own", published="shared", number="D1", absent="shared")

    assert as_stored(Later()) == {"pairs": "own"}
    assert as_stored(Later("shared")) == {}
    assert restored(Later(), {}) == Later("shared")


@every_benchmark
def test_the_default_settings_of_a_benchmark_have_the_corrected_values(benchmark) -> None:
    values = values_of(benchmark.settings)
    for mark in departures(benchmark.settings):
        assert values[mark.path] == as_dict(mark.corrected), mark


def test_dictionary_lookup_has_every_departure_of_the_register() -> None:
    numbers = {mark.number for mark in departures(DICTIONARY_LOOKUP.settings)}
    assert {"D1", "D2", "D4", "D5", "D6", "D7", "D8"} <= numbers


@every_benchmark
def test_the_smoke_settings_are_valid_and_differ_from_the_benchmarks_own(benchmark) -> None:
    [smoke] = grid(benchmark.settings, list(benchmark.smoke))
    assert smoke != benchmark.settings


@every_benchmark
def test_published_numbers_have_known_mechanisms_heads_and_settings(
    benchmark,
) -> None:
    assert bool(benchmark.published) == (benchmark.name not in ("cora", "citeseer"))
    for each in benchmark.published:
        known = {None, *benchmark.mechanisms[each.mechanism]}
        if benchmark.name == "edge-noise":  # D17: GAT has 8 heads on arxiv, the others 1
            known = {
                8 if (each.mechanism, each.settings["dataset"]) == ("gat", "ogbn-arxiv") else 1
            }
        assert each.heads in known, each
        assert all(resolve(benchmark.settings, name) for name in each.settings), each
        assert 0 <= each.mean <= (1 if each.metric.is_fraction else math.inf), each


# Names


def test_a_setting_is_named_by_its_path_or_by_its_last_part() -> None:
    assert resolve(HOUSE, "paint.gloss") == resolve(HOUSE, "gloss") == "paint.gloss"


def test_an_ambiguous_name_is_refused_with_the_paths_it_could_mean() -> None:
    with pytest.raises(ValueError, match=r"^'name' is ambiguous: shape\.name, paint\.name$"):
        resolve(HOUSE, "name")
    assert only("paint.name=new").paint.name == "new"


@pytest.mark.parametrize("name", ["glos", "paint", "gloss.paint", ""])
def test_an_unknown_name_lists_the_known_ones(name) -> None:
    known = ", ".join(paths(HOUSE))
    assert "shape.width, shape.parts, shape.name, paint.colour" in known
    with pytest.raises(ValueError, match=f"^there is no setting {name!r}; there are {known}$"):
        grid(HOUSE, [f"{name}=1"])


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a setting must be written name=value, but is 'gloss'$"):
        grid(HOUSE, ["gloss"])


def test_an_unknown_benchmark_lists_the_known_ones() -> None:
    assert find("dictionary-lookup") is DICTIONARY_LOOKUP
    with pytest.raises(ValueError, match=r"no benchmark 'lookup'; there are .*dictionary-lookup"):
        find("lookup")


# Values


def test_a_grid_without_assignments_is_the_settings_themselves() -> None:
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
def test_a_text_is_parsed_as_the_type_of_the_field(text, value) -> None:
    path = resolve(HOUSE, text.partition("=")[0].strip())
    parsed = values_of(only(text))[path]
    assert parsed == as_dict(value)
    assert type(parsed) is type(as_dict(value))


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_a_value_of_the_wrong_type_is_refused(text, message) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        grid(HOUSE, [text])


def test_settings_that_refuse_a_value_give_the_message() -> None:
    with pytest.raises(ValueError, match=r"^parts must divide width=6, but is 4$"):
        grid(HOUSE, ["parts=4"])


# Several values


def test_ranges_and_lists_give_every_combination_in_order() -> None:
    houses = grid(HOUSE, ["width=6-8", "parts=1", "gloss=0.1,0.2"])
    values = [(each.shape.width, each.shape.parts, each.paint.gloss) for each in houses]
    assert values == [(6, 1, 0.1), (6, 1, 0.2), (7, 1, 0.1), (7, 1, 0.2), (8, 1, 0.1), (8, 1, 0.2)]


@pytest.mark.parametrize("texts", [("parts=4", "width=8"), ("width=8", "parts=4")])
def test_settings_that_depend_on_each_other_are_set_at_once(texts) -> None:
    """4 does not divide 6, and 3 does not divide 8: one after the other would fail."""
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
def test_a_text_that_is_no_list_of_numbers_is_refused(text) -> None:
    message = f"seeds must be numbers and ranges such as 0-3,7, but is {text!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_numbers(text, "seeds")


@pytest.mark.parametrize("text", ["9223372036854775808", "0-99999999999999999999", "0-10000"])
def test_too_many_or_too_large_numbers_are_refused(text) -> None:
    with pytest.raises(ValueError, match=r"^seeds must be at most 10,000 numbers below"):
        parse_numbers(text, "seeds")


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^seeds must be numbers and ranges such as 0-3,7"):
        parse_numbers("-3", "seeds")


# What records store


@dataclass(frozen=True)
class Door:
    width: int = 90
    handle: str = field(default="brass", metadata={"stored_as": "knob"})
    locks: tuple[int, ...] = field(default=(), metadata={"stored_as": "bolts"})
    finish: str = departure("oil", published="wax", number="D4", stored_as="polish")
    window: bool = field(default=False, metadata={"added_later": True})

    RETIRED: ClassVar[Mapping[str, Any]] = {"squeaks": False}


@dataclass(frozen=True)
class Entrance:
    door: Door = Door()
    steps: int = 2


def test_a_record_leaves_out_a_later_field_at_its_default() -> None:
    """So that older records keep their keys; any other value is stored and changes the key."""
    settings = DICTIONARY_LOOKUP.settings
    assert "schedule.weight_decay" in paths(settings)
    assert "weight_decay" not in as_stored(settings)["schedule"]
    (changed,) = grid(settings, ["weight_decay=0.1"])
    assert as_stored(changed)["schedule"]["weight_decay"] == 0.1
    before = DICTIONARY_LOOKUP.key("gat", 0)
    assert DICTIONARY_LOOKUP.with_settings(changed).key("gat", 0) != before


def test_a_record_without_a_later_field_is_restored_with_its_default() -> None:
    """Even if the benchmark now has another value: the run had the default."""
    assert PUBMED.schedule.weight_decay != 0
    (plain,) = grid(PUBMED.settings, ["weight_decay=0", "max_rounds=3"])
    stored = as_stored(plain)
    assert "weight_decay" not in stored["schedule"]
    assert restored(PUBMED.settings, stored) == plain
    assert restored(PUBMED.settings, as_dict(plain)) == plain


@every_benchmark
@pytest.mark.parametrize("as_plain", [as_dict, as_stored])
@pytest.mark.parametrize("published", [True, False])
def test_settings_are_restored_from_their_plain_values(benchmark, as_plain, published) -> None:
    settings = as_published(benchmark.settings) if published else benchmark.settings
    stored = json.loads(json.dumps(as_plain(settings)))
    assert restored(benchmark.settings, stored) == settings


def test_a_renamed_field_is_stored_under_its_old_name() -> None:
    entrance = Entrance(Door(handle="steel", locks=(3, 5), finish="wax"))
    stored = as_stored(entrance)
    assert stored == {
        "door": {"width": 90, "knob": "steel", "bolts": [3, 5], "polish": "wax", "squeaks": False},
        "steps": 2,
    }
    assert restored(Entrance(), json.loads(json.dumps(stored))) == entrance
    assert "door.handle" in paths(entrance)
    assert restored(Entrance(), as_dict(entrance)) == entrance  # under its new name as well


def test_a_departure_may_have_an_old_name_too() -> None:
    [mark] = departures(Entrance())
    assert (mark.path, mark.number, mark.published) == ("door.finish", "D4", "wax")
    assert as_stored(as_published(Entrance()))["door"]["polish"] == "wax"


def test_a_retired_field_is_stored_with_its_only_value_and_can_have_no_other() -> None:
    stored = as_stored(Entrance())
    assert stored["door"]["squeaks"] is False
    assert "squeaks" not in as_dict(Entrance())["door"]
    assert restored(Entrance(), stored) == Entrance()
    stored["door"]["squeaks"] = True
    message = "^Door no longer has the setting squeaks; squeaks=true can't be restored$"
    with pytest.raises(ValueError, match=message):
        restored(Entrance(), stored)


def test_a_setting_that_was_never_known_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Entrance has no setting 'porch'"):
        restored(Entrance(), {"porch": 1})


NODE_BENCHMARKS = [each for each in BENCHMARKS.values() if isinstance(each.task, NodeTask)]


@pytest.mark.parametrize("benchmark", [*NODE_BENCHMARKS, OWN_GRAPH], ids=lambda each: each.name)
def test_node_benchmarks_store_the_names_looked_at_and_made(benchmark) -> None:
    """The keys of their records depend on both."""
    assert NODE_BENCHMARKS
    stored = benchmark.stored_settings()
    assert stored["task"]["looked_at"] == list(benchmark.task.eval_neighbours)
    assert "eval_neighbours" not in stored["task"]
    assert "task.eval_neighbours" in paths(benchmark.settings)
    if benchmark is OWN_GRAPH:  # it never had the setting
        assert "made" not in stored["data"]
        return
    assert stored["data"]["made"] is False
    assert "data.made" not in paths(benchmark.settings)
    stored.pop("revision")
    assert restored(benchmark.settings, stored) == benchmark.settings
    stored["data"]["made"] = True
    with pytest.raises(ValueError, match=r"no longer has the setting made; made=true can't be"):
        restored(benchmark.settings, stored)


def test_sampled_evaluation_is_restored_from_its_old_name() -> None:
    (sampled,) = grid(OGBN_MAG.settings, ["eval_neighbours=7,8"])
    stored = json.loads(json.dumps(as_stored(sampled)))
    assert stored["task"]["looked_at"] == [7, 8]
    assert restored(OGBN_MAG.settings, stored) == sampled


# Settings of benchmarks


def test_tuned_settings_apply_to_their_mechanism_only() -> None:
    tuned = replace(PUBMED, tuned={"gat": {"heads": 4, "schedule.lr": 0.02}})
    assert (tuned.base("gat").network.heads, tuned.base("gat").schedule.lr) == (4, 0.02)
    assert tuned.base("gatv2") == tuned.settings == PUBMED.settings


def test_numbers_of_neighbours_must_fit_the_number_of_layers() -> None:
    message = r"^neighbours must hold a number for each of 3 layers, but is 10,10$"
    with pytest.raises(ValueError, match=message):
        grid(OGBN_MAG.settings, ["layers=3"])
    (deeper,) = grid(OGBN_MAG.settings, ["layers=3", "neighbours=5,5,5"])
    assert deeper.network.layers == 3
    message = r"^eval_neighbours must hold a number for each of 6 layers, but is 60$"
    with pytest.raises(ValueError, match=message):
        grid(OGBN_PROTEINS.settings, ["eval_neighbours=60"])
    with pytest.raises(ValueError, match=r"for each of 2 layers, but is 5$"):
        grid(PUBMED.settings, ["neighbours=5"])  # its `layers` counts hidden ones only


@pytest.mark.parametrize("benchmark", [OGBN_MAG, OGBN_PRODUCTS, OGBN_PROTEINS],
                         ids=lambda each: each.name)  # fmt: skip
def test_the_grid_of_a_sampled_benchmark_has_all_depths_of_the_paper(benchmark) -> None:
    tuning = Tuning(benchmark, "gat", choices_of(benchmark, []), (0,))
    points, _ = tuning.points()
    assert {point["network.layers"] for point in points} == {2, 3, 6}
    assert len(points) == 3 * 3 * 4
