// A stand-in for libcublasLt.so: it does what its calls say, number by number, and refuses what the
// library would refuse. Matrices lie by columns.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
int cuStreamSynchronize(void*);
int cuMemcpyDtoH_v2(void*, uint64_t, size_t);
int cuMemcpyHtoD_v2(uint64_t, const void*, size_t);
}

namespace {

enum { INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };

struct Description {
    int computed, scaled;
    int32_t transposed[2] = {0, 0}, epilogue = 1;
    uint64_t bias = 0;
};
struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t step;
    int32_t batches = 1;
    int64_t batch_step = 0;
};
struct Preference {
    uint64_t workspace = 0;
    uint32_t alignment[4] = {256, 256, 256, 256};
};
struct Found {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

constexpr uint64_t ALGORITHM = 0x7461;
constexpr size_t WORKSPACE = 512;

size_t size_of(int type) { return type == 1 ? 8 : type == 0 ? 4 : 0; }

template <class T> int set(T& field, const void* value, size_t size) {
    if (size != sizeof(T)) return INVALID_VALUE;
    std::memcpy(&field, value, size);
    return 0;
}

std::vector<char> fetch(uint64_t at, const Layout& l) {
    const size_t last = size_t(l.batches - 1) * size_t(l.batch_step) + (l.columns - 1) * size_t(l.step) + l.rows;
    std::vector<char> bytes(last * size_of(l.type));
    if (cuMemcpyDtoH_v2(bytes.data(), at, bytes.size())) bytes.clear();
    return bytes;
}

template <class T>
int multiply(const Description& how, const void* alpha, uint64_t a, const Layout& la, uint64_t b,
             const Layout& lb, const void* beta, uint64_t d, const Layout& ld) {
    if (*static_cast<const T*>(beta) != 0) return NOT_SUPPORTED;
    auto left = fetch(a, la), right = fetch(b, lb), out = fetch(d, ld);
    std::vector<T> bias(ld.rows, T(0));
    if (how.epilogue == 4 && cuMemcpyDtoH_v2(bias.data(), how.bias, ld.rows * sizeof(T))) return EXECUTION_FAILED;
    if (left.empty() || right.empty() || out.empty()) return EXECUTION_FAILED;
    const auto at = [](std::vector<char>& of, const Layout& l, int turned, size_t n, size_t i, size_t j) -> T& {
        const size_t row = turned ? j : i, column = turned ? i : j;
        return reinterpret_cast<T*>(of.data())[n * size_t(l.batch_step) + column * size_t(l.step) + row];
    };
    const size_t inner = how.transposed[0] ? la.rows : la.columns;
    for (size_t n = 0; n < size_t(ld.batches); n++)
        for (size_t i = 0; i < ld.rows; i++)
            for (size_t j = 0; j < ld.columns; j++) {
                T sum = 0;
                for (size_t k = 0; k < inner; k++)
                    sum += at(left, la, how.transposed[0], n, i, k) * at(right, lb, how.transposed[1], n, k, j);
                at(out, ld, 0, n, i, j) = *static_cast<const T*>(alpha) * sum + bias[i];
            }
    return cuMemcpyHtoD_v2(d, out.data(), out.size()) ? EXECUTION_FAILED : 0;
}

bool fits(const Description& how, const Layout& a, const Layout& b, const Layout& d) {
    const bool ta = how.transposed[0], tb = how.transposed[1];
    const auto rows = ta ? a.columns : a.rows, columns = tb ? b.rows : b.columns;
    const auto inner = ta ? a.rows : a.columns, other = tb ? b.columns : b.rows;
    for (const Layout* l : {&a, &b, &d})
        if (!l->rows || !l->columns || l->step < int64_t(l->rows) || l->batches != d.batches || l->type != d.type)
            return false;
    return rows == d.rows && columns == d.columns && inner == other;
}

int calls = 0, described = 0;

}  // namespace

extern "C" {

int paper_calls() { return calls; }
int paper_described() { return described; }
int cublasLtCreate(void** handle) {
    *handle = &calls;
    return 0;
}
int cublasLtMatmulDescCreate(Description** made, int computed, int scaled) {
    *made = new Description{computed, scaled};
    described++;
    return 0;
}
int cublasLtMatmulDescDestroy(Description* of) {
    delete of;
    described--;
    return 0;
}
int cublasLtMatmulDescSetAttribute(Description* of, int attribute, const void* value, size_t size) {
    switch (attribute) {
        case 3: return set(of->transposed[0], value, size);
        case 4: return set(of->transposed[1], value, size);
        case 7: return set(of->epilogue, value, size);
        case 8: return set(of->bias, value, size);
    }
    return INVALID_VALUE;
}
int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns, int64_t step) {
    *made = new Layout{type, rows, columns, step};
    described++;
    return 0;
}
int cublasLtMatrixLayoutDestroy(Layout* of) {
    delete of;
    described--;
    return 0;
}
int cublasLtMatrixLayoutSetAttribute(Layout* of, int attribute, const void* value, size_t size) {
    if (attribute == 5) return set(of->batches, value, size);
    return attribute == 6 ? set(of->batch_step, value, size) : INVALID_VALUE;
}
int cublasLtMatmulPreferenceCreate(Preference** made) {
    *made = new Preference;
    return 0;
}
int cublasLtMatmulPreferenceDestroy(Preference* of) {
    delete of;
    return 0;
}
int cublasLtMatmulPreferenceSetAttribute(Preference* of, int attribute, const void* value, size_t size) {
    if (attribute == 1) return set(of->workspace, value, size);
    return attribute >= 5 && attribute <= 8 ? set(of->alignment[attribute - 5], value, size) : INVALID_VALUE;
}
int cublasLtMatmulAlgoGetHeuristic(void*, const Description* how, const Layout* a, const Layout* b, const Layout* c,
                                   const Layout* d, const Preference* preference, int asked, Found* found, int* count) {
    *count = 0;
    if (c != d || asked < 1 || !fits(*how, *a, *b, *d)) return INVALID_VALUE;
    for (uint32_t each : preference->alignment)
        if (!each || each & (each - 1)) return INVALID_VALUE;
    const bool known = (d->type == 0 && how->computed == 68 && how->scaled == 0) ||
                       (d->type == 1 && how->computed == 70 && how->scaled == 1);
    if (!known || preference->workspace < WORKSPACE) return NOT_SUPPORTED;
    *found = {{ALGORITHM}, WORKSPACE, 0, 1.0f, {}};
    *count = 1;
    return 0;
}
int cublasLtMatmul(void* handle, const Description* how, const void* alpha, uint64_t a, const Layout* la, uint64_t b,
                   const Layout* lb, const void* beta, uint64_t, const Layout*, uint64_t d, const Layout* ld,
                   const uint64_t* algorithm, void* workspace, size_t size, void* stream) {
    if (handle != &calls || *algorithm != ALGORITHM || !workspace || size < WORKSPACE) return INVALID_VALUE;
    if (std::getenv("PAPER_CUBLASLT_FAILS")) return EXECUTION_FAILED;
    if (cuStreamSynchronize(stream)) return EXECUTION_FAILED;
    calls++;
    return ld->type == 1 ? multiply<double>(*how, alpha, a, *la, b, *lb, beta, d, *ld)
                         : multiply<float>(*how, alpha, a, *la, b, *lb, beta, d, *ld);
}

}  // extern "C"
