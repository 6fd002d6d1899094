// What the programs with a process context publish unless the case changes it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {

std::vector<Bytes> usual_resource();
std::vector<Bytes> usual_attributes();
Bytes usual_message();

std::vector<Bytes> with(std::vector<Bytes> pairs, const std::vector<Bytes>& more);
Bytes message_with(const std::vector<Bytes>& more_in_resource);
Bytes numbered_message(int number);
Buffer numbered_payload(int number);

// More than a state of the recording holds, and less than 64 MiB.
Bytes large_message(const Bytes& last_value);

inline Region publish() { return publish(usual_message()); }

// The message follows the header after `gap` bytes.
Region publish_inline(const Bytes& bytes, std::size_t gap, const Plan& plan);

// Publishes as publish() does, with this version.
Region publish_version(std::uint32_t version);

// Announces, and stays until the end.
void hold(const Region& r);
void name_and_hold(const Region& r);
void publish_and_hold(const Bytes& bytes, const Plan& plan = {});

// Ends its context by a timestamp of zero, and unmaps it.
void withdraw(const Region& r);

// Runs `work` in a process that shares our memory, and waits.
void in_a_process_with_our_memory(std::function<void()> work);

// Says that a case about programs of 32 bits cannot be shown, if this is a 64-bit build.
void needs_32_bits();

}  // namespace ctxconf::testees
