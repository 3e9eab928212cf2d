"""A compiled backend that knows the core only through the versioned C function table."""

from __future__ import annotations

import pytest

import tangrad
from tangrad import _C

# Kernels stay installed for the life of a process, so programs that install them have their own.
PREPARE = """
import noop_backend as noop, tangrad
x, y = tangrad.tensor([1., 2., 3., 4.]), tangrad.tensor([1., 2., 3., 4.])
"""


@pytest.fixture
def program(workshop, noop_folder):
    """Run a program with the backend and return what it printed."""

    def run(text):
        done = workshop.run(PREPARE + text, noop_folder)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_table_states_its_version_and_size(noop):
    built_version, built_size, version, size = noop.versions()
    assert (built_version, built_size) == (version, size)


def test_kernel_receives_a_coalesced_loop_and_the_result_is_the_core_s(program):
    printed = program("""
noop.install_looking("add", "cpu", "float32")
z = tangrad.ones(2, 3) + tangrad.ones(2, 3)
loop = noop.last_loop()
print(loop["calls"], loop["nout"], loop["nin"], loop["ndim"], loop["numel"])
print(tuple(z.shape), z.dtype, z.stride(), z.device)
""")
    assert printed.splitlines() == ["1 1 2 1 6", "(2, 3) tangrad.float32 (3, 1) cpu"]


def test_python_number_arrives_as_a_scalar_operand(program):
    printed = program("""
noop.install_looking("mul", "cpu", "float32")
x * 2.5
loop = noop.last_loop()
print(loop["calls"], loop["nin"], loop["is_scalar"], loop["scalar"])
""")
    assert printed == "1 2 1 2.5"


def test_broadcast_and_promoted_operands_reach_the_kernel(program):
    printed = program("""
noop.install_looking("add", "cpu", "float32")
z = tangrad.ones(2, 1) + tangrad.ones(3, dtype=tangrad.int64)
loop = noop.last_loop()
print(loop["calls"], loop["ndim"], loop["numel"], tuple(z.shape), z.dtype)
""")
    assert printed == "1 2 6 (2, 3) tangrad.float32"


def test_recording_goes_through_a_c_kernel(program):
    printed = program("""
noop.install("add", "cpu", "float32")
x.requires_grad_()
z = x + y
z.backward(tangrad.ones(4))
print(z.grad_fn.name(), x.grad.tolist())
""")
    assert printed == "AddBackward0 [1.0, 1.0, 1.0, 1.0]"


def test_error_of_a_kernel_is_the_error_of_the_op(program):
    printed = program("""
noop.install_failing("add", "cpu", "float32")
for right in (y, 2.0, tangrad.ones(2, 4)):
    try:
        x + right
    except ArithmeticError as error:
        print(error)
""")
    assert printed.splitlines() == ["the kernel refuses"] * 3


def test_registration_under_an_unknown_name_is_an_error(noop):
    with pytest.raises(AttributeError, match="no op named 'no_such_op'"):
        noop.install("no_such_op", "cpu", "float32")
    with pytest.raises(TypeError, match="float33"):
        noop.install("add", "cpu", "float33")


def test_call_kernel_receives_outputs_and_arguments_by_kind(program):
    printed = program("""
noop.install_call("mm", "cpu", "float32")
z = tangrad.ones(2, 3) @ tangrad.ones(4, 3).t()
print(noop.last_call(), tuple(z.shape))
noop.install_call("cat", "cpu", "float32")
tangrad.cat([tangrad.ones(2, 3), tangrad.ones(2, 1)], dim=-1)
print(noop.last_call())
noop.install_call("cumsum", "cpu", "float64")
tangrad.ones(2, 3).cumsum(-1, dtype=tangrad.float64)
print(noop.last_call())
noop.install_call("native_layer_norm", "cpu", "float32")
tangrad.native_layer_norm(tangrad.ones(2, 3), [3], tangrad.ones(3), None, 0.5)
print(noop.last_call())
noop.install_call("sort", "cpu", "float32")
tangrad.ones(3).sort(descending=True)
print(noop.last_call())
""")
    float32, int64, float64 = (
        _C.dtype_by_name(name).index for name in ("float32", "int64", "float64")
    )
    row = f"{float32}[2:3,3:1]"
    assert printed.splitlines() == [
        f"{float32}[2:4,4:1] tensor {row} tensor {float32}[3:1,4:3] (2, 4)",
        f"{float32}[2:4,4:1] tensors {row}{float32}[2:1,1:1] int 1",
        f"{float64}[2:3,3:1] tensor {float64}[2:3,3:1] int 1 dtype {float64}",
        f"{row}{float32}[2:1,1:1]{float32}[2:1,1:1] tensor {row} ints 3 tensor {float32}[3:1] none "
        "float 0.5",
        f"{float32}[3:1]{int64}[3:1] tensor {float32}[3:1] int 0 bool 1 bool 0",
    ]


