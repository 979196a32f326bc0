// A GPU for torch without a GPU: the backend PrivateUse1 on memory of the host.
//
// Operators run as those of the CPU on the same memory. What differs is what differs on CUDA: they run
// late, in the order of their stream; fresh memory is NaN, freed memory is overwritten, the host cannot
// read tensors without a copy that waits, tensors of other devices are refused, and work is captured in
// graphs and replayed.
#include "order.h"

#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>

#include <cstring>
#include <unordered_map>
#include <unordered_set>

namespace py = pybind11;
using namespace simulated;

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

bool is_ours(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }

// -- memory --------------------------------------------------------------------------------------

struct Block {
  void* pointer;
  size_t bytes;
  std::vector<StreamKey> streams;  // of its allocation, and those that it was recorded on
  bool is_of_graph;
};
std::mutex memory_mutex;
std::unordered_map<void*, Block> blocks;
// Freed memory is not reused for a while, so that reading it finds what it was overwritten with.
std::deque<Block> freed;
size_t freed_bytes = 0;
constexpr size_t kMaxFreed = size_t(128) << 20;
constexpr int kFresh = 0xFF, kFreed = 0xA5;  // NaN or -1; garbage
size_t live_bytes = 0, memory_limit = SIZE_MAX;

bool is_beyond_limit(size_t bytes) {
  std::lock_guard<std::mutex> held(memory_mutex);
  return bytes > memory_limit || live_bytes > memory_limit - bytes;
}

void overwrite_freed(Block block) {
  std::memset(block.pointer, kFreed, block.bytes);
  std::lock_guard<std::mutex> held(memory_mutex);
  freed_bytes += block.bytes;
  freed.push_back(std::move(block));
  while (freed_bytes > kMaxFreed) {
    freed_bytes -= freed.front().bytes;
    std::free(freed.front().pointer);
    freed.pop_front();
  }
}

// The allocator reuses a block in the order of its streams: nobody waits for that.
void free_in_order(Block block) {
  if (!pending.load()) return overwrite_freed(std::move(block));
  for (size_t i = 1; i < block.streams.size(); ++i) {
    auto event = std::make_shared<Event>();
    event->stream = block.streams[i];
    event->is_recorded = true;
    event->is_done = false;
    enqueue(event->stream, {Task::kRecord, nullptr, event});
    enqueue(block.streams[0], {Task::kWait, nullptr, event});
  }
  const auto stream = block.streams[0];
  enqueue(stream, {Task::kWork, [block = std::move(block)] { overwrite_freed(block); }, nullptr});
}

void free_block(void* pointer) {
  if (!pointer) return;
  Block block;
  {
    std::lock_guard<std::mutex> held(memory_mutex);
    auto found = blocks.find(pointer);
    if (found == blocks.end() || found->second.is_of_graph) return;  // the graph frees it
    block = found->second;
    live_bytes -= block.bytes;
    blocks.erase(found);
  }
  free_in_order(std::move(block));
}

