"""What is said before a long wait, and what needs an object from Python."""

import pytest

from fedge.errors import ConfigError
from fedge.experiment import build
from fedge.experiment.config import Config
from tests.helpers import small, toy


def test_many_clients_are_announced(monkeypatch, caplog):
    small(clients=9)
    assert caplog.text == ""
    monkeypatch.setattr(build, "MANY", 8)
    caplog.set_level("INFO", "fedge")
    small(clients=9)
    assert "dealing custom to 9 clients" in caplog.text


@pytest.mark.parametrize("key", ["data", "model", "optimizer"])
def test_custom_means_an_object(key):
    with pytest.raises(ConfigError, match=f"{key}=custom means an object passed in from Python; pass it"):
        build.experiment(Config.of({"algorithm": "fedavg", key: "custom"}), None if key == "data" else toy())
