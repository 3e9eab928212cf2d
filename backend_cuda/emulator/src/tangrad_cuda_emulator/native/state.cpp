#include "state.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "graph.hpp"
#include "memory.hpp"
#include "settings.hpp"

namespace emulator {

State& state() {
    // Never destroyed: threads and finalizers of the program may call until the very end.
    static State* all = new State;
    return *all;
}

std::vector<Context*>& stack_of_this_thread() {
    // Kept by a pointer, since pycuda calls from destructors of thread-local objects.
    static thread_local std::vector<Context*>* stack = nullptr;
    if (!stack) stack = new std::vector<Context*>;
    return *stack;
}

Context* current() {
    auto& stack = stack_of_this_thread();
    if (stack.empty() || !state().contexts.count(stack.back())) return nullptr;
    return stack.back();
}

std::unique_lock<std::mutex>*& lock_of_this_thread() {
    static thread_local std::unique_lock<std::mutex>* lock = nullptr;
    return lock;
}

void say(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::fputs("cuda emulator: ", stderr);
    std::vfprintf(stderr, format, arguments);
    std::fputc('\n', stderr);
    va_end(arguments);
}

std::shared_ptr<Context> make_context(int device, unsigned flags, bool primary) {
    auto made = std::make_shared<Context>();
    made->device = device;
    made->flags = flags;
    made->primary = primary;
    made->limits = {{CU_LIMIT_STACK_SIZE, 1024},
                    {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
                    {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20}};
    made->legacy = std::make_shared<Stream>();
    made->legacy->context = made.get();
    made->legacy->legacy = true;
    state().contexts[made.get()] = made;
    return made;
}

void destroy_context(Context* context) {
    auto& all = state();
    auto keep = all.contexts[context];
    for (auto& stream : context->streams) {
        stream->queue.clear();
        stream->done = stream->enqueued;
        stream->destroyed = true;
        if (stream->capture) end(stream->capture);
        all.streams.erase(stream.get());
    }
    context->legacy->queue.clear();
    context->legacy->done = context->legacy->enqueued;
    context->legacy->destroyed = true;
    for (auto it = all.events.begin(); it != all.events.end();)
        it = it->second->context == context ? all.events.erase(it) : std::next(it);
    memory().release_all(context);
    all.contexts.erase(context);
    auto& stack = stack_of_this_thread();
    stack.erase(std::remove(stack.begin(), stack.end(), context), stack.end());
}

std::shared_ptr<Stream> make_stream(Context* context, unsigned flags, int priority) {
    auto made = std::make_shared<Stream>();
    made->context = context;
    made->flags = flags;
    made->priority = priority;
    context->streams.push_back(made);
    state().streams[made.get()] = made;
    return made;
}

std::shared_ptr<Stream> find_stream(CUstream handle) {
    Context* context = current();
    if (!context) return nullptr;
    if (handle == nullptr || handle == CU_STREAM_LEGACY) return context->legacy;
    if (handle == CU_STREAM_PER_THREAD) {
        auto& mine = context->per_thread[std::this_thread::get_id()];
        if (!mine) mine = make_stream(context, CU_STREAM_DEFAULT, 0);
        return mine;
    }
    auto found = state().streams.find(reinterpret_cast<Stream*>(handle));
    return found == state().streams.end() ? nullptr : found->second;
}

Point end_of(const std::shared_ptr<Stream>& stream) { return {stream, stream->enqueued}; }

bool is_done(const Point& point) { return !point.stream || point.stream->done >= point.upto; }

CUresult enqueue(const std::shared_ptr<Stream>& stream, std::function<CUresult()> run,
                 std::vector<Point> after) {
    if (stream->capture) return take(stream, std::move(run));
    Context* context = stream->context;
    if (stream->legacy) {
        if (CUresult failed = refuse_beside_captures(context)) return failed;
        for (auto& other : context->streams)
            if (other->is_blocking() && other->done < other->enqueued) after.push_back(end_of(other));
    } else if (stream->is_blocking() && context->legacy->done < context->legacy->enqueued) {
        after.push_back(end_of(context->legacy));
    }
    stream->queue.push_back({std::move(run), std::move(after)});
    stream->enqueued++;
    return settings().eager ? drain(stream, stream->enqueued) : CUDA_SUCCESS;
}

namespace {

CUresult run_one(const std::shared_ptr<Stream>& stream) {
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    stream->running = true;
    stream->runner = std::this_thread::get_id();
    CUresult result = CUDA_SUCCESS;
    for (auto& point : work.after)
        if (CUresult failed = drain(point.stream, point.upto)) result = failed;
    Context* context = stream->context;
    if (!context->sticky) result = work.run();
    if (result && !context->sticky) context->sticky = result;
    stream->running = false;
    stream->done++;
    state().changed.notify_all();
    return context->sticky;
}

}  // namespace

CUresult drain(const std::shared_ptr<Stream>& stream, uint64_t upto) {
    while (stream && stream->done < upto) {
        if (stream->running) {
            if (stream->runner == std::this_thread::get_id()) return CUDA_ERROR_NOT_PERMITTED;
            state().changed.wait(*lock_of_this_thread());
            continue;
        }
        run_one(stream);
    }
    memory().close();
    // Events outlive the contexts of the streams that they were recorded in.
    return stream && !stream->destroyed ? stream->context->sticky : CUDA_SUCCESS;
}

CUresult drain(Context* context) {
    auto streams = context->streams;
    streams.push_back(context->legacy);
    for (auto& stream : streams) drain(stream, stream->enqueued);
    return context->sticky;
}

CUresult advance(const std::shared_ptr<Stream>& stream) {
    if (stream->running || stream->queue.empty()) return CUDA_SUCCESS;
    return drain(stream, stream->done + 1);
}

}  // namespace emulator