struct HostMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = nullptr;
    if (bytes) {
      if (!replaying) journal.count("allocation");
      if (!replaying && !is_capturing() && is_beyond_limit(bytes))
        for (int device = 0; device < kDevices; ++device) run_device(device);  // what is held there
      {
        std::lock_guard<std::mutex> held(memory_mutex);
        if (!replaying) TORCH_CHECK_WITH(OutOfMemoryError, bytes <= memory_limit && live_bytes <= memory_limit - bytes,
                         "simulated out of memory: ", bytes, " bytes beside ", live_bytes);
        live_bytes += bytes;
      }
      TORCH_CHECK(posix_memalign(&pointer, 256, (bytes + 511) / 512 * 512) == 0, "out of memory");
      std::memset(pointer, kFresh, bytes);
      std::lock_guard<std::mutex> held(memory_mutex);
      const bool captured = is_capturing();
      blocks[pointer] = {pointer, bytes, {current.stream()}, captured};
      if (captured) capture->memory.push_back(pointer);
    }
    return {pointer, pointer, &free_block, c10::Device(kType, current.device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};
HostMemory allocator;
REGISTER_ALLOCATOR(kType, &allocator);

void drop_graph(Graph* graph) {
  graph->nodes.clear();
  for (void* pointer : graph->memory) {
    {
      std::lock_guard<std::mutex> held(memory_mutex);
      auto found = blocks.find(pointer);
      if (found != blocks.end()) found->second.is_of_graph = false;
    }
    free_block(pointer);
  }
  for (auto& object : graph->objects) object.destroy(object.pointer);
  delete graph;
}

// -- what torch asks about devices and streams ---------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kType;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  static int index_of(c10::Device device) { return device.index() < 0 ? current.device : device.index(); }
  static StreamKey key_of(const c10::Stream& s) { return {s.device_index(), s.id()}; }
  static c10::Stream stream_of(StreamKey key) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, key.first), key.second);
  }
  c10::DeviceType type() const override { return kType; }
  c10::Device getDevice() const override { return {kType, static_cast<c10::DeviceIndex>(current.device)}; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    current.device = index_of(device);
    return before;
  }
  void setDevice(c10::Device device) const override { current.device = index_of(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current.device = index_of(device); }
  c10::Stream getStream(c10::Device device) const override {
    const int i = index_of(device);
    return stream_of({i, current.streams[i]});
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of({index_of(device), 0}); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto before = getStream(stream.device());
    current.streams[stream.device_index()] = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  static EventPointer& event_of(void* event) { return *static_cast<EventPointer*>(event); }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new EventPointer(std::make_shared<Event>());
    record_event(event_of(*event), key_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override { wait_event(event_of(event), key_of(stream)); }
  bool queryEvent(void* event) const override { return !event || query_event(event_of(event)); }
  void synchronizeEvent(void* event) const override { if (event) synchronize_event(event_of(event)); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<EventPointer*>(event); }
  bool queryStream(const c10::Stream& stream) const override { return queues[key_of(stream)].empty(); }
  void synchronizeStream(const c10::Stream& stream) const override { synchronize_stream(key_of(stream)); }
  void synchronizeDevice(const c10::DeviceIndex index) const override { synchronize_device(index); }
  bool isStreamCapturing(const c10::Stream& stream) const override { return capture && capture->stream == key_of(stream); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    std::lock_guard<std::mutex> held(memory_mutex);
    auto found = blocks.find(data.get());
    if (found != blocks.end()) found->second.streams.push_back(key_of(stream));
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

StreamKey current_of(int device) { return {device, current.streams[device]}; }

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current.device; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current.device = device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    auto before = current.device;
    if (device >= 0) current.device = device;
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  at::Allocator* getPinnedMemoryAllocator() const override { return at::getCPUAllocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const int before = current.device;
    current.device = storage.device().index();
    auto fresh = allocator.allocate(bytes);
    current.device = before;
    if (depth == 0 && storage.nbytes() && !is_capturing()) run_queue(current_of(storage.device().index()));
    if (storage.data()) std::memcpy(fresh.get(), storage.data(), std::min(bytes, storage.nbytes()));
    const_cast<c10::Storage&>(storage).set_data_ptr_noswap(std::move(fresh));
    const_cast<c10::Storage&>(storage).set_nbytes(bytes);
  }
};
Hooks hooks;

// -- tensors of the CPU on the same memory -------------------------------------------------------

at::Tensor on_host(const at::Tensor& tensor) {
  if (!is_ours(tensor)) return tensor;
  auto options = tensor.options().device(at::kCPU);
  auto* base = static_cast<char*>(tensor.storage().mutable_data());
  if (!base) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  auto made = at::from_blob(base + tensor.storage_offset() * tensor.element_size(), tensor.sizes(),
                            tensor.strides(), [tensor](void*) {}, options);
  made._set_conj(tensor.is_conj());
  made._set_neg(tensor.is_neg());
  return made;
}

// A tensor of a device with the values of one of the host; its memory is the device's own.
at::Tensor on_device(const at::Tensor& tensor, int index, bool with_values = true) {
  if (!tensor.defined() || is_ours(tensor)) return tensor;
  const auto bytes = tensor.storage().nbytes();
  const int before = current.device;
  current.device = index;
  auto data = allocator.allocate(bytes);
  current.device = before;
  if (bytes && with_values) std::memcpy(data.get(), tensor.storage().data(), bytes);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), &allocator, true);
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return made;
}

// -- operators -----------------------------------------------------------------------------------

// Calls a function with each tensor of a value, and puts what it returns in its place.
template <class F>
c10::IValue mapped(const c10::IValue& value, F&& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) list.push_back(change(each));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (std::optional<at::Tensor> each : value.toOptionalTensorList())
      list.push_back(each && each->defined() ? std::optional(change(*each)) : std::nullopt);
    return list;
  }
  if (value.isDevice() && value.toDevice().type() == kType) return c10::Device(at::kCPU);
  return value;
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](auto* each) { return name == each; });
}

