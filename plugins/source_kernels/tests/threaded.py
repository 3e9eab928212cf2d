"""A device of blocks with several lanes: plain C in which each lane is a thread of the host.

It stands for every device with lanes: shared memory, barriers, several blocks, parts of long
reductions and vector loads are met here without any hardware.
"""

from __future__ import annotations

from tangrad.plugin.compiled import Kernel
from tangrad.plugin.render import DIALECTS
from tangrad_plain_c import Driver, PlainC

API = 1

LANES, BLOCKS = 8, 3

_C = DIALECTS["c"]

_HEADER = f"""{_C.header}
#include <pthread.h>
static pthread_barrier_t tk_barrier;
static __thread int tk_lane;
static __thread int64_t tk_block, tk_blocks;
static float tk_exchange_f32(float v, int mask) {{
    static float places[{LANES}];
    pthread_barrier_wait(&tk_barrier);
    places[tk_lane] = v;
    pthread_barrier_wait(&tk_barrier);
    return places[tk_lane ^ mask];
}}
typedef struct {{ void (*run)(void **, const void *); int64_t blocks; int lane; void **buffers;
    const void *numbers; }} tk_work;
static void *tk_run(void *given) {{
    const tk_work *work = given;
    tk_lane = work->lane; tk_blocks = work->blocks;
    for (tk_block = 0; tk_block < tk_blocks; tk_block++) {{
        work->run(work->buffers, work->numbers);
        pthread_barrier_wait(&tk_barrier);
    }}
    return 0;
}}
static void tk_launch(void (*run)(void **, const void *), int64_t blocks, void **buffers,
                      const void *numbers) {{
    pthread_t threads[{LANES}]; tk_work works[{LANES}];
    pthread_barrier_init(&tk_barrier, 0, {LANES});
    for (int k = 0; k < {LANES}; k++) {{
        tk_work work = {{run, blocks, k, buffers, numbers}};
        works[k] = work;
        pthread_create(&threads[k], 0, tk_run, &works[k]);
    }}
    for (int k = 0; k < {LANES}; k++) pthread_join(threads[k], 0);
    pthread_barrier_destroy(&tk_barrier);
}}
"""


class Threaded(PlainC):
    """Run all lanes of a block at once."""

    def kernel(self, kernel: Kernel) -> str:
        """Return the function of a lane, and the one that starts all."""
        params = [f"{self.type(dtype)} *{name}" for dtype, name in kernel.buffers]
        args = [
            f"({self.type(dtype)} *)buffers[{k}]" for k, (dtype, _) in enumerate(kernel.buffers)
        ]
        structure = ""
        if kernel.numbers:
            structure = self.structure(kernel)
            params.append(f"const {kernel.name}_numbers g")
            args.append(f"*(const {kernel.name}_numbers *)numbers")
        return f"""{structure}
static void {kernel.name}_of_lane({", ".join(params)}) {{
{kernel.body}
}}
static void {kernel.name}_run(void **buffers, const void *numbers) {{
    {kernel.name}_of_lane({", ".join(args)});
}}
void {kernel.name}(int64_t blocks, void **buffers, const void *numbers) {{
    tk_launch({kernel.name}_run, blocks, buffers, numbers);
}}
"""


class ThreadedDriver(Driver):
    """Compile for lanes that are threads."""

    dialect = Threaded(
        "threaded C",
        function="static inline",
        types=_C.types,
        header=_HEADER,
        c99_complex=True,
        lanes=LANES,
        max_blocks=BLOCKS,
        block="tk_block",
        blocks="tk_blocks",
        lane="tk_lane",
        barrier="pthread_barrier_wait(&tk_barrier);",
        shared="static",
        warp=4,
        shuffle={"float32": "tk_exchange_f32({value}, {mask})"},
        align="__attribute__((aligned({n})))",
        vector_bytes=16,
    )
