// Devices, contexts, streams and events, and the one lock that guards all of them.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace emulator {

struct Capture;
struct Context;
struct Stream;

// How far a place of a captured graph has every stream behind it: numbers of nodes.
using Reached = std::map<const Stream*, uint64_t>;

// A place in a stream: all work before it is done.
struct Point {
    std::shared_ptr<Stream> stream;
    uint64_t upto = 0;
};

// One piece of work that waits in a stream, after `after`.
struct Work {
    std::function<CUresult()> run;
    std::vector<Point> after;
};

struct Stream {
    Context* context = nullptr;
    unsigned flags = 0;
    int priority = 0;
    bool legacy = false;
    bool destroyed = false;
    std::deque<Work> queue;
    uint64_t enqueued = 0;
    uint64_t done = 0;
    bool running = false;
    std::thread::id runner;
    // Of a graph that takes the stream's work in place of the device, and what it follows there.
    std::shared_ptr<Capture> capture;
    Reached reached;

    bool is_blocking() const { return !legacy && !(flags & CU_STREAM_NON_BLOCKING); }
};

struct Event {
    Context* context = nullptr;
    unsigned flags = 0;
    bool recorded = false;
    Point point;
    // Shared with the work that writes it, which may outlive the event.
    std::shared_ptr<double> milliseconds;
    // Where it was recorded in a graph.
    std::shared_ptr<Capture> capture;
    Reached reached;
};

struct Context {
    int device = 0;
    unsigned flags = 0;
    bool primary = false;
    CUresult sticky = CUDA_SUCCESS;
    std::shared_ptr<Stream> legacy;
    std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
    std::vector<std::shared_ptr<Stream>> streams;
    std::set<Context*> peers;
    std::map<int, size_t> limits;
};

struct Device {
    std::shared_ptr<Context> primary;
    unsigned retained = 0;
    unsigned flags = 0;
    size_t used = 0;
};

struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool initialised = false;
    pid_t process = 0;
    std::vector<Device> devices;
    std::map<Context*, std::shared_ptr<Context>> contexts;
    std::map<Stream*, std::shared_ptr<Stream>> streams;
    std::map<Event*, std::shared_ptr<Event>> events;
    std::set<std::shared_ptr<Capture>> captures;
};

State& state();
std::vector<Context*>& stack_of_this_thread();
Context* current();

std::shared_ptr<Context> make_context(int device, unsigned flags, bool primary);
// Let everything that belongs to a context go: its work is dropped, its memory unmapped.
void destroy_context(Context* context);

// The stream behind a handle, NULL and the two special values included; null when there is none.
std::shared_ptr<Stream> find_stream(CUstream handle);
std::shared_ptr<Stream> make_stream(Context* context, unsigned flags, int priority);

// Put work at the end of a stream, after all that CUDA's rules put before it.
CUresult enqueue(const std::shared_ptr<Stream>& stream, std::function<CUresult()> run,
                 std::vector<Point> after = {});
// Do the work of a stream up to a place, with all that has to come before.
CUresult drain(const std::shared_ptr<Stream>& stream, uint64_t upto);
CUresult drain(Context* context);
// Do one piece of work, that a program which only asks goes on.
CUresult advance(const std::shared_ptr<Stream>& stream);
Point end_of(const std::shared_ptr<Stream>& stream);
bool is_done(const Point& point);

// The lock of the call that this thread is in, given up while the program's own functions run.
std::unique_lock<std::mutex>*& lock_of_this_thread();

void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace emulator
