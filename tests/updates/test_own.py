"""A codec and a rule of the user's own, found by their names."""

import pytest

from fedge.core.update import Codec, Rule
from fedge.errors import ConfigError
from fedge.updates.codecs import codec_of
from fedge.updates.rules import rule_of

HERE = __name__


def halves():
    return Codec("halves", lambda key, u: {p: w / 2 for p, w in u.items()}, lambda m, u: m)


def first():
    return Rule("first", lambda shares, models, began: {path: w[0] for path, w in models.items()})


def test_ones_own_are_found():
    assert codec_of(f"{HERE}:halves").name == "halves"
    assert rule_of(f"{HERE}:first").name == "first"


def test_what_is_not_one_is_refused():
    with pytest.raises(ConfigError, match=rf"^uplink={HERE}:first returned a Rule; let it return a .*\.Codec$"):
        codec_of(f"{HERE}:first", "uplink")
    with pytest.raises(ConfigError, match=r"edge_rule=nowhere\.at_all:rule: there is no module nowhere"):
        rule_of("nowhere.at_all:rule", "edge_rule")


@pytest.mark.parametrize(("find", "name"), [(codec_of, "topk:much"), (rule_of, "trimmed:half"), (rule_of, "krum:one")])
def test_a_word_where_a_number_belongs_is_not_looked_for_as_a_module(find, name):
    with pytest.raises(ConfigError, match=f"={name} is no (codec|rule); allowed: "):
        find(name)
