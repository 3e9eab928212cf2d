"""Data parallelism: what ranks have alike, which gradients are means, and what is told."""

import copy
import io
import warnings

import pytest

import tangrad
import tangrad.distributed as dist
from tangrad import nn
from tangrad.nn.parallel import DistributedDataParallel
from tangrad.utils.checkpoint import checkpoint

RANKS = 2
UNFINISHED = "Expected to have finished reduction in the prior iteration"


class TwoHeads(nn.Module):
    """A body and two heads, all of whose parameters hold one number."""

    def __init__(self, number=1.0):
        super().__init__()
        self.body, self.left, self.right = (nn.Linear(1, 1, bias=False) for _ in range(3))
        for parameter in self.parameters():
            nn.init.constant_(parameter, number)

    def forward(self, x):
        x = self.body(x)
        return self.left(x), self.right(x)


def one(value):
    return tangrad.full((1, 1), float(value))


def gradients(model):
    return [p.grad if p.grad is None else p.grad.item() for p in model.parameters()]


def test_ranks_begin_with_everything_of_the_first_rank():
    def work(rank):
        module = TwoHeads(rank)
        module.body.requires_grad_(False)
        module.whole = nn.Parameter(tangrad.tensor([rank, 7]), requires_grad=False)
        module.flags = nn.Parameter(tangrad.tensor([rank == 0]), requires_grad=False)
        module.right.weight = module.left.weight
        module.register_buffer("count", tangrad.tensor(rank))
        DistributedDataParallel(module)
        return [value.tolist() for value in module.state_dict().values()]

    first, second = dist.run_threads(work, RANKS)
    assert first == second == [[0, 7], [True], 0, [[0.0]], [[0.0]], [[0.0]]]


def test_what_is_to_be_ignored_stays_each_ranks_own():
    def work(rank):
        module = TwoHeads(rank)
        module.register_buffer("own", tangrad.tensor(rank))
        ignored = ["left.weight", "own"]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ignored)
        model = DistributedDataParallel(module)
        left, right = model(one(rank + 1))
        (left + right).sum().backward()
        kept = [name for name, _ in model._get_data_parallel_params(module, named_params=True)]
        assert kept == ["body.weight", "right.weight"]
        return module.left.weight.item(), module.own.item(), module.left.weight.grad.item()

    assert dist.run_threads(work, RANKS) == [(0.0, 0, 0.0), (1.0, 1, 0.0)]


@pytest.mark.parametrize("size", [25, 0.000001])
@pytest.mark.parametrize("views", [False, True])
def test_a_parameter_without_a_gradient_is_told_in_the_next_forward(size, views):
    def work(rank):
        model = DistributedDataParallel(
            TwoHeads(), bucket_cap_mb=size, gradient_as_bucket_view=views
        )
        model(one(1))[0].sum().backward()
        with pytest.raises(RuntimeError, match=UNFINISHED) as told:
            model(one(1))
        assert f"did not receive grad for rank {rank}: right.weight" in str(told.value)
        assert f"Parameter indices which did not receive grad for rank {rank}: 2" in str(told.value)
        with pytest.raises(RuntimeError, match="find_unused_parameters=True"):
            model._check_reducer_finalized()
        with tangrad.no_grad():
            assert model(one(3))[0].item() == 3.0

    dist.run_threads(work, RANKS)


def test_a_parameter_that_is_frozen_after_wrapping_is_told():
    def work(rank):
        model = DistributedDataParallel(TwoHeads())
        model.module.left.requires_grad_(False)
        sum(model(one(1))).sum().backward()
        with pytest.raises(RuntimeError, match=f"{UNFINISHED}.*\n.*left.weight"):
            model(one(1))

    dist.run_threads(work, RANKS)


def test_backward_passes_that_reach_all_parameters_together_finish_one_step():
    def work(rank):
        model = DistributedDataParallel(TwoHeads())
        left, right = model(one(rank + 1))
        left.sum().backward(inputs=[model.module.left.weight])
        right.sum().backward()
        model(one(1))
        return gradients(model)

    assert dist.run_threads(work, RANKS) == [[1.5, 1.5, 1.5]] * 2


def test_backward_with_inputs_averages_their_gradients():
    def work(rank):
        model = DistributedDataParallel(TwoHeads())
        sum(model(one(rank + 1))).sum().backward(inputs=list(model.parameters()))
        return gradients(model)

    assert dist.run_threads(work, RANKS) == [[3.0, 1.5, 1.5]] * 2


@pytest.mark.parametrize("views", [False, True])
def test_gradients_of_before_outlive_a_step_that_leaves_their_parameter_out(views):
    def work(rank):
        model = DistributedDataParallel(
            TwoHeads(), find_unused_parameters=True, gradient_as_bucket_view=views
        )
        sum(model(one(rank + 1))).sum().backward()
        model(one(rank + 1))[0].sum().backward()
        return gradients(model)

    assert dist.run_threads(work, RANKS) == [[4.5, 3.0, 1.5]] * 2


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("computed", [False, True])
def test_a_gradient_set_by_hand_is_averaged_where_some_output_depends_on_it(views, computed):
    def work(rank):
        module = TwoHeads()
        model = DistributedDataParallel(
            module, find_unused_parameters=True, gradient_as_bucket_view=views
        )
        module.right.weight.grad = one(10 * (rank + 1))
        if not computed:
            module.forward = lambda x: (module.left(module.body(x)),)
        model(one(1))[0].sum().backward()
        return module.right.weight.grad.item()

    own = [15.0, 15.0] if computed or views else [10.0, 20.0]
    assert dist.run_threads(work, RANKS) == own


