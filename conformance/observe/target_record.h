// A thread record, as the programs that the tests observe fill it.
#pragma once

#include <cstdint>

struct Record {
  unsigned char trace_id[16];
  unsigned char span_id[8];
  unsigned char valid;
  unsigned char flags;
  volatile std::uint16_t size;
  unsigned char entries[36];
};
