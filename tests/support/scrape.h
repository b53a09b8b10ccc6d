// GET /metrics over plain HTTP from this host.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace kiln::testing {

// The whole answer of HOST:PORT on loopback, with its headers; "" when nobody answers.
inline std::string Scrape(const std::string& address) {
  const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  ::inet_pton(AF_INET, "127.0.0.1", &target.sin_addr);
  std::string answer;
  const std::string request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
  if (::connect(connection, reinterpret_cast<sockaddr*>(&target), sizeof target) == 0 &&
      ::write(connection, request.data(), request.size()) > 0) {
    char buffer[4096];
    for (ssize_t got; (got = ::read(connection, buffer, sizeof buffer)) > 0;)
      answer.append(buffer, static_cast<size_t>(got));
  }
  ::close(connection);
  return answer;
}

// HOST:PORT on loopback where nobody listened a moment ago.
inline std::string FreeAddress() {
  const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  socklen_t size = sizeof address;
  int port = 0;
  if (::bind(probe, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    port = ntohs(address.sin_port);
  ::close(probe);
  return "127.0.0.1:" + std::to_string(port);
}

}  // namespace kiln::testing
