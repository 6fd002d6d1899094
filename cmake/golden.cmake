# golden/: vectors with their loader, encoder and hexdump.
ctxconf_library(ctxconf_golden
  SRCS golden/diff.cc golden/files.cc golden/folder.cc golden/hexdump.cc golden/members.cc golden/source.cc golden/values.cc golden/vector.cc
  DEPS ctxconf_abi ctxconf_proto fmt::fmt ${json})
