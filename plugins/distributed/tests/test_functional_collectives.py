"""Collectives that return new tensors."""

import pytest

import tangrad
import tangrad.distributed as dist
import tangrad.distributed._functional_collectives as functional


def run(work, ranks=2):
    return dist.run_threads(work, ranks)


def rows(rank):
    return tangrad.arange(4.0).reshape(2, 2) + 10 * rank


def test_they_return_what_the_collectives_write_and_leave_their_input():
    def work(rank):
        group, x = dist.group.WORLD, rows(rank)
        made = [
            functional.all_reduce(x, "sum", group),
            functional.broadcast(x, 1, group),
            functional.all_gather_tensor(x, 1, group),
            functional.reduce_scatter_tensor(x, "max", 1, group),
            functional.all_to_all_single(x, None, None, group),
            functional.permute_tensor(x, [1, 0], group),
        ]
        assert tangrad.equal(x, rows(rank))
        assert not any(isinstance(one, functional.AsyncCollectiveTensor) for one in made)
        return [functional.wait_tensor(one).tolist() for one in made]

    first, second = run(work)
    assert first[0] == second[0] == [[10.0, 12.0], [14.0, 16.0]]
    assert first[1] == second[1] == rows(1).tolist()
    assert first[2] == second[2] == [[0.0, 1.0, 10.0, 11.0], [2.0, 3.0, 12.0, 13.0]]
    assert (first[3], second[3]) == ([[10.0], [12.0]], [[11.0], [13.0]])
    assert (first[4], second[4]) == ([[0.0, 1.0], [10.0, 11.0]], [[2.0, 3.0], [12.0, 13.0]])
    assert (first[5], second[5]) == (rows(1).tolist(), rows(0).tolist())


def test_several_tensors_go_at_once():
    def work(rank):
        group, listed = [0, 1], [rows(rank), rows(rank)[0]]
        return [
            [one.tolist() for one in functional.all_reduce_coalesced(listed, "avg", group)],
            [one.shape[0] for one in functional.all_gather_into_tensor_coalesced(listed, group)],
            [
                one.shape[0]
                for one in functional.reduce_scatter_tensor_coalesced(listed, "sum", [0, 0], group)
            ],
        ]

    assert run(work) == [[[[[5.0, 6.0], [7.0, 8.0]], [5.0, 6.0]], [4, 4], [1, 1]]] * 2


def test_gradients_flow_through_those_that_say_so():
    def work(rank):
        mesh = dist.init_device_mesh("cpu", (2,))
        x = rows(rank).requires_grad_()
        gathered = functional.all_gather_tensor_autograd(x, 0, mesh)
        part = functional.reduce_scatter_tensor_autograd(x, "sum", 0, (mesh, 0))
        moved = functional.all_to_all_single_autograd(x, [1, 1], [1, 1], mesh)
        (gathered.sum() + 10 * part.sum() + 100 * moved.sum()).backward()
        assert not functional.all_gather_tensor(x, 0, mesh).requires_grad
        return x.grad.tolist()

    assert run(work) == [[[112.0, 112.0], [112.0, 112.0]]] * 2


def test_what_names_no_group_or_reduction_is_refused():
    def work(rank):
        with pytest.raises(TypeError, match="got int"):
            functional.all_reduce(tangrad.ones(1), "sum", 3)
        with pytest.raises(ValueError, match="are not all ranks"):
            functional.all_reduce(tangrad.ones(1), "sum", [0, 1])
        with pytest.raises(ValueError, match="no reduction is named 'middle'"):
            functional.all_reduce(tangrad.ones(1), "middle", [0])

    run(work, 1)
    with pytest.raises(RuntimeError, match="cannot be cut into 2 parts"):
        run(lambda rank: functional.reduce_scatter_tensor(tangrad.ones(3), "sum", 0, [0, 1]))