def test_an_output_that_is_not_in_the_loss_is_no_error_where_unused_parameters_are_looked_for():
    def work(rank):
        model = DistributedDataParallel(TwoHeads(), find_unused_parameters=True)
        for _ in range(2):
            model(one(rank + 1))[0].sum().backward()
        return gradients(model)

    assert dist.run_threads(work, RANKS) == [[3.0, 3.0, None]] * 2


def test_what_was_used_without_synchronization_counts_for_the_next_step():
    def work(rank):
        model = DistributedDataParallel(TwoHeads(), find_unused_parameters=True)
        with model.no_sync():
            if rank == 0:
                model(one(4))[1].sum().backward()
            else:
                model(one(2))[0].sum().backward()
        model(one(1))[0].sum().backward()
        return gradients(model)

    assert dist.run_threads(work, RANKS) == [[4.0, 2.0, 2.0]] * 2


def reentrant(module, x):
    x = x.clone().requires_grad_()
    for _ in range(2):
        x = checkpoint(module, x, use_reentrant=True)
    return x


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.layer.weight, 1.0)

    def forward(self, x):
        return reentrant(self.layer, x)


def test_a_parameter_that_is_ready_twice_is_told():
    def work(rank):
        model = DistributedDataParallel(Twice())
        with pytest.raises(RuntimeError, match="mark a variable ready only once.*layer.weight"):
            model(one(1)).sum().backward()

    dist.run_threads(work, RANKS)


def test_with_a_static_graph_a_parameter_may_come_as_often_as_in_the_first_step():
    def work(rank):
        model = DistributedDataParallel(Twice(), static_graph=True)
        found = []
        for _ in range(3):
            model.zero_grad()
            model(one(rank + 1)).sum().backward()
            found.append(model.module.layer.weight.grad.item())
        return found

    assert dist.run_threads(work, RANKS) == [[3.0] * 3] * 2


def test_a_graph_that_does_not_stay_static_is_told():
    def work(rank):
        model = DistributedDataParallel(TwoHeads(), static_graph=True)
        sum(model(one(1))).sum().backward()
        model(one(1))[0].sum().backward()
        with pytest.raises(RuntimeError, match=f"{UNFINISHED}.*training graph has changed"):
            model(one(1))
        with pytest.warns(UserWarning, match="no need to set it again"):
            model._set_static_graph()

    dist.run_threads(work, 1)


def test_a_module_may_be_wrapped_again():
    def work(rank):
        module = TwoHeads()
        DistributedDataParallel(module)(one(1))[0].sum().backward()
        module.zero_grad()
        model = DistributedDataParallel(module)
        sum(model(one(rank + 1))).sum().backward()
        return gradients(model)

    assert dist.run_threads(work, RANKS) == [[3.0, 1.5, 1.5]] * 2


@pytest.mark.parametrize("how", ["deepcopy", "file"])
def test_a_copy_averages_gradients_of_its_own(how):
    def work(rank):
        model = DistributedDataParallel(TwoHeads(), find_unused_parameters=True)
        if how == "deepcopy":
            made = copy.deepcopy(model)
        else:
            file = io.BytesIO()
            tangrad.save(model, file)
            file.seek(0)
            made = tangrad.load(file, weights_only=False)
        made(one(rank + 1))[0].sum().backward()
        return gradients(made), gradients(model)

    assert dist.run_threads(work, RANKS) == [([1.5, 1.5, None], [None] * 3)] * 2


def test_a_hook_is_registered_once_and_says_what_it_takes():
    def hook(state, bucket: dist.GradBucket):
        return None

    def of_a_number(state, bucket: int):
        return None

    def to_a_number(state, bucket) -> int:
        return 0

    def work(rank):
        model = DistributedDataParallel(nn.Linear(1, 1))
        with pytest.raises(ValueError, match="bucket annotation should be"):
            model.register_comm_hook(None, of_a_number)
        with pytest.raises(ValueError, match="return annotation should be"):
            model.register_comm_hook(None, to_a_number)
        model.register_comm_hook(None, hook)
        with pytest.raises(RuntimeError, match="can only be called once"):
            model.register_comm_hook(None, hook)
        with pytest.raises(RuntimeError, match="can only be called once"):
            model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)

    dist.run_threads(work, 1)


def test_ranks_that_train_other_parameters_are_refused():
    def work(rank):
        module = TwoHeads()
        module.left.requires_grad_(rank == 0)
        with pytest.raises(RuntimeError, match="same model across all ranks.*left.weight"):
            DistributedDataParallel(module)

    dist.run_threads(work, RANKS)


def test_arguments_that_pytorch_refuses_are_refused():
    def work(rank):
        with pytest.raises(ValueError, match="device_ids can only be None or contain a single"):
            DistributedDataParallel(nn.Linear(1, 1), device_ids=[0, 1])
        mesh = dist.init_device_mesh("cpu", (1, 1))
        with pytest.raises(RuntimeError, match="Only 1D device mesh is supported"):
            DistributedDataParallel(nn.Linear(1, 1), device_mesh=mesh)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.run_threads(work, 1)