def test_call_with_more_tensors_than_the_stack_holds(program):
    printed = program("""
noop.install_call("cat", "cpu", "float32")
z = tangrad.cat([tangrad.ones(1)] * 200)
print(noop.last_call().count("[1:1]"), tuple(z.shape))
""")
    assert printed == "200 (200,)"


def test_error_of_a_call_kernel_is_the_error_of_the_op(program):
    printed = program("""
noop.install_call("mm", "cpu", "float32", True)
try:
    tangrad.ones(2, 3) @ tangrad.ones(3, 2)
except ArithmeticError as error:
    print(error)
""")
    assert printed == "the kernel refuses"


def test_shapes_that_do_not_fit_never_reach_a_call_kernel(program):
    printed = program("""
noop.install_call("mm", "cpu", "float32")
for right in (tangrad.ones(2, 3), tangrad.ones(3, 2, dtype=tangrad.float64)):
    try:
        tangrad.mm(tangrad.ones(2, 3), right)
    except RuntimeError as error:
        print(error)
print(repr(noop.last_call()))
""")
    shapes, dtypes, told = printed.splitlines()
    assert "cannot be multiplied (2x3 and 2x3)" in shapes
    assert "same dtype" in dtypes
    assert told == "''"


def test_kernel_of_a_derived_op_is_registered_by_the_op_itself(program):
    printed = program("""
x.requires_grad_()
(x * y).sum().backward()
((op, _),) = tangrad.ops.lookup("mul").definition._derived.values()
print(op.definition.key)
noop.install_of(op, "cpu", "float32")
(x * y).sum().backward()
print(noop.last_loop()["calls"])
""")
    assert printed.splitlines() == ["mul_backward(self)", "1"]


def test_kernel_of_the_wrong_form_is_refused(noop):
    with pytest.raises(
        TypeError, match="'mm' is an op of kind kernel: its C kernel is a call kernel"
    ):
        noop.install("mm", "cpu", "float32")
    with pytest.raises(TypeError, match="'mul' is an op of kind pointwise.*a loop kernel"):
        noop.install_call("mul", "cpu", "float32")
    with pytest.raises(TypeError, match="kind composite, which has no kernels"):
        noop.install_call("matmul", "cpu", "float32")


def test_table_describes_tensors(noop):
    t = tangrad.ones(2, 3).t()
    told = noop.describe(t)
    assert told["shape"] == (3, 2)
    assert told["strides"] == (1, 3)
    assert told["numel"] == 6
    assert told["address"] == t.data_ptr()
    assert noop.describe(3) is None


def test_table_allocates_like_another_tensor(noop):
    t = noop.empty(2, 3, "int32", tangrad.ones(1))
    assert tuple(t.shape) == (2, 3)
    assert t.dtype is tangrad.int32
    with pytest.raises(RuntimeError, match="negative dimension"):
        noop.empty(-2, 3, "int32", t)


