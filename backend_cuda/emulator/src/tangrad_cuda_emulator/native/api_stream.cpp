// Streams, events and functions of the host that run between kernels.

#include <cuda.h>

#include <algorithm>
#include <chrono>

#include "failures.hpp"
#include "graph.hpp"
#include "memory.hpp"

using namespace emulator;

// First lines of a function of a stream.
#define ENTER_STREAM(handle)            \
    ENTER(Context);                     \
    auto stream = find_stream(handle);  \
    REQUIRE(stream, CUDA_ERROR_INVALID_HANDLE)

namespace {

double milliseconds() {
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

std::shared_ptr<Event> find_event(CUevent handle) {
    auto found = state().events.find(reinterpret_cast<Event*>(handle));
    return found == state().events.end() ? nullptr : found->second;
}

// Run a function of the program's without the lock, which it may need itself.
template <class F> void unlocked(F call) {
    auto* lock = lock_of_this_thread();
    memory().close();
    lock->unlock();
    call();
    lock->lock();
    lock_of_this_thread() = lock;
}

// Let a stream call a function of the program's.
template <class F> CUresult enqueue_call(const std::shared_ptr<Stream>& stream, F call) {
    return enqueue(stream, [=] {
        unlocked(call);
        return CUDA_SUCCESS;
    });
}

CUresult create_stream(CUstream* made, unsigned flags, int priority) {
    REQUIRE(made && (flags & ~unsigned(CU_STREAM_NON_BLOCKING)) == 0, CUDA_ERROR_INVALID_VALUE);
    *made = reinterpret_cast<CUstream>(make_stream(current(), flags, priority).get());
    return CUDA_SUCCESS;
}

CUresult record(CUevent handle, CUstream stream_handle) {
    auto event = find_event(handle);
    auto stream = find_stream(stream_handle);
    REQUIRE(event && stream, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(event->context == stream->context, CUDA_ERROR_INVALID_HANDLE);
    event->capture = stream->capture;
    event->reached = stream->reached;
    if (stream->capture) return CUDA_SUCCESS;
    auto time = std::make_shared<double>(0);
    event->milliseconds = time;
    event->recorded = true;
    event->point = {stream, stream->enqueued + 1};
    return enqueue(stream, [time] {
        *time = milliseconds();
        return CUDA_SUCCESS;
    });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* made, unsigned int flags) {
    ENTER(Context);
    return create_stream(made, flags, 0);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* made, unsigned int flags, int priority) {
    ENTER(Context);
    return create_stream(made, flags, std::max(-5, std::min(0, priority)));
}

CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
    ENTER(Initialised);
    auto found = state().streams.find(reinterpret_cast<Stream*>(handle));
    REQUIRE(found != state().streams.end(), CUDA_ERROR_INVALID_HANDLE);
    auto stream = found->second;
    if (stream->capture) end(stream->capture);
    drain(stream, stream->enqueued);
    auto& streams = stream->context->streams;
    streams.erase(std::remove(streams.begin(), streams.end(), stream), streams.end());
    stream->destroyed = true;
    state().streams.erase(stream.get());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
    ENTER_STREAM(handle);
    if (CUresult failed = refuse_in_capture(stream)) return failed;
    // The legacy stream is done when what runs beside it by the rules is done, too.
    if (stream->legacy) return enqueue(stream, [] { return CUDA_SUCCESS; }), drain(stream, stream->enqueued);
    return drain(stream, stream->enqueued);
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
    ENTER_STREAM(handle);
    if (CUresult failed = refuse_in_capture(stream)) return failed;
    if (stream->done >= stream->enqueued) return CUDA_SUCCESS;
    const CUresult failed = advance(stream);
    return failed ? failed : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int) {
    ENTER(Context);
    auto stream = find_stream(handle);
    auto event = find_event(event_handle);
    REQUIRE(stream && event, CUDA_ERROR_INVALID_HANDLE);
    if (is_open(event->capture)) return follow(stream, *event);
    if (!event->recorded) return CUDA_SUCCESS;
    // Work of a graph cannot wait for what is no part of it.
    if (stream->capture) return stream->capture->invalid = true, CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    return enqueue(stream, [] { return CUDA_SUCCESS; }, {event->point});
}

CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned int* flags) {
    ENTER_STREAM(handle);
    return tell(flags, stream->flags);
}

CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int* priority) {
    ENTER_STREAM(handle);
    return tell(priority, stream->priority);
}

#undef cuStreamGetCtx
CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext* context) {
    ENTER_STREAM(handle);
    return tell(context, reinterpret_cast<CUcontext>(stream->context));
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
    ENTER(Context);
    auto stream = find_stream(handle);
    REQUIRE(stream, CUDA_ERROR_INVALID_HANDLE);
    if (!stream->capture) return tell(status, CU_STREAM_CAPTURE_STATUS_NONE);
    return tell(status, stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

CUresult CUDAAPI cuStreamAttachMemAsync(CUstream handle, CUdeviceptr, size_t, unsigned int) {
    ENTER(Context);
    REQUIRE(find_stream(handle), CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
    ENTER_STREAM(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_VALUE);
    return enqueue_call(stream, [=] { function(data); });
}

CUresult CUDAAPI cuStreamAddCallback(CUstream handle, CUstreamCallback function, void* data, unsigned int) {
    ENTER_STREAM(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_VALUE);
    return enqueue_call(stream, [=] { function(handle, CUDA_SUCCESS, data); });
}

CUresult CUDAAPI cuEventCreate(CUevent* made, unsigned int flags) {
    ENTER(Context);
    REQUIRE(made, CUDA_ERROR_INVALID_VALUE);
    auto event = std::make_shared<Event>();
    event->context = current();
    event->flags = flags;
    state().events[event.get()] = event;
    *made = reinterpret_cast<CUevent>(event.get());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent handle) {
    ENTER(Initialised);
    return state().events.erase(reinterpret_cast<Event*>(handle)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
    ENTER(Context);
    return record(event, stream);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int) {
    ENTER(Context);
    return record(event, stream);
}

CUresult CUDAAPI cuEventQuery(CUevent handle) {
    ENTER(Context);
    auto event = find_event(handle);
    REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(!is_open(event->capture), CUDA_ERROR_CAPTURED_EVENT);
    if (CUresult failed = refuse_unsafe()) return failed;
    if (is_done(event->point)) return CUDA_SUCCESS;
    const CUresult failed = advance(event->point.stream);
    return failed ? failed : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
    ENTER(Context);
    auto event = find_event(handle);
    REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(!is_open(event->capture), CUDA_ERROR_CAPTURED_EVENT);
    return drain(event->point.stream, event->point.upto);
}

CUresult CUDAAPI cuEventElapsedTime(float* elapsed, CUevent first, CUevent last) {
    ENTER(Context);
    auto start = find_event(first), end = find_event(last);
    REQUIRE(start && end, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(elapsed, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(start->recorded && end->recorded, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(!((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(is_done(start->point) && is_done(end->point), CUDA_ERROR_NOT_READY);
    *elapsed = float(*end->milliseconds - *start->milliseconds);
    return CUDA_SUCCESS;
}

}  // extern "C"
