/* Depthwise convolution of images whose channels are neighbours: windows are worked on for a block of
 * channels at a time, whose sums stay in registers. Nothing is padded. */
#include "copies/copying.h"

#define GRAIN (1 << 17) /* multiplications of a task */
#define MOST_TASKS 64

typedef struct depthwise {
    const char *input, *weight; /* (N, H, W, C) and (kH, kW, C) */
    char *out;
    int64_t images, height, width, channels, kernel[2], out_height, out_width;
    int64_t stride[2], padding[2], dilation[2], tasks;
} depthwise;

#define DW_T float
#define DW_LANES 64
#define DW(name) name##_f32
#include "depthwise_rows.h"
#define DW_T double
#define DW_LANES 32
#define DW(name) name##_f64
#include "depthwise_rows.h"

static const char name[] = "depthwise_channels_last";

static int depthwise_channels_last(const tg_call *call, void *context)
{
    const tg_view *input = call->args[0].value.tensors, *weight = call->args[1].value.tensors, *out = call->outs;
    const tg_argument *windows = call->args + 2;
    void *input_memory = NULL, *weight_memory = NULL;
    (void)context;
    if (out->numel == 0)
        return 0;
    depthwise j = {.out = out->data,
                   .images = input->shape[0],
                   .height = input->shape[1],
                   .width = input->shape[2],
                   .channels = input->shape[3],
                   .kernel = {weight->shape[0], weight->shape[1]},
                   .out_height = out->shape[1],
                   .out_width = out->shape[2]};
    for (int d = 0; d < 2; d++) {
        j.stride[d] = windows[0].value.ints[d];
        j.padding[d] = windows[1].value.ints[d];
        j.dilation[d] = windows[2].value.ints[d];
    }
    j.input = tgc_in_order(name, input, &input_memory, TGC(tgc_move_region));
    j.weight = j.input != NULL ? tgc_in_order(name, weight, &weight_memory, TGC(tgc_move_region)) : NULL;
    if (j.weight != NULL) {
        int64_t products = j.out_width * j.channels * j.kernel[0] * j.kernel[1] + 1;
        j.tasks = tgc_tasks(j.images * j.out_height, GRAIN / products + 1, MOST_TASKS);
        tgc_parallel(j.tasks, input->dtype == TGC_FLOAT64 ? rows_f64 : rows_f32, &j);
    }
    tgc_scratch_free(input_memory);
    tgc_scratch_free(weight_memory);
    return j.weight != NULL ? 0 : -1;
}

const tgc_kernel TGC(tgc_table_depthwise)[] = {
    {"depthwise_channels_last", "float32", TGC_CALL, depthwise_channels_last, NULL},
    {"depthwise_channels_last", "float64", TGC_CALL, depthwise_channels_last, NULL},
    {0}};
