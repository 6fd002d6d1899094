# What reads hostile bytes and needs no library for it: these are fuzzed wherever a compiler is.
ctxconf_library(ctxconf_abi SRCS abi/process_layouts.cc abi/thread_layouts.cc)
ctxconf_library(ctxconf_maps SRCS sys/map_table.cc)
ctxconf_library(ctxconf_memory SRCS sys/memory_reader.cc)
ctxconf_library(ctxconf_record_reader
  SRCS reader_ref/thread_context.cc DEPS ctxconf_abi ctxconf_memory)
ctxconf_library(ctxconf_payload_walk SRCS conformance/payload_walk.cc DEPS ctxconf_abi)