// What reads values of the device on the host, on CUDA.
bool waits_for_host(const std::string& name, const torch::jit::Stack& arguments) {
  if (is_one_of(name, {"aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim",
                       "aten::unique_consecutive", "aten::equal", "aten::repeat_interleave.Tensor",
                       "aten::bincount", "aten::_linalg_check_errors"}))
    return true;
  bool has_mask = false;
  for (const auto& argument : arguments)
    if (argument.isOptionalTensorList())
      for (std::optional<at::Tensor> each : argument.toOptionalTensorList())
        has_mask |= each && each->defined() && (each->scalar_type() == at::kBool || each->scalar_type() == at::kByte);
  return has_mask;
}

// Whether an operator draws random numbers, which are those of the host in the order of its calls.
bool draws(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& each) {
    return each.name() == "generator";
  });
}

// The device of the operands; all have to be on one, but for single numbers of the host.
int common_device(const std::string& name, const torch::jit::Stack& arguments) {
  int index = -1;
  bool has_host = false;
  for (const auto& argument : arguments) {
    const bool is_index = argument.isOptionalTensorList();
    if (argument.isDevice() && argument.toDevice().type() == kType && index < 0) index = Guard::index_of(argument.toDevice());
    if (argument.isGenerator() && argument.toGenerator().defined())
      TORCH_CHECK(false, "generators of the host draw no numbers on a simulated GPU, in ", name);
    mapped(argument, [&](const at::Tensor& each) {
      if (is_ours(each)) {
        TORCH_CHECK(index < 0 || index == each.device().index(),
                    "Expected all tensors to be on the same device, but found at least two devices, simulated:",
                    index, " and ", each.device().str(), " in ", name);
        index = each.device().index();
      } else if (each.defined() && each.dim() > 0 && !is_index) {
        has_host = true;
      }
      return each;
    });
  }
  if (index < 0) index = current.device;
  TORCH_CHECK(!has_host, "Expected all tensors to be on the same device, but found at least two devices, simulated:",
              index, " and cpu, in ", name);
  return index;
}

// Runs an operator of the CPU. Its results are the tensors that it wrote into, or new ones.
torch::jit::Stack run_on_host(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, int index, bool with_zeros) {
  std::vector<std::pair<at::Tensor, c10::TensorImpl*>> written;
  torch::jit::Stack stack;
  for (const auto& argument : arguments)
    stack.push_back(mapped(argument, [&](const at::Tensor& each) {
      if (!is_ours(each)) return each;
      auto host = with_zeros ? at::zeros_like(on_host(each)) : on_host(each);
      written.emplace_back(each, host.unsafeGetTensorImpl());
      return host;
    }));
  ++depth;
  try {
    at::AutoDispatchBelowAutograd below;
    op.callBoxed(stack);
  } catch (...) {
    --depth;
    throw;
  }
  for (auto& value : stack)
    value = mapped(value, [&](const at::Tensor& made) {
      for (auto& [tensor, host] : written)
        if (host == made.unsafeGetTensorImpl()) {
          if (tensor.sizes() != made.sizes()) {
            tensor.resize_(made.sizes());
            if (!with_zeros) on_host(tensor).copy_(made);
          }
          return tensor;
        }
      return on_device(made, index, !with_zeros);
    });
  --depth;
  return stack;
}

