"""Every kernel of the catalogue of wrong ones is found before it is confirmed, but for those that are not worth it."""

from functools import lru_cache

import pytest
import torch

from dwconv.measure.verify.cases import batches_of_finalists, cases_of_finalists, fresh_case, make_case
from dwconv.measure.verify.verify import verify, verify_finalist
from dwconv.problems.reference import repeated
from tests.measure.planted_catalogue import HOW, OF_WGRAD, WHEN, planted
from tests.measure.planted_kernels import workload
from tests.turns import slow

NOT_FOUND = {
    *(f"at batch {n}" for n in (9, 17, 1017)),
    "on 17 threads",
    "on more than 8 threads and images",
    *(f"{name} starts 48 after a cache line" for name in "xwy"),
    "in every 1000th run",
    "-0 lost",
}
"""One batch size or number of threads among many; a start that no vector load tells from 16; what timing finds at best;
and a sign that PyTorch's own op loses."""
FOUND = [fault for fault in (*WHEN, *HOW, *OF_WGRAD) if fault not in NOT_FOUND]
QUICK = FOUND[::6]


@lru_cache
def cases(of):
    return make_case(of, data="integers"), cases_of_finalists(of, device="cpu"), fresh_case(of, device="cpu")


def found(fault):
    """How; None if it is not."""
    kernel = planted(fault)
    first, finalists, fresh = cases(kernel.workload)
    try:
        for judge, data in ((verify, first), (verify_finalist, finalists), (verify, fresh)):
            if not (verdict := judge(kernel, data)).right:
                return verdict.reason
    finally:
        torch.set_flush_denormal(False)
    return None


@pytest.mark.parametrize("fault", [slow(fault) if fault not in QUICK else fault for fault in FOUND])
def test_it_is_found(fault):
    with torch.inference_mode():
        assert found(fault)


def test_a_right_kernel_has_no_blind_spot():
    assert found("none") is None


def test_what_is_not_found_is_known():
    """So that this list, and what the documentation says, stay true."""
    with torch.inference_mode():
        assert {fault for fault in NOT_FOUND if found(fault) is None} == NOT_FOUND


@pytest.mark.parametrize(("images", "periods"), [(3, range(1, 5)), (8, range(1, 33))])
def test_no_image_can_be_taken_for_another(images, periods):
    for batch in (9, 13, 33):
        order = repeated(batch, images)
        assert set(order.tolist()) == set(range(images)) and order[-1] != order[-2]
        for period in periods[: batch - 1]:
            assert not torch.equal(order, order[torch.arange(batch) % period]), (batch, period)


@pytest.mark.parametrize(
    ("of", "few", "many"),
    [
        ({"batch": 8}, [3, 5, 6, 8, 4, 7, 9], 33),
        ({"batch": 1}, [3, 5, 6, 8, 4, 7, 2], 33),
        ({"batch": 33}, [3, 5, 6, 8, 4, 7, 34], 35),
        ({"batch": 8, "channels": 64, "input_size": (112, 112), "kernel": (3, 3)}, [3], 9),
        ({"batch": 8, "channels": 16, "input_size": (112, 112), "kernel": (3, 3)}, [3, 5, 6], 9),
    ],
)
def test_batch_sizes_follow_the_size_of_images(of, few, many):
    first, largest, *others = batches_of_finalists(workload(**of))
    assert ([first, *others], largest) == (few, many)
