"""Clusters of Ray on one machine: nodes that come and go, and work at the same time."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from dwconv.problems.layer_files import read_layers, shipped_layers
from dwconv.problems.workload import PASSES
from dwconv.records.log import TuningLog
from dwconv.schedules import template as template_module
from dwconv.tuner.cluster import driver
from dwconv.tuner.cluster.node import Setup
from dwconv.tuner.user_choices import UserChoices
from tests import fake_tuning as fake

ray = pytest.importorskip("ray", reason="tuning on a cluster needs Ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

from dwconv.tuner.cluster.on_ray import RayCluster, reason_of, share_of_cores  # noqa: E402
from tests.tune_command import SHAPE, error_of  # noqa: E402
from tests.tuner.sleeping_workers import NODES, TEMPLATES, TRIALS, AbreastWorker  # noqa: E402

SLEEPING, ABREAST = (f"tests.tuner.sleeping_workers:{name}" for name in ("SleepingWorker", "AbreastWorker"))


@pytest.fixture(scope="module")
def cluster():
    """A head without cores, and two nodes, of which the last test kills one."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = cluster_utils.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        for _ in range(NODES):
            cluster.add_node(num_cpus=1)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def begun(monkeypatch, logs):
    """How many passes began on each node."""
    monkeypatch.setattr(template_module, "all_templates", lambda: TEMPLATES)
    counts = Counter()
    say = driver._Driver._say

    def said(self, node, words, workload=None, *, done=""):
        counts[node.name] += not done and words == "starting"
        say(self, node, words, workload, done=done)

    monkeypatch.setattr(driver._Driver, "_say", said)
    return counts


def passes_of(network, *, batch):
    layers = read_layers(shipped_layers(), network=network)
    usual = {"dtype": "float32", "layout": "nhwc", "bias": False}
    return {layer.workload(pass_, batch=batch, **usual): layer.count for layer in layers for pass_ in PASSES}


def tune(address, counts, *, worker):
    setup = Setup(target="cpu", fast_math=False, choices=UserChoices(trials=TRIALS))
    with RayCluster(address, kind="cpu", worker=worker) as nodes:
        return driver.tune_on(nodes, counts, setup, network=True)


def test_devices_of_one_machine_share_its_cores():
    shares = [share_of_cores({1, 3, 5, 7}, position=position, count=2) for position in range(3)]
    assert shares == [{1, 3}, {5, 7}, {1, 3, 5, 7}]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "ray=127.0.0.1:1: nothing answers there: ConnectionRefusedError: "),
        ("127.0.0.1:99999", "ray=127.0.0.1:99999: nothing answers there: "),
        ("nowhere", "ray=nowhere is not an address such as 10.0.0.1:6379"),
    ],
)
def test_an_address_without_an_answer_is_one_clear_line(capsys, address, words):
    assert words in error_of(capsys, *SHAPE, "--ray", address)


def test_the_reason_of_a_lost_node_is_the_line_that_says_most():
    made = "The actor died because of an error raised in its creation task, \x1b[36mray::Actor()\x1b[39m\n  File x\n"
    assert reason_of(Exception(f"{made}ModuleNotFoundError: No module named 'dwconv'")).startswith("ModuleNotFound")
    assert reason_of(Exception("The actor died unexpectedly before finishing this task.\n\tclass_name: Actor\n")) == (
        "The actor died unexpectedly before finishing this task."
    )


@pytest.mark.slow
def test_two_nodes_work_at_the_same_time(cluster, begun, logs):
    """All the time: a pass of one is measured beside a pass of the other."""
    each = AbreastWorker.beside_others
    counts = dict(list(passes_of("MobileNetV3-L@224", batch=8).items())[: NODES * each])
    tuned = tune(cluster.address, counts, worker=ABREAST)
    assert tuned.left == 0 and len(tuned.outcomes) == len(counts) == NODES * each
    assert [*begun.values()] == [each] * NODES and not tuned.lost


@pytest.mark.slow
def test_a_node_is_killed_while_it_measures(cluster, begun, logs, capsys):
    nodes = list(cluster.worker_nodes)
    counts = dict(list(passes_of("MobileNetV3-L@224", batch=8).items())[:8])

    def kill_one_of_them():
        path = logs / f"{fake.TARGET.device}.jsonl"
        while not path.exists() or len(TuningLog(path).load().records) < TRIALS + 2:
            time.sleep(0.05)
        cluster.remove_node(nodes[0], allow_graceful=False)

    killer = threading.Thread(target=kill_one_of_them)
    killer.start()
    tuned = tune(cluster.address, counts, worker=SLEEPING)
    killer.join()
    err = capsys.readouterr().err
    assert err.count(" is lost: ") == 1 and err.count(" goes to another node") == 1
    assert len(+begun) == NODES, "both have measured"
    assert tuned.left == 0 and not tuned.lost
    assert {outcome.workload for outcome in tuned.outcomes} == set(counts)
    records = TuningLog(logs / f"{fake.TARGET.device}.jsonl").load()
    assert records.damaged == 0
    confirmed = [record.workload for record in records.records if record.confirmed]
    assert set(confirmed) == set(counts)
    trials = [(record.workload, record.config) for record in records.records if not record.confirmed]
    assert len(trials) == len(set(trials)), "what was on disk when the node was killed was not measured again"
