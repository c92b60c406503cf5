"""Cutting: which operators become a task, what tasks say of themselves, and that nothing is lost."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import dwconv.call.torch_ops  # noqa: F401  # registers them
from dwconv.concurrency.engine import Engine
from dwconv.concurrency.lanes import one_at_a_time
from dwconv.concurrency.operator_groups import is_free, keeps_order, kind_of
from dwconv.concurrency.split_gradients import split
from dwconv.concurrency.tasks import cut, digest_of
from dwconv.errors import CannotBeCut
from tests.traced_graphs import branches, branches_inputs, cells, chain, dealt, drops, noting_what_is_held, traced

pytestmark = pytest.mark.usefixtures("one_thread")
CELL_INPUTS = [torch.randn(5, 3, 4), torch.randn(24, 4), torch.randn(24, 6)]


def equal(found, expected):
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


@pytest.mark.parametrize("function, inputs", [(branches, branches_inputs()), (cells, CELL_INPUTS)])
def test_every_operator_is_in_one_task_and_results_are_the_same(function, inputs):
    graph = traced(function, inputs)
    found = cut(graph)
    called = [node for node in graph.graph.nodes if node.op == "call_function"]
    assert sorted(node.name for nodes in found.nodes for node in nodes) == sorted(node.name for node in called)
    for task in found.graph.tasks:
        assert all(needed < task.index for needed in task.needs)
    engine = Engine(found, one_at_a_time(found, threads=1))
    assert equal(engine.run([*inputs]), function(*inputs))


def test_small_operators_are_joined_and_branches_stay_apart():
    few = cut(traced(cells, CELL_INPUTS))
    assert len(few.graph.tasks) < sum(not is_free(node) for nodes in few.nodes for node in nodes) / 4
    x = torch.randn(8, 64, 56, 56)
    weights = [torch.randn(64, 64, 3, 3) for _ in range(3)]

    def fork(x, *weights):
        return [torch.cat([F.conv2d(x, weight, padding=1).relu() for weight in weights], 1)]

    found = cut(traced(fork, [x, *weights]))
    large = [task for task in found.graph.tasks if task.kind == "aten.convolution"]
    assert [task.needs for task in large] == [(), (), ()]
    assert len(found.graph.tasks) == 7  # large operators that follow each other stay apart: relu is one here
    assert len({task.signature for task in large}) == 1
    assert [task.flops for task in large] == [2 * 8 * 64 * 64 * 9 * 56 * 56] * 3
    assert all(task.bytes >= 8 * 64 * 56 * 56 * 4 for task in large)


def test_random_operators_keep_their_order():
    x = torch.randn(512, 512)
    found = cut(traced(drops, [x]))
    drawing = [
        index
        for index, nodes in enumerate(found.nodes)
        if any(kind_of(node) in ("aten.native_dropout", "aten.rand_like", "aten.bernoulli") for node in nodes)
    ]
    torch.manual_seed(3)
    expected = drops(x)
    for seed in range(8):
        torch.manual_seed(3)
        assert equal(Engine(found, dealt(found, workers=3, seed=seed)).run([x]), expected)
    assert len(drawing) == 3
    for before, after in itertools.pairwise(drawing):
        assert before in found.graph.tasks[after].needs


def test_operators_of_others_keep_their_order_too():
    """They may draw random numbers, or count."""

    @torch.library.custom_op("dwconv_tests::noisy", mutates_args=())
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(x.shape)

    noisy.register_fake(lambda x: torch.empty_like(x))
    x = torch.ones(512, 512)
    found = cut(traced(lambda x: [noisy(x.sin()) @ x, torch.rand_like(x) @ x, noisy(x.cos()) @ x], [x]))
    drawing = [
        index
        for index, nodes in enumerate(found.nodes)
        if any(kind_of(node) in ("dwconv_tests.noisy", "aten.rand_like") for node in nodes)
    ]
    assert len(drawing) == 3
    for before, after in itertools.pairwise(drawing):
        assert before in found.graph.tasks[after].needs


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch was built without torch.distributed")
def test_collectives_keep_their_order():
    """All processes have to call them in the same order, what waits for them too."""
    names = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast", "all_to_all_single")
    for name in (*names, "wait_tensor"):
        graph = torch.fx.Graph()
        operator = getattr(torch.ops._c10d_functional, name).default
        assert keeps_order(graph.call_function(operator, (graph.placeholder("x"),))), name


def test_equal_graphs_have_one_name():
    inputs = branches_inputs()
    name = digest_of(traced(branches, inputs))
    assert name == digest_of(traced(branches, inputs))
    assert name != digest_of(traced(branches, [inputs[0][:1], *inputs[1:]]))
    assert name != digest_of(traced(branches, [inputs[0].to(memory_format=torch.channels_last), *inputs[1:]]))


def test_views_of_one_result_are_held_once():
    x = torch.randn(256, 1024)

    def parts(x):
        left, right = (x @ x.t()).chunk(2, 1)
        return [left.t() @ left, right.t() @ right]

    found = cut(traced(parts, [x]))
    assert len(found.graph.tasks) == 3
    (held,) = [each for each in found.held if each.made_by == 0]
    assert held.read_by == (1, 2) and not held.returned and held.bytes == 256 * 256 * 4


def test_what_the_user_holds_is_not_counted():
    x = torch.randn(256, 256)
    graph = traced(lambda x: [(x @ x) @ x], [x])
    assert any(each.made_by is None for each in cut(graph).held)
    (given,) = [node for node in graph.graph.nodes if node.op == "placeholder"]
    given._rename("primals_1")  # as AOTAutograd calls it
    assert not any(each.made_by is None for each in cut(graph).held)


def test_values_are_let_go_once_the_last_task_has_read_them():
    x = torch.randn(512, 512)
    watched, held = noting_what_is_held(cut(traced(chain, [x])))
    for schedule in (one_at_a_time(watched, threads=1), dealt(watched, workers=2)):
        held.clear()
        Engine(watched, schedule).run([x])
        assert len(held) >= 12 and max(held) <= 6


def test_inputs_are_emptied_and_results_that_others_read_stay():
    x = torch.randn(512, 512)

    def returns(x):
        both = x @ x
        return [both, both @ x, x @ both, x]

    found = cut(traced(returns, [x]))
    assert len(found.graph.tasks) == 3
    for schedule in (one_at_a_time(found, threads=1), dealt(found, workers=3)):
        inputs = [x]
        assert equal(Engine(found, schedule).run(inputs), returns(x))
        assert inputs == [], "the caller would hold on to what the tasks have read"


def test_what_cannot_be_cut_is_named():
    x = torch.randn(3)

    def writes(x):
        torch.ops.aten.add_.Tensor(x, 1)
        return [x + 1]

    with pytest.raises(CannotBeCut, match=r"operator aten.add_.Tensor writes"):
        cut(traced(writes, [x]))

    def sets_the_state(state, x):
        return [torch.ops.higher_order.run_with_rng_state(state, torch.ops.aten.rand_like.default, x)]

    with pytest.raises(CannotBeCut, match="run_with_rng_state is a higher-order operator"):
        cut(make_fx(sets_the_state)(torch.get_rng_state(), x))

    with pytest.raises(CannotBeCut, match="sizes that change"):
        cut(make_fx(lambda x: [x * 2], tracing_mode="symbolic")(torch.randn(4, 5)))


def check_gradients_are_apart(function, inputs, kinds):
    """Of each convolution, in two tasks that do not need each other, with the same results."""
    apart = cut(split(traced(function, inputs)))
    owner = {node: index for index, nodes in enumerate(apart.nodes) for node in nodes if kind_of(node) in kinds}
    assert sorted(map(kind_of, owner)) == sorted(kinds)
    tasks_of_dy = {}
    for node, index in owner.items():
        dy = node.args[1 if kind_of(node) == "dwconv.wgrad" else 0]
        tasks_of_dy.setdefault(dy, []).append(apart.graph.tasks[index])
    for one, other in tasks_of_dy.values():
        assert one.index != other.index and one.index not in other.needs and other.index not in one.needs
    found = Engine(apart, one_at_a_time(apart, threads=1)).run([*inputs])
    torch.testing.assert_close(found, function(*inputs))


def test_both_gradients_of_a_convolution_are_cut_apart():
    check_gradients_are_apart(branches, branches_inputs(), ["aten.convolution_backward"] * 6)


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op. .*tune them")
def test_so_are_those_of_dwconv():
    def gradients(x, dy, w):
        with torch.no_grad():  # else it is made of two
            dx, dw = torch.ops.dwconv.backward(x, dy, w, (1, 2), (1, 0, 2, 1), (1, 1), "nhwc")
        return [dw * 2, dx.relu()]

    inputs = [torch.randn(2, 8, 9, 7), torch.randn(2, 8, 8, 4), torch.randn(8, 1, 3, 3)]
    check_gradients_are_apart(gradients, inputs, ["dwconv.dgrad", "dwconv.wgrad"])
