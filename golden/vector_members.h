// Members that generated vectors and their sources share.
#pragma once

#include "golden/members.h"
#include "golden/vector.h"

namespace ctxconf::golden {

void check_kind(Members& members, Kind kind);   // kind and revision
void read_common(Members& members, Vector& v);  // id, requirements, comment, result
abi::HeaderLayout header_layout_from(Members& members);
std::string record_layout_from(Members& members);
std::vector<std::string> key_map_from(Members& members);
std::vector<Mask> masks_from(Members& members, std::size_t size);  // of `size` bytes
// Checks that the payload is after the header in the mapping, or outside it, and that nothing
// wraps.
void check_memory(Members& members, const ProcessContextVector& v);

// expect or expect_any, as required by the results of `v`.
std::vector<ProcessContent> process_contents_from(Members& members, const Vector& v);
std::vector<RecordContent> record_contents_from(Members& members, const Vector& v);
std::vector<MapsContent> maps_contents_from(Members& members, const Vector& v);

inline constexpr std::uint64_t kLargestMapping = std::uint64_t{64} << 10U;

}  // namespace ctxconf::golden
