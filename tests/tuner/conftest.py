"""A search over one fake template, on a machine whose other work is planted."""

from types import SimpleNamespace

import pytest

from dwconv.records.log import TuningLog
from dwconv.schedules import template as template_module
from dwconv.tuner.search import search_state
from tests import fake_tuning as fake


@pytest.fixture
def others(monkeypatch):
    """The other work that the tuner sees: ``looks`` of it, 0 where there are no more; and how long it waited."""
    seen = SimpleNamespace(looks=[], waits_s=[])

    class PlantedQuiet:
        def __init__(self, *, threads):
            self.busy = 0.0

        def look(self):
            self.busy = seen.looks.pop(0) if seen.looks else 0.0
            return self.busy == 0.0

        def wait(self, *, timeout_s):
            seen.waits_s.append(timeout_s)
            return self.look()

    monkeypatch.setattr(search_state, "Quiet", PlantedQuiet)
    return seen


@pytest.fixture
def log(tmp_path, monkeypatch, others):
    """An empty log, for searches over the fake template."""
    monkeypatch.setattr(template_module, "all_templates", lambda: {"fake.fprop": fake.template()})
    return TuningLog(tmp_path / "log.jsonl")