// What late work reads or writes, without autograd's nodes. A graph keeps its memory; other work does
// not, as on CUDA: what is freed stays what it is until its stream gets there. Numbers of the host are
// read at once.
at::Tensor without_history(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (is_capturing()) return tensor.variable_data();
  if (!is_ours(tensor)) return tensor.detach().clone();
  const auto& storage = tensor.storage();
  c10::Storage same(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    c10::DataPtr(storage.mutable_data(), tensor.device()), nullptr, false);
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(same), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  made._set_conj(tensor.is_conj());
  made._set_neg(tensor.is_neg());
  return made;
}

torch::jit::Stack without_history(const torch::jit::Stack& values) {
  torch::jit::Stack made;
  for (const auto& value : values)
    made.push_back(value.isDevice() ? value : mapped(value, [](const at::Tensor& each) { return without_history(each); }));
  return made;
}

// Work in the order of the current stream of a device, or in the graph that is captured.
void run_late(int index, std::function<void()> work) {
  if (is_capturing()) {
    capture->nodes.push_back(std::move(work));
    return;
  }
  auto in_turn = [work = std::move(work)] {
    at::AutoDispatchBelowAutograd below;
    // Whoever waits may be in the middle of a transform or a trace, which it does not belong to.
    c10::impl::ExcludeDispatchKeyGuard outside(
        c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                             c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                             c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
    const bool before = replaying;
    replaying = true;
    try {
      work();
    } catch (...) {
      replaying = before;
      throw;
    }
    replaying = before;
  };
  enqueue(current_of(index), {Task::kWork, std::move(in_turn), nullptr});
}

// What an operator returns has a shape at once, and values when the stream gets to it.
torch::jit::Stack record_operator(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, int index) {
  const auto& schema = op.schema();
  torch::jit::Stack results;
  const auto& returns = schema.returns();
  const bool writes = std::any_of(returns.begin(), returns.end(), [](const c10::Argument& each) {
    return each.alias_info() && each.alias_info()->isWrite();
  });
  if (writes) {
    for (const auto& result : returns)
      for (size_t i = 0; i < arguments.size(); ++i) {
        const auto* info = schema.arguments()[i].alias_info();
        if (info && result.alias_info() && info->beforeSets() == result.alias_info()->beforeSets())
          results.push_back(arguments[i]);
      }
    // An output that has yet to get its size.
    if (std::any_of(results.begin(), results.end(), [](const c10::IValue& each) {
          return each.isTensor() && each.toTensor().numel() == 0;
        }))
      run_on_host(op, arguments, index, true);
    run_late(index, [op, arguments = without_history(arguments), index] { run_on_host(op, arguments, index, false); });
    return results;
  }
  results = run_on_host(op, arguments, index, true);
  run_late(index, [op, arguments = without_history(arguments), index, results = without_history(results)] {
    auto values = run_on_host(op, arguments, index, false);
    for (size_t i = 0; i < values.size(); ++i) {
      std::vector<at::Tensor> from, to;
      mapped(values[i], [&](const at::Tensor& each) { from.push_back(each); return each; });
      mapped(results[i], [&](const at::Tensor& each) { to.push_back(each); return each; });
      ++depth;
      for (size_t k = 0; k < from.size(); ++k)
        if (from[k].defined()) on_host(to[k]).copy_(on_host(from[k]));
      --depth;
    }
  });
  return results;
}

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto name = c10::toString(op.operator_name());
  auto arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  const int index = common_device(name, arguments);
  if (depth == 0) {
    journal.count("operator");
    journal.count("operator: " + name);
    if (waits_for_host(name, arguments)) stream_wait(name);
  }
  const bool is_late = depth == 0 && (is_capturing() || !(waits_for_host(name, arguments) || draws(op)));
  torch::jit::Stack results;
  if (is_late) {
    results = record_operator(op, arguments, index);
  } else {
    if (depth == 0) run_queue(current_of(index));  // of the operands' device, as on CUDA
    results = run_on_host(op, arguments, index, false);
  }
  for (auto& result : results) stack->push_back(std::move(result));
}