def test_cython_backend_uses_the_installed_declarations(workshop):
    pytest.importorskip("Cython", reason="the backend is written in Cython")
    folder = workshop.backend("cython_backend")
    done = workshop.run(
        "import tangrad, cython_backend\n"
        "cython_backend.install(b'cpu')\n"
        "print((tangrad.tensor([1., 2.]) + tangrad.tensor([3., 4.])).tolist())\n"
        "try:\n    cython_backend.install(b'no such device'); tangrad.ones(1) + 1\n"
        "except Exception as error:\n    print(error)\n",
        folder,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "[8.0, 12.0]"


# --- interceptors ------------------------------------------------------------------------------


@pytest.fixture
def counter(noop):
    """Push a counter of ops; it is popped when the test ends."""
    pushed = []

    def push(number, refuses=False):
        noop.push(number, refuses)
        pushed.append(number)
        return lambda: noop.counts(number)

    yield push
    for number in reversed(pushed):
        noop.pop(number)


@pytest.fixture
def x():
    return tangrad.tensor([1.0, 2.0])


def test_interceptor_in_c_counts_the_ops_between_push_and_pop(noop, x):
    x + x
    noop.push(0)
    y = x + x
    y = y * 2.0
    tangrad.relu(y)
    noop.pop(0)
    x + x
    assert noop.counts(0) == (3, 3, 1)


def test_interceptor_is_left_when_the_op_raises(counter, x):
    counts = counter(0)
    with pytest.raises(RuntimeError, match="must match the size"):
        x + tangrad.ones(3)
    entered, left, _ = counts()
    assert entered == left >= 1


def test_interceptors_nest_and_each_sees_what_is_called_while_it_is_there(noop, counter, x):
    outer = counter(0)
    x + x
    noop.push(1)
    x + x
    noop.pop(1)
    x + x
    assert outer()[:2] == (3, 3)
    assert noop.counts(1)[:2] == (1, 1)


def test_interceptor_that_refuses_stops_the_op_and_leaves_those_that_entered(noop, counter, x):
    counts = counter(0)
    noop.push(1, True)
    with pytest.raises(PermissionError, match="the interceptor refuses"):
        x + x
    noop.pop(1)
    assert counts()[:2] == (1, 1)
    assert noop.counts(1)[:2] == (0, 0)
    assert (x + x).tolist() == [2.0, 4.0]


def test_interceptor_belongs_to_its_thread(counter, x):
    import threading

    counts = counter(0)
    other = threading.Thread(target=lambda: x + x)
    other.start()
    other.join()
    assert counts()[0] == 0
    x + x
    assert counts()[0] == 1


def test_pop_without_push_is_an_error(noop):
    with pytest.raises(RuntimeError, match="no interceptor with that context"):
        noop.pop(7)


def test_pointer_is_empty_again_after_the_last_pop(noop):
    noop.push(0)
    assert _C.is_intercepted()
    noop.pop(0)
    assert not _C.is_intercepted()


# --- since version 3 ---------------------------------------------------------------------------


@pytest.fixture
def listening(noop):
    """Note what observers in C are told of a call."""

    def listen(call):
        noop.push_observer(True)
        try:
            call()
        finally:
            told = noop.pop_observer(True)
        return told

    return listen


def test_observer_in_c_is_told_arguments_results_and_steps_of_backward(listening):
    w = tangrad.ones(2, 3, requires_grad=True)
    y = (w * w).sum()
    told = listening(lambda: (w @ w.t(), tangrad.zeros_like(y).add_(1.0)))
    assert told == "(t 6)(matmul 6 6(mm 6 6))(zeros_like 1)(add_ 1 out)"
    told = listening(y.backward)
    assert "[SumBackward0(expand 1)][MulBackward0(" in told
    assert told.endswith("[AccumulateGrad]")


def test_observer_in_c_is_left_when_the_op_raises(listening, x):
    def call():
        with pytest.raises(RuntimeError, match="must match the size"):
            x + tangrad.ones(3)

    assert listening(call).endswith("(add 2 3 raised)")


def test_observer_that_was_not_pushed_cannot_be_popped(noop):
    with pytest.raises(RuntimeError, match="no interceptor with that context"):
        noop.pop_observer(True)


def test_scratch_memory_is_the_caching_allocator_s(noop):
    assert noop.scratch("cpu", 0, 1000) == (0, 1024, True)
    noop.watch_memory(True)
    noop.scratch("cpu", 0, 5000)
    made, gone, _ = noop.watch_memory(False)
    assert (made, gone) == (1, 1)
    with pytest.raises(RuntimeError, match="Out of memory"):
        noop.scratch("cpu", 0, 1 << 60)
    with pytest.raises(RuntimeError, match="has no memory"):
        noop.scratch("meta", 0, 8)


def test_scratch_and_stream_of_a_device_that_is_not_the_host(noop):
    pytest.importorskip("tangrad_testing", reason="brings a device whose memory is its own")
    assert noop.scratch("loopback", 1, 100)[::2] == (0, False)
    with pytest.raises(RuntimeError, match="does not exist"):
        noop.scratch("loopback", 7, 100)


def test_ranges_are_cut_by_their_grain_alone(noop):
    assert noop.sum_range(3, 1003, 64) == (sum(range(3, 1003)), 16)
    assert noop.sum_range(5, 5, 64) == (0, 0)
    assert noop.sum_range(0, 10, 0) == (45, 10)
    assert noop.pool()[1] >= 1


def test_kernel_is_found_by_op_device_and_dtype(noop, program):
    printed = program("""
noop.install_call("mm", "cpu", "float32")
print(noop.kernel_of("mm", "cpu", "float32"), noop.kernel_of("add", "reference", "int32"))
""")
    assert printed == "(3, True) (2, False)"
    with pytest.raises(TypeError, match="kind composite, which has no kernels"):
        noop.kernel_of("matmul", "cpu", "float32")
    with pytest.raises(AttributeError, match="no op named"):
        noop.kernel_of("no_such_op", "cpu", "float32")


def test_watch_of_memory_counts_what_the_statistics_count(noop):
    noop.watch_memory(True)
    kept = [tangrad.empty(100, device="reference") for _ in range(3)]
    del kept[0]
    made, gone, allocated = noop.watch_memory(False)
    stats = _C.allocator_of("reference").memory_stats()
    assert (made, gone, allocated) == (3, 1, stats["allocated_bytes.all.current"])
    with pytest.raises(RuntimeError, match="is not there"):
        noop.watch_memory(False)


def test_threads_are_those_of_the_package_that_offers_them(program):
    pytest.importorskip("tangrad_cpu", reason="offers its threads")
    printed = program("""
from tangrad.devices import registry
told = registry.get_driver("cpu").properties(0)
print(noop.pool() == (told["instruction_set"], told["threads"]), noop.sum_range(0, 10**6, 1000))
""")
    assert printed == f"True ({sum(range(10**6))}, 1000)"
