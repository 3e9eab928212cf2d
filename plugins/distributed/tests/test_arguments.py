"""Arguments of collectives that do not fit are refused by an error of PyTorch's classes."""

import pytest

import tangrad
import tangrad.distributed as dist

ones = tangrad.ones

WRONG = {
    "a source beyond the world": lambda: dist.broadcast(ones(3), 5),
    "a source below it": lambda: dist.broadcast(ones(3), -1),
    "a destination": lambda: dist.reduce(ones(3), 5),
    "too many to scatter": lambda: dist.scatter(ones(3), [ones(3), ones(3)]),
    "too many to gather": lambda: dist.gather(ones(3), [ones(3), ones(3)]),
    "outputs of all_gather": lambda: dist.all_gather([ones(3), ones(3)], ones(3)),
    "sizes of all_gather": lambda: dist.all_gather([ones(2)], ones(3)),
    "rows of all_gather": lambda: dist.all_gather_into_tensor(ones(7), ones(3)),
    "rows of reduce_scatter": lambda: dist.reduce_scatter_tensor(ones(2), ones(3)),
    "splits": lambda: dist.all_to_all_single(ones(3), ones(3), [2], [3]),
    "the number of splits": lambda: dist.all_to_all_single(ones(3), ones(3), [2, 1], [3]),
    "bits of floats": lambda: dist.all_reduce(ones(3), dist.ReduceOp.BOR),
    "a mean of integers": lambda: dist.all_reduce(tangrad.tensor([1]), dist.ReduceOp.AVG),
    "a source of objects": lambda: dist.broadcast_object_list([1], 5),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
def test_what_does_not_fit_is_an_error_of_value_and_of_running(wrong, kind):
    def work(rank):
        with pytest.raises(kind):
            WRONG[wrong]()
        with pytest.raises(dist.CollectiveArgumentError):
            WRONG[wrong]()

    dist.run_threads(work, 1)


def test_a_mesh_has_its_ranks_as_pytorch_has_them():
    def work(rank):
        mesh = dist.init_device_mesh("cpu", (1, 2), mesh_dim_names=("rows", "columns"))
        assert mesh.mesh.dtype == mesh["columns"].mesh.dtype == tangrad.int32
        assert dist.DeviceMesh("cpu", [0, 1]).mesh.dtype == tangrad.int32
        return mesh.get_coordinate()

    assert dist.run_threads(work, 2) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("later", [False, True])
def test_messages_begun_in_a_block_are_waited_for_at_once(later):
    def work(rank):
        mine, found = tangrad.full((3,), float(rank)), tangrad.zeros(3)
        total = tangrad.ones(2)
        with dist._coalescing_manager(async_ops=later) as block:
            dist.isend(mine, 1 - rank)
            dist.irecv(found, 1 - rank)
            dist.all_reduce(total)
        if later:
            assert len(block.works) == 2
            block.wait()
        return found.tolist(), total.tolist()

    assert dist.run_threads(work, 2) == [([1.0] * 3, [2.0] * 2), ([0.0] * 3, [2.0] * 2)]


def test_a_file_tells_that_a_key_was_there(tmp_path):
    one, other = (dist.FileStore(str(tmp_path / "keys"), 2) for _ in range(2))
    one.set("key", "value")
    one.add("count", 1)
    assert other.delete_key("key")
    assert other.delete_key("count")
    assert not one.delete_key("key")
