#include "reader_ref/reading_child.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <thread>
#include <utility>

namespace ctxconf::reader {
namespace {

using std::chrono::milliseconds;
using sys::Result;
using Clock = std::chrono::steady_clock;

constexpr int kCrashed = 70;
constexpr milliseconds kReapDeadline{1000};

bool send_all(int socket, const void* data, std::size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = send(socket, at, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

// Serves until the other side closes the socket.
void serve(int socket, const ReadingChild::Work& work) {
  pid_t pid = 0;
  while (recv(socket, &pid, sizeof pid, MSG_WAITALL) == sizeof pid) {
    const std::string answer = work(pid);
    const std::uint64_t size = answer.size();
    if (!send_all(socket, &size, sizeof size)) return;
    if (!send_all(socket, answer.data(), answer.size())) return;
  }
}

// Nothing here may flush what the parent has in its stdio buffers.
[[noreturn]] void be_the_child(int socket, pid_t parent, const ReadingChild::Work& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  try {
    serve(socket, work);
  } catch (const std::exception& e) {
    dprintf(STDERR_FILENO, "reader_ref: a bug in reader_ref, please report it: %s\n", e.what());
    _exit(kCrashed);
  }
  _exit(0);
}

}  // namespace

ReadingChild::ReadingChild(Work work, milliseconds deadline)
    : work_(std::move(work)), deadline_(deadline) {}

ReadingChild::~ReadingChild() { end(); }

Result<> ReadingChild::start() {
  std::array<int, 2> sockets{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    return sys::fail("socketpair", errno, {});
  }
  sys::Fd ours(sockets[0]);
  const sys::Fd theirs(sockets[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    ours.reset();
    be_the_child(theirs.get(), parent, work_);
  }
  if (child < 0) return sys::fail("fork", errno, {});
  child_ = child;
  socket_ = std::move(ours);
  return {};
}

void ReadingChild::end() {
  if (child_ == 0) return;
  socket_.reset();
  kill(child_, SIGKILL);
  // Bounded: some file systems cannot even be interrupted by SIGKILL.
  const auto latest = Clock::now() + kReapDeadline;
  while (waitpid(child_, nullptr, WNOHANG) == 0 && Clock::now() < latest) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  child_ = 0;
}

Result<> ReadingChild::receive(void* to, std::size_t size, Clock::time_point end) const {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    if (left <= milliseconds(0)) return sys::fail("read process", ETIMEDOUT, {});
    pollfd readable{socket_.get(), POLLIN, 0};
    if (poll(&readable, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t n = recv(socket_.get(), at, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return sys::fail("read process", EPIPE, {});
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::string> ReadingChild::ask(pid_t pid) {
  if (child_ == 0) CTX_RETURN_IF_ERROR(start());
  const auto latest = Clock::now() + deadline_;
  std::uint64_t size = 0;
  std::string answer;
  Result<> received = sys::fail("read process", EPIPE, {});
  if (send_all(socket_.get(), &pid, sizeof pid)) received = receive(&size, sizeof size, latest);
  if (received) {
    answer.resize(size);
    received = receive(answer.data(), answer.size(), latest);
  }
  if (received) return answer;
  end();
  return std::unexpected(std::move(received).error());
}

}  // namespace ctxconf::reader
