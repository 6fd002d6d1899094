#include "fuzz/record_walk.h"

#include "abi/thread_record.h"
#include "fuzz/check.h"
#include "fuzz/slow_record.h"

namespace ctxconf::fuzz {

std::size_t check_entries(std::span<const std::byte> area) {
  abi::AttributeCursor cursor(area);
  std::size_t end = 0;
  bool same = true;  // summed without branches: each branch would be an edge for the engine
  while (const auto entry = cursor.next()) {
    const SlowStep slow = slow_step(area, end);
    same &= slow.length >= 0;
    const auto length = static_cast<std::size_t>(slow.length);
    same &= entry->key == slow.key;
    same &= entry->offset == end;
    same &= entry->value.size() == length;
    same &= entry->value.data() == area.data() + end + 2;
    end += 2 + length;
    same &= cursor.offset() == end;
  }
  same &= slow_step(area, end).length < 0;
  same &= cursor.offset() == end;
  same &= cursor.left() == area.size() - end;
  FUZZ_CHECK(same);
  return end;
}

}  // namespace ctxconf::fuzz