// -- operators that make tensors, look at their memory in another way, or copy -------------------

struct OnDevice {  // memory is taken on the device that was asked for
  int before = current.device;
  explicit OnDevice(std::optional<c10::Device> device) {
    if (!device || device->index() < 0) return;
    TORCH_CHECK(device->index() < kDevices, "CUDA error: invalid device ordinal (simulated)");
    current.device = device->index();
  }
  ~OnDevice() { current.device = before; }
};

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  OnDevice chosen(device);
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  OnDevice chosen(device);
  return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

at::Tensor efficient_zeros(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                           std::optional<c10::Device> device, std::optional<bool> pinned) {
  return empty(size, dtype, layout, device, pinned, std::nullopt).zero_();
}

at::Tensor view_of(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<int64_t> offset) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(self.storage()),
                                                       self.key_set(), self.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset.value_or(self.storage_offset()));
  return made;
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return view_of(self, size, stride, std::nullopt);
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef size) {
  auto inferred = at::infer_size_dv(size, self.numel());
  auto stride = at::detail::computeStride(self.sizes(), self.strides(), inferred);
  TORCH_CHECK(stride.has_value(), "view size is not compatible with input tensor's size and stride");
  return view_of(self, inferred, *stride, std::nullopt);
}

void copy_values(const at::Tensor& from, const at::Tensor& to) {
  ++depth;
  on_host(to).copy_(on_host(from));
  --depth;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool non_blocking) {
  if (depth == 0) {
    if (!is_ours(to) || !is_ours(self)) {
      if (!non_blocking) stream_wait(is_ours(self) ? "a copy to the host" : "a copy from the host");
    } else {
      journal.count("operator");
      journal.count("operator: aten::copy_");
    }
    if (is_ours(self) && is_ours(to) && self.device() != to.device() && !is_capturing()) {
      run_queue(current_of(self.device().index()));
      run_queue(current_of(to.device().index()));
    }
    const int index = (is_ours(self) ? self : to).device().index();
    // What the host gives is read at once; what it is given, when it waits.
    auto from = without_history(self);
    if (is_ours(to) || non_blocking || is_capturing()) {
      auto target = is_ours(to) ? without_history(to) : to.variable_data();
      run_late(index, [from, target] { copy_values(from, target); });
      const bool waits = !non_blocking && !(is_ours(self) && is_ours(to));
      if (waits && !is_capturing()) run_queue(current_of(index));
      return to;
    }
    run_queue(current_of(index));
  }
  copy_values(self, to);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  if (to.sizes() != self.sizes()) to.resize_(self.sizes());
  return copy_from(self, to, false);
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  const size_t bytes = (impl->numel() + impl->storage_offset()) * self.element_size();
  if (self.storage().nbytes() < bytes) hooks.resizePrivateUse1Bytes(self.storage(), bytes);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage storage) {
  const int64_t count = storage.nbytes() / self.element_size();
  return set_storage(self, std::move(storage), 0, {count}, {1});
}

at::Tensor& set_source(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

c10::Scalar item(const at::Tensor& self) {
  if (depth == 0) {
    stream_wait("reading a number");
    run_queue({self.device().index(), current.streams[self.device().index()]});
  }
  ++depth;
  auto number = on_host(self).item();
  --depth;
  return number;
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  Guard().recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

// Under autocast operators are what they are without.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
    m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_efficientzerotensor", &efficient_zeros);
  m.impl("as_strided", &view_of);
  m.impl("_reshape_alias", &reshape_alias);
  m.impl("view", &view);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Storage", &set_whole_storage);
  m.impl("set_.source_Tensor", &set_source);
  m.impl("_local_scalar_dense", &item);
  m.impl("record_stream", &record_stream);
}

}  // namespace

// Whoever drops a launch may not hold Python's lock. Queues are dropped after Python has ended.
std::shared_ptr<py::object> shared(py::object launch) {
  return {new py::object(std::move(launch)), [](py::object* each) {
            if (!Py_IsInitialized()) return;
            py::gil_scoped_acquire gil;
            delete each;
          }};
}

