// A stand-in for libcudnn.so: it does what its calls say, number by number, and refuses what the
// library would refuse. Tensors lie by rows.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

extern "C" {
int cuStreamSynchronize(void*);
int cuMemcpyDtoH_v2(void*, uint64_t, size_t);
int cuMemcpyHtoD_v2(uint64_t, const void*, size_t);
}

namespace {

enum { BAD_PARAM = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum { FLOAT = 0, DOUBLE = 1 };

using Sizes = std::vector<int>;

struct Tensor {
    int type = -1;
    Sizes sizes;
};
struct Window {
    Sizes padding, stride, dilation;
    int computed = -1, groups = 1, math = 0;
};
struct Found {
    int algorithm, status;
    float time;
    size_t workspace;
    int determinism, math, reserved[3];
};
struct Handle {
    void* stream = nullptr;
    bool told = false;
};

// Of three algorithms the first fails, the second is not deterministic, the third needs more memory.
constexpr int FAST = 1, SAFE = 2;
constexpr size_t WORKSPACE[] = {0, 512, 2048};
int calls = 0, tried = 0, described = 0, chosen = -1, math_told = -1;

bool fails(const char* name) {
    const char* told = std::getenv("PAPER_CUDNN_FAILS");
    return told && !std::strcmp(told, name);
}

size_t count(const Sizes& sizes) {
    size_t all = 1;
    for (int n : sizes) all *= size_t(n);
    return all;
}

// Whether a window makes sizes y of sizes x with taps w, all by number of dimensions too.
bool fits(const Tensor& x, const Tensor& w, const Tensor& y, const Window& how) {
    const size_t rank = how.padding.size();
    for (auto* each : {&x, &w, &y})
        if (each->sizes.size() != rank + 2 || each->type != x.type) return false;
    if (x.sizes[0] != y.sizes[0] || w.sizes[0] != y.sizes[1] || x.sizes[1] != w.sizes[1] * how.groups ||
        w.sizes[0] % how.groups)
        return false;
    for (size_t d = 0; d < rank; d++)
        if (y.sizes[d + 2] != (x.sizes[d + 2] + 2 * how.padding[d] - how.dilation[d] * (w.sizes[d + 2] - 1) - 1) /
                                      how.stride[d] + 1)
            return false;
    return true;
}

// Call with the places of x, w and y of every product of a convolution.
void each_product(const Tensor& x, const Tensor& w, const Tensor& y, const Window& how,
                  const std::function<void(size_t, size_t, size_t)>& call) {
    const size_t rank = how.padding.size();
    const int outs = w.sizes[0] / how.groups;
    Sizes o(rank), t(rank);
    const size_t outputs = count({y.sizes.begin() + 2, y.sizes.end()}), taps = count({w.sizes.begin() + 2, w.sizes.end()});
    for (int n = 0; n < x.sizes[0]; n++)
        for (int k = 0; k < w.sizes[0]; k++)
            for (int c = 0; c < w.sizes[1]; c++)
                for (size_t out = 0; out < outputs; out++)
                    for (size_t tap = 0; tap < taps; tap++) {
                        size_t a = out, b = tap, place = 0;
                        for (size_t d = rank; d-- > 0; a /= size_t(y.sizes[d + 2]), b /= size_t(w.sizes[d + 2])) {
                            o[d] = int(a % size_t(y.sizes[d + 2]));
                            t[d] = int(b % size_t(w.sizes[d + 2]));
                        }
                        bool inside = true;
                        for (size_t d = 0; d < rank; d++) {
                            const int p = o[d] * how.stride[d] - how.padding[d] + t[d] * how.dilation[d];
                            inside = inside && p >= 0 && p < x.sizes[d + 2];
                            place = place * size_t(x.sizes[d + 2]) + size_t(p);
                        }
                        if (!inside) continue;
                        const size_t channel = size_t(k / outs * w.sizes[1] + c);
                        const size_t image = count({x.sizes.begin() + 2, x.sizes.end()});
                        call((size_t(n) * size_t(x.sizes[1]) + channel) * image + place,
                             (size_t(k) * size_t(w.sizes[1]) + size_t(c)) * taps + tap,
                             (size_t(n) * size_t(y.sizes[1]) + size_t(k)) * outputs + out);
                    }
}

template <class T> std::vector<T> fetch(const Tensor& of, uint64_t at) {
    std::vector<T> all(count(of.sizes));
    if (cuMemcpyDtoH_v2(all.data(), at, all.size() * sizeof(T))) all.clear();
    return all;
}

template <class T> int store(const std::vector<T>& all, uint64_t at) {
    return cuMemcpyHtoD_v2(at, all.data(), all.size() * sizeof(T)) ? EXECUTION_FAILED : 0;
}

// Write one of x, w and y of the other two; `written` is its letter.
template <class T>
int convolve(char written, const void* alpha, const void* beta, const Tensor& x, uint64_t at_x, const Tensor& w,
             uint64_t at_w, const Tensor& y, uint64_t at_y, const Window& how) {
    if (*static_cast<const T*>(alpha) != 1 || *static_cast<const T*>(beta) != 0) return NOT_SUPPORTED;
    std::vector<T> a = fetch<T>(x, at_x), b = fetch<T>(w, at_w), c = fetch<T>(y, at_y);
    if (a.empty() || b.empty() || c.empty()) return EXECUTION_FAILED;
    auto& out = written == 'x' ? a : written == 'w' ? b : c;
    std::vector<T> sums(out.size(), T(0));
    each_product(x, w, y, how, [&](size_t i, size_t j, size_t k) {
        if (written == 'x') sums[i] += b[j] * c[k];
        if (written == 'w') sums[j] += a[i] * c[k];
        if (written == 'y') sums[k] += a[i] * b[j];
    });
    return store(sums, written == 'x' ? at_x : written == 'w' ? at_w : at_y);
}

int ready(Handle* handle) {
    if (!handle->told) return BAD_PARAM;
    return cuStreamSynchronize(handle->stream) ? EXECUTION_FAILED : 0;
}

int run(char written, Handle* handle, const void* alpha, const void* beta, const Tensor& x, uint64_t at_x,
        const Tensor& w, uint64_t at_w, const Tensor& y, uint64_t at_y, const Window& how, int algorithm,
        void* workspace, size_t size) {
    if (fails("run")) return EXECUTION_FAILED;
    if (!fits(x, w, y, how) || algorithm < FAST || algorithm > SAFE) return BAD_PARAM;
    if (!workspace || size < WORKSPACE[algorithm]) return BAD_PARAM;
    if (int status = ready(handle)) return status;
    calls++;
    chosen = algorithm;
    math_told = how.math;
    return x.type == DOUBLE ? convolve<double>(written, alpha, beta, x, at_x, w, at_w, y, at_y, how)
                            : convolve<float>(written, alpha, beta, x, at_x, w, at_w, y, at_y, how);
}

int propose(const Tensor& x, const Tensor& w, const Tensor& y, const Window& how, int asked, int* returned,
            Found* found) {
    *returned = 0;
    if (!fits(x, w, y, how) || asked < 1) return BAD_PARAM;
    if (x.type > DOUBLE || how.computed != x.type) return NOT_SUPPORTED;
    const Found all[] = {{0, EXECUTION_FAILED, -1, WORKSPACE[0], 1, how.math, {}},
                         {FAST, 0, 1, WORKSPACE[FAST], 0, how.math, {}},
                         {SAFE, 0, 2, WORKSPACE[SAFE], 1, how.math, {}}};
    for (; *returned < 3 && *returned < asked; ++*returned) found[*returned] = all[*returned];
    return 0;
}

int attempt(Handle* handle, const Tensor& x, const Tensor& w, const Tensor& y, const Window& how, int asked,
            int* returned, Found* found, void* workspace, size_t size) {
    if (!workspace || size < WORKSPACE[SAFE]) return BAD_PARAM;
    if (int status = ready(handle)) return status;
    tried++;
    return propose(x, w, y, how, asked, returned, found);
}

template <class T> int add_or_sum(bool sums, const void* beta, const Tensor& y, uint64_t at_y, uint64_t at_bias,
                                  const Tensor& bias) {
    std::vector<T> all = fetch<T>(y, at_y), each = sums ? std::vector<T>(count(bias.sizes)) : fetch<T>(bias, at_bias);
    if (all.empty() || each.empty() || *static_cast<const T*>(beta) != T(!sums)) return EXECUTION_FAILED;
    const size_t places = count({y.sizes.begin() + 2, y.sizes.end()}), channels = size_t(y.sizes[1]);
    for (size_t i = 0; i < all.size(); i++) {
        T& one = each[i / places % channels];
        sums ? one += all[i] : all[i] += one;
    }
    return sums ? store(each, at_bias) : store(all, at_y);
}

int with_bias(bool sums, Handle* handle, const void* beta, const Tensor& y, uint64_t at_y, const Tensor& bias,
              uint64_t at_bias) {
    Sizes wanted(y.sizes.size(), 1);
    wanted[1] = y.sizes[1];
    if (bias.sizes != wanted || bias.type != y.type) return BAD_PARAM;
    if (int status = ready(handle)) return status;
    return y.type == DOUBLE ? add_or_sum<double>(sums, beta, y, at_y, at_bias, bias)
                            : add_or_sum<float>(sums, beta, y, at_y, at_bias, bias);
}

int describe(Tensor* made, int type, int rank, const int* sizes) {
    if (rank < 4 || rank > 5) return BAD_PARAM;
    made->type = type;
    made->sizes.assign(sizes, sizes + rank);
    for (int n : made->sizes)
        if (n < 1) return BAD_PARAM;
    return 0;
}

}  // namespace

extern "C" {

int paper_calls() { return calls; }
int paper_tried() { return tried; }
int paper_described() { return described; }
int paper_algorithm() { return chosen; }
int paper_math() { return math_told; }
size_t cudnnGetVersion() { return fails("version") ? 7605 : 91300; }
const char* cudnnGetErrorString(int status) {
    return status == EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED" : "CUDNN_STATUS_BAD_PARAM";
}
int cudnnCreate(Handle** made) {
    *made = new Handle;
    return 0;
}
int cudnnSetStream(Handle* of, void* stream) {
    of->stream = stream;
    of->told = true;
    return 0;
}
int cudnnCreateTensorDescriptor(Tensor** made) {
    *made = new Tensor;
    described++;
    return 0;
}
int cudnnDestroyTensorDescriptor(Tensor* of) {
    delete of;
    described--;
    return 0;
}
int cudnnSetTensorNdDescriptor(Tensor* of, int type, int rank, const int* sizes, const int* steps) {
    int packed = 1;
    for (int d = rank - 1; d >= 0; packed *= sizes[d--])
        if (steps[d] != packed) return NOT_SUPPORTED;
    return describe(of, type, rank, sizes);
}
int cudnnCreateFilterDescriptor(Tensor** made) { return cudnnCreateTensorDescriptor(made); }
int cudnnDestroyFilterDescriptor(Tensor* of) { return cudnnDestroyTensorDescriptor(of); }
int cudnnSetFilterNdDescriptor(Tensor* of, int type, int format, int rank, const int* sizes) {
    return format ? NOT_SUPPORTED : describe(of, type, rank, sizes);
}
int cudnnCreateConvolutionDescriptor(Window** made) {
    *made = new Window;
    described++;
    return 0;
}
int cudnnDestroyConvolutionDescriptor(Window* of) {
    delete of;
    described--;
    return 0;
}
int cudnnSetConvolutionNdDescriptor(Window* of, int rank, const int* padding, const int* stride, const int* dilation,
                                    int mode, int computed) {
    if (mode != 1) return NOT_SUPPORTED;
    of->padding.assign(padding, padding + rank);
    of->stride.assign(stride, stride + rank);
    of->dilation.assign(dilation, dilation + rank);
    of->computed = computed;
    for (int d = 0; d < rank; d++)
        if (padding[d] < 0 || stride[d] < 1 || dilation[d] < 1) return BAD_PARAM;
    return 0;
}
int cudnnSetConvolutionGroupCount(Window* of, int groups) {
    of->groups = groups;
    return groups < 1 ? BAD_PARAM : 0;
}
int cudnnSetConvolutionMathType(Window* of, int math) {
    of->math = math;
    return math < 0 || math > 3 ? BAD_PARAM : 0;
}
int cudnnAddTensor(Handle* handle, const void*, const Tensor* bias, uint64_t at_bias, const void* beta, const Tensor* y,
                   uint64_t at_y) {
    return with_bias(false, handle, beta, *y, at_y, *bias, at_bias);
}
int cudnnConvolutionBackwardBias(Handle* handle, const void*, const Tensor* y, uint64_t at_y, const void* beta,
                                 const Tensor* bias, uint64_t at_bias) {
    return with_bias(true, handle, beta, *y, at_y, *bias, at_bias);
}

// The first two tensors are read, the third is written.
#define KIND(name, first, second, third, letter)                                                                      \
    int cudnnGetConvolution##name##Algorithm_v7(Handle*, const Tensor* first, const Tensor* second, const Window* how, \
                                                const Tensor* third, int asked, int* returned, Found* found) {        \
        return propose(*x, *w, *y, *how, asked, returned, found);                                                     \
    }                                                                                                                 \
    int cudnnFindConvolution##name##AlgorithmEx(Handle* handle, const Tensor* first, uint64_t, const Tensor* second,  \
                                                uint64_t, const Window* how, const Tensor* third, uint64_t,           \
                                                int asked, int* returned, Found* found, void* workspace,              \
                                                size_t size) {                                                        \
        return attempt(handle, *x, *w, *y, *how, asked, returned, found, workspace, size);                            \
    }                                                                                                                 \
    int cudnnConvolution##name(Handle* handle, const void* alpha, const Tensor* first, uint64_t at_##first,           \
                               const Tensor* second, uint64_t at_##second, const Window* how, int algorithm,          \
                               void* workspace, size_t size, const void* beta, const Tensor* third,                   \
                               uint64_t at_##third) {                                                                 \
        return run(letter, handle, alpha, beta, *x, at_x, *w, at_w, *y, at_y, *how, algorithm, workspace, size);       \
    }
KIND(Forward, x, w, y, 'y')
KIND(BackwardData, w, y, x, 'x')
KIND(BackwardFilter, x, y, w, 'w')

}  // extern "C"
