// The order of work on a simulated GPU: streams, events, captured graphs, and what waits for them.
//
// Launches and operators of torch are queued by stream and run as late as CUDA may run them: when the
// host waits for what they write. Everything here is guarded by one lock, which is taken without
// Python's, since whoever runs a launch needs that one.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace simulated {

constexpr int kDevices = 2;

using StreamKey = std::pair<int, int64_t>;  // device, stream

struct Current {
  int device = 0;
  int64_t streams[kDevices] = {};
  StreamKey stream() const { return {device, streams[device]}; }
};
inline thread_local Current current;
inline thread_local int depth = 0;  // above 0 within the kernel of an operator
inline thread_local bool replaying = false;

// -- what tests ask ------------------------------------------------------------------------------

struct Journal {
  std::mutex lock;
  std::map<std::string, long> counts;
  bool refuse_waits = false;
  void count(const std::string& what) {
    std::lock_guard<std::mutex> held(lock);
    ++counts[what];
  }
};
inline Journal journal;

// -- captures ------------------------------------------------------------------------------------

struct UserObject {
  void* pointer;
  void (*destroy)(void*);
};

struct Graph {
  std::vector<std::function<void()>> nodes;
  std::vector<void*> memory;  // of tensors made in the capture, kept as long as the graph
  std::vector<UserObject> objects;  // told that the graph is gone
  uint64_t id = 0;
  StreamKey stream;
  std::string broken;  // what ended the capture
};
inline std::shared_ptr<Graph> capture;  // CUDA has several; one is enough here

inline bool is_capturing() { return capture && capture->stream == current.stream(); }

[[noreturn]] inline void refuse_in_capture(const std::string& what) {
  capture->broken = what;
  throw std::runtime_error("CUDA error: operation not permitted when stream is capturing: " + what +
                           " (simulated)");
}

// The host waits for this thread's stream.
inline void stream_wait(const std::string& what) {
  journal.count("wait");
  journal.count("wait: " + what);
  if (is_capturing()) refuse_in_capture(what);
  if (journal.refuse_waits)
    throw std::runtime_error("called a synchronizing CUDA operation: " + what + " (simulated)");
}

// -- streams and events --------------------------------------------------------------------------

struct Event {
  bool is_done = true, is_captured = false, is_recorded = false;
  int n_queries = 0;  // since it was recorded
  StreamKey stream;
};
using EventPointer = std::shared_ptr<Event>;

struct Task {
  enum Kind { kWork, kRecord, kWait } kind;
  std::function<void()> work;
  EventPointer event;
};
constexpr size_t kMostTasks = 1024;  // of a stream, as of CUDA; a further one waits for the others

inline std::map<StreamKey, std::deque<Task>> queues;
inline std::recursive_mutex queue_mutex;
inline std::atomic<long> pending{0};

class QueueLock {
 public:
  QueueLock() {
    PyThreadState* state = Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
    queue_mutex.lock();
    if (state) PyEval_RestoreThread(state);
  }
  ~QueueLock() { queue_mutex.unlock(); }
};

// Counts a task as done when it is over, with an error too: another thread waits until then.
struct Finished {
  ~Finished() { --pending; }
};

// Runs what is queued on a stream, up to an event or to its end.
inline void run_queue(const StreamKey& stream, const Event* last = nullptr) {
  if (pending.load() == 0) return;
  QueueLock lock;
  auto& queue = queues[stream];
  while (!queue.empty()) {
    Task task = std::move(queue.front());
    queue.pop_front();
    Finished finished;
    if (task.kind == Task::kWork) {
      task.work();
    } else if (task.kind == Task::kRecord) {
      task.event->is_done = true;
      if (task.event.get() == last) return;
    } else if (!task.event->is_done) {
      run_queue(task.event->stream, task.event.get());
    }
  }
}

inline void run_current() { run_queue(current.stream()); }

inline void run_device(int device) {
  QueueLock lock;
  std::vector<StreamKey> keys;
  for (auto& [key, queue] : queues)
    if (key.first == device) keys.push_back(key);
  for (auto& key : keys) run_queue(key);
}

inline void enqueue(const StreamKey& stream, Task task) {
  QueueLock lock;
  if (queues[stream].size() >= kMostTasks) run_queue(stream);
  queues[stream].push_back(std::move(task));
  ++pending;
}

inline void record_event(const EventPointer& event, const StreamKey& stream) {
  event->stream = stream;
  event->is_recorded = true;
  event->n_queries = 0;
  event->is_captured = capture && capture->stream == stream;
  event->is_done = event->is_captured;
  if (!event->is_captured) enqueue(stream, {Task::kRecord, nullptr, event});
}

inline void wait_event(const EventPointer& event, const StreamKey& stream) {
  if (!event->is_recorded) return;
  const bool captured = capture && capture->stream == stream;
  if (captured && !event->is_captured)
    refuse_in_capture("waiting for an event of another stream that is not captured");
  if (!captured && event->is_captured && capture)
    refuse_in_capture("a stream that is not captured waits for one that is");
  if (!captured && !event->is_captured) enqueue(stream, {Task::kWait, nullptr, event});
}

// Time passes between queries: not done at the first ones, and done in the end.
constexpr int kQueries = 2;

inline bool query_event(const EventPointer& event) {
  if (capture) refuse_in_capture("querying an event");  // in any thread: torch's "global" mode
  if (!event->is_done && ++event->n_queries > kQueries) run_queue(event->stream, event.get());
  return event->is_done;
}

inline void synchronize_event(const EventPointer& event) {
  if (capture) refuse_in_capture("synchronizing with an event");
  journal.count("wait");
  if (!event->is_done) run_queue(event->stream, event.get());
}

inline void synchronize_stream(const StreamKey& stream) {
  journal.count("wait");
  if (capture && capture->stream == stream) refuse_in_capture("synchronizing with a stream");
  if (journal.refuse_waits) throw std::runtime_error("synchronized with a stream (simulated)");
  run_queue(stream);
}

inline void synchronize_device(int device) {
  journal.count("wait");
  if (capture && capture->stream.first == device) refuse_in_capture("synchronizing with a device");
  if (journal.refuse_waits) throw std::runtime_error("synchronized with a device (simulated)");
  run_device(device);
}

}  // namespace simulated
