// Graphs: work that streams were given while they captured, to be done again as a whole.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "state.hpp"

namespace emulator {

// Work in the order in which it was captured, which is one that the streams allow.
struct Graph {
    Context* context = nullptr;
    std::vector<std::function<CUresult()>> nodes;
};

struct Capture {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    std::shared_ptr<Stream> origin;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id thread;
    bool invalid = false;
    bool ended = false;
};

bool is_open(const std::shared_ptr<Capture>& capture);
// Let all streams of a capture go.
void end(std::shared_ptr<Capture> capture);

// Put work into the graph that a stream captures.
CUresult take(const std::shared_ptr<Stream>& stream, std::function<CUresult()> run);
// Have a stream follow an event of a graph, and so become a part of it.
CUresult follow(const std::shared_ptr<Stream>& stream, const Event& event);

// The errors of calls that cannot be captured; they make the capture invalid.
CUresult refuse_in_capture(const std::shared_ptr<Stream>& stream);
CUresult refuse_while_capturing(Context* context);
CUresult refuse_beside_captures(Context* context);
// What may wait for the device behind the program's back, which the mode of a capture forbids.
CUresult refuse_unsafe();

}  // namespace emulator