// -- functions of the driver, which are found by name ---------------------------------------------

extern "C" {

int cuStreamGetCaptureInfo_v2(void* stream, int* status, uint64_t* id, void** graph, void*, void*) {
  const bool active = capture && capture->stream.second == reinterpret_cast<int64_t>(stream);
  *status = active ? 1 : 0;
  *id = active ? capture->id : 0;
  *graph = active ? capture.get() : nullptr;
  return 0;
}

int cuUserObjectCreate(void** object, void* pointer, void (*destroy)(void*), unsigned, unsigned) {
  *object = new UserObject{pointer, destroy};
  return 0;
}

int cuGraphRetainUserObject(void* graph, void* object, unsigned, unsigned) {
  auto* given = static_cast<UserObject*>(object);
  static_cast<Graph*>(graph)->objects.push_back(*given);
  delete given;
  return 0;
}

}  // extern "C"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  at::RegisterPrivateUse1HooksInterface(&hooks);
  m.attr("n_devices") = kDevices;
  m.def("device", [] { return current.device; });
  m.def("set_device", [](int device) { current.device = device; });
  m.def("stream", [](int device) { return current.streams[device]; });
  m.def("set_stream", [](int device, int64_t stream) { current.streams[device] = stream; });
  m.def("enqueue", [](int device, int64_t stream, py::object launch) {
    auto kept = shared(std::move(launch));
    enqueue({device, stream}, {Task::kWork, [kept] { py::gil_scoped_acquire gil; (*kept)(); }, nullptr});
  });
  m.def("run", [](int device, int64_t stream) { run_queue({device, stream}); });
  m.def("is_idle", [](int device, int64_t stream) { return queues[{device, stream}].empty(); });
  m.def("synchronize_stream", [](int device, int64_t stream) { synchronize_stream({device, stream}); });
  m.def("synchronize_device", &synchronize_device);
  py::class_<Event, EventPointer>(m, "Event")
      .def(py::init<>())
      .def("record", [](EventPointer event, int device, int64_t stream) { record_event(event, {device, stream}); })
      .def("wait", [](EventPointer event, int device, int64_t stream) { wait_event(event, {device, stream}); })
      .def("query", &query_event)
      .def("synchronize", &synchronize_event);
  m.def("is_capturing", &is_capturing);
  m.def("add_to_graph", [](py::object launch) {
    auto kept = shared(std::move(launch));
    capture->nodes.push_back([kept] { py::gil_scoped_acquire gil; (*kept)(); });
  });
  py::class_<Graph, std::shared_ptr<Graph>>(m, "Graph")
      .def(py::init([] { return std::shared_ptr<Graph>(new Graph, &drop_graph); }))
      .def("begin", [](std::shared_ptr<Graph> graph) {
        TORCH_CHECK(!capture, "the simulated GPU captures one graph at a time");
        static uint64_t captures = 0;
        graph->id = ++captures;
        graph->stream = current.stream();
        capture = graph;
      })
      .def("end", [](std::shared_ptr<Graph> graph) {
        capture = nullptr;
        TORCH_CHECK(graph->broken.empty(), "CUDA error: operation failed due to a previous error during capture: ",
                    graph->broken, " (simulated)");
      })
      .def("replay", [](std::shared_ptr<Graph> graph) {
        TORCH_CHECK(!is_capturing(), "a replay cannot be captured (simulated)");
        run_late(current.device, [graph] { for (auto& node : graph->nodes) node(); });
      });
  m.def("on_host", &on_host);
  m.def("count", [](const std::string& what) { journal.count(what); });
  m.def("counts", [] { std::lock_guard<std::mutex> held(journal.lock); return journal.counts; });
  m.def("live_bytes", [] { std::lock_guard<std::mutex> held(memory_mutex); return live_bytes; });
  m.def("limit_memory", [](size_t bytes) {
    std::lock_guard<std::mutex> held(memory_mutex);
    memory_limit = bytes;
  });
  m.def("refuse_waits", [](bool refuse) { journal.refuse_waits = refuse; });
}
