// Capturing streams, and launching what was captured.

#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "failures.hpp"
#include "graph.hpp"

using namespace emulator;

namespace {

struct Executable {
    std::shared_ptr<Graph> graph;
};

template <class T> std::map<T*, std::shared_ptr<T>>& all() {
    static auto* found = new std::map<T*, std::shared_ptr<T>>;
    return *found;
}

template <class T, class Handle> std::shared_ptr<T> find(Handle handle) {
    auto found = all<T>().find(reinterpret_cast<T*>(handle));
    return found == all<T>().end() ? nullptr : found->second;
}

CUstreamCaptureMode& mode_of_this_thread() {
    static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return mode;
}

std::vector<std::shared_ptr<Stream>> streams_of(const Capture& capture) {
    std::vector<std::shared_ptr<Stream>> found;
    for (auto& stream : capture.graph->context->streams)
        if (stream->capture.get() == &capture) found.push_back(stream);
    return found;
}

}  // namespace

namespace emulator {

bool is_open(const std::shared_ptr<Capture>& capture) { return capture && !capture->ended; }

void end(std::shared_ptr<Capture> capture) {
    capture->ended = true;
    for (auto& stream : streams_of(*capture)) {
        stream->capture = nullptr;
        stream->reached.clear();
    }
    capture->origin = nullptr;
    state().captures.erase(capture);
}

CUresult take(const std::shared_ptr<Stream>& stream, std::function<CUresult()> run) {
    if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture->graph->nodes.push_back(std::move(run));
    stream->reached[stream.get()]++;
    return CUDA_SUCCESS;
}

CUresult follow(const std::shared_ptr<Stream>& stream, const Event& event) {
    if (event.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->capture && stream->capture != event.capture) {
        stream->capture->invalid = event.capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->legacy) {
        event.capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    stream->capture = event.capture;
    for (auto& [other, count] : event.reached) stream->reached[other] = std::max(stream->reached[other], count);
    return CUDA_SUCCESS;
}

CUresult refuse_in_capture(const std::shared_ptr<Stream>& stream) {
    if (!stream->capture) return CUDA_SUCCESS;
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult refuse_while_capturing(Context* context) {
    CUresult result = CUDA_SUCCESS;
    for (auto& stream : context->streams)
        if (CUresult failed = refuse_in_capture(stream)) result = failed;
    return result;
}

CUresult refuse_beside_captures(Context* context) {
    CUresult result = CUDA_SUCCESS;
    for (auto& stream : context->streams)
        if (stream->capture && stream->is_blocking()) {
            stream->capture->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return result;
}

CUresult refuse_unsafe() {
    const CUstreamCaptureMode mine = mode_of_this_thread();
    if (mine == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    for (auto& capture : state().captures) {
        const bool own = capture->thread == std::this_thread::get_id();
        const bool forbidden = own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                   : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                         mine == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!forbidden) continue;
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

}  // namespace emulator

extern "C" {

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    ENTER(Nothing);
    REQUIRE(mode, CUDA_ERROR_INVALID_VALUE);
    std::swap(*mode, mode_of_this_thread());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
    ENTER(Context);
    auto stream = find_stream(handle);
    REQUIRE(stream, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(!stream->legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    REQUIRE(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    auto made = std::make_shared<Capture>();
    made->graph->context = stream->context;
    made->origin = stream;
    made->mode = mode;
    made->thread = std::this_thread::get_id();
    stream->capture = made;
    stream->reached.clear();
    state().captures.insert(made);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph* made) {
    ENTER(Context);
    auto stream = find_stream(handle);
    REQUIRE(stream, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(made, CUDA_ERROR_INVALID_VALUE);
    auto capture = stream->capture;
    REQUIRE(capture, CUDA_ERROR_ILLEGAL_STATE);
    REQUIRE(capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->thread == std::this_thread::get_id(),
            CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    REQUIRE(capture->origin == stream, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    *made = nullptr;
    bool joined = true;
    for (auto& other : streams_of(*capture))
        joined = joined && stream->reached[other.get()] >= other->reached[other.get()];
    end(capture);
    REQUIRE(!capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    REQUIRE(joined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    all<Graph>()[capture->graph.get()] = capture->graph;
    *made = reinterpret_cast<CUgraph>(capture->graph.get());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph handle, unsigned long long) {
    ENTER(Initialised);
    auto graph = find<Graph>(handle);
    REQUIRE(graph && made, CUDA_ERROR_INVALID_VALUE);
    auto executable = std::make_shared<Executable>();
    executable->graph = std::make_shared<Graph>(*graph);
    all<Executable>()[executable.get()] = executable;
    *made = reinterpret_cast<CUgraphExec>(executable.get());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
    ENTER(Context);
    auto executable = find<Executable>(handle);
    auto stream = find_stream(stream_handle);
    REQUIRE(executable && stream, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(executable->graph->context == stream->context, CUDA_ERROR_INVALID_CONTEXT);
    for (auto& node : executable->graph->nodes)
        if (CUresult failed = enqueue(stream, node)) return failed;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec handle, CUstream stream) {
    ENTER(Context);
    REQUIRE(find<Executable>(handle) && find_stream(stream), CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    ENTER(Initialised);
    auto graph = find<Graph>(handle);
    REQUIRE(graph && count, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!nodes, CUDA_ERROR_NOT_SUPPORTED);  // nodes have no handles here
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned int) {
    ENTER(Initialised);
    auto graph = find<Graph>(handle);
    REQUIRE(graph && path, CUDA_ERROR_INVALID_VALUE);
    std::FILE* file = std::fopen(path, "w");
    REQUIRE(file, CUDA_ERROR_OPERATING_SYSTEM);
    std::fputs("digraph graph_1 {\n", file);
    for (size_t i = 0; i < graph->nodes.size(); i++) std::fprintf(file, "  node_%zu;\n", i);
    for (size_t i = 1; i < graph->nodes.size(); i++) std::fprintf(file, "  node_%zu -> node_%zu;\n", i - 1, i);
    std::fputs("}\n", file);
    return std::fclose(file) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle) {
    ENTER(Initialised);
    return all<Executable>().erase(reinterpret_cast<Executable*>(handle)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle) {
    ENTER(Initialised);
    return all<Graph>().erase(reinterpret_cast<Graph*>(handle)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
