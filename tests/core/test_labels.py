"""Labels of keys and names of creators: what is accepted, and in which order."""

from typing import Any

import pytest

from lockgate.core.labels import check_creator, read_labels


def test_labels_are_kept_in_the_order_of_their_names_with_trimmed_values() -> None:
    assert read_labels({"team": " ci ", "env": "prod=eu"}) == (
        (("env", "prod=eu"), ("team", "ci")),
        [],
    )
    assert read_labels({}) == ((), [])


@pytest.mark.parametrize(
    "name", ["", " team", "-team", "te am", "t=m", "t\u00e9", "x" * 64, "team\n"]
)
def test_a_wrong_name_is_named(name: str) -> None:
    kept, (problem,) = read_labels({name: "x"})
    assert kept == ()
    assert "no name of a label" in problem


def test_labels_that_are_no_mapping_are_told() -> None:
    wrong: Any = "team=ci"
    assert read_labels(wrong)[1] == [
        "Write each label as its name and its value, as in {'team': 'search'}."
    ]


@pytest.mark.parametrize("value", ["", " ", "x" * 101, "a\nb", "a\u200bb", "a\u202eb"])
def test_a_wrong_value_is_told_by_its_name_and_not_repeated(value: str) -> None:
    _, (problem,) = read_labels({"team": value})
    assert problem.startswith("The value of team: Use ")


def test_a_key_has_at_most_16_labels() -> None:
    labels = {f"label{n}": "x" for n in range(17)}
    assert read_labels(labels) == ((), ["Give at most 16 labels."])
    labels.popitem()
    assert len(read_labels(labels)[0]) == 16


def test_a_creator_is_a_text_of_1_to_300_characters() -> None:
    assert check_creator(None) == check_creator("user:\U0001f511") == check_creator("x" * 300) == []
    assert check_creator("") == check_creator("x" * 301) == ["Use 1 to 300 characters."]
