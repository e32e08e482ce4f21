"""What is said before a long wait."""

from fedge.experiment import build
from tests.helpers import small


def test_many_clients_are_announced(monkeypatch, caplog):
    small(clients=9)
    assert caplog.text == ""
    monkeypatch.setattr(build, "MANY", 8)
    caplog.set_level("INFO", "fedge")
    small(clients=9)
    assert "dealing custom to 9 clients" in caplog.text
