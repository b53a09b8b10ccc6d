#include "common/messaging/loop.h"

#include <pthread.h>
#include <zmq.h>

#include <cstdio>
#include <future>

#include "common/base/caught.h"
#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/messaging/loop_impl.h"

namespace kiln {

Loop::Loop() : impl_(std::make_unique<Impl>()) {}

Result<std::unique_ptr<Loop>> Loop::Start(const std::string& name) {
  std::unique_ptr<Loop> loop(new Loop());
  loop->impl_->zmq = zmq_ctx_new();
  if (loop->impl_->zmq == nullptr) return Fail(ErrorCode::kResourceExhausted, "cannot create a ZeroMQ context");
  Impl* impl = loop->impl_.get();
  impl->thread = std::thread([impl, name] {
    ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
    // What a task throws (out of memory, as a rule) ends that task only.
    const auto run = [&]() -> Status {
      impl->io.run();
      return {};
    };
    for (;;) {
      const Status ended = Caught(run);
      if (ended.has_value()) return;
      std::fprintf(stderr, "%s: a task was given up: %s\n", name.c_str(), Printable(ended.error().message).c_str());
    }
  });
  return loop;
}

Loop::~Loop() {
  if (impl_->thread.joinable()) {
    RunSync([this] {
      impl_->zap.reset();
      impl_->timers.clear();
    });
    impl_->io.stop();
    impl_->thread.join();
  }
  // A socket that is still open would make zmq_ctx_term wait for ever.
  KILN_CHECK(impl_->live_sockets.load() == 0);
  if (impl_->zmq != nullptr) zmq_ctx_term(impl_->zmq);
}

void Loop::Post(Task task) {
  boost::asio::post(impl_->io, std::move(task));
}

bool Loop::OnLoopThread() const {
  return impl_->thread.get_id() == std::this_thread::get_id();
}

void Loop::RunSync(const Task& task) {
  if (OnLoopThread()) return task();
  std::promise<void> done;
  Post([&] {
    try {
      task();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());  // the caller's, whoever runs it
    }
  });
  done.get_future().get();
}

Loop::TimerId Loop::After(int64_t delay_ms, Task task) {
  const TimerId id = impl_->next_timer++;
  auto timer =
      std::make_unique<boost::asio::steady_timer>(impl_->io, std::chrono::milliseconds(std::max<int64_t>(delay_ms, 0)));
  timer->async_wait([this, id, task = std::move(task)](const boost::system::error_code& error) {
    if (error) return;
    if (impl_->timers.erase(id) == 0) return;  // cancelled after it expired
    task();
  });
  impl_->timers.emplace(id, std::move(timer));
  return id;
}

void Loop::Cancel(TimerId timer) {
  impl_->timers.erase(timer);
}

}  // namespace kiln
