// Inside of Loop, for this folder only: keeps Asio out of every public header.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>
#include <unordered_map>
#include <utility>  // Asio 1.74 needs it in C++23

#include "common/messaging/loop.h"
#include "common/messaging/zap_handler.h"

namespace kiln {

struct Loop::Impl {
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  void* zmq = nullptr;
  std::atomic<int> live_sockets{0};
  std::unordered_map<TimerId, std::unique_ptr<boost::asio::steady_timer>> timers;
  TimerId next_timer = 1;
  uint64_t next_name = 1;  // for inproc names that must be unique in the context
  std::unique_ptr<ZapHandler> zap;
  std::thread thread;
};

}  // namespace kiln
