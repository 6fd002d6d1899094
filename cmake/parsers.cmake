# Code that reads hostile bytes and needs no library: it is fuzzed wherever there is a compiler.
ctxconf_library(ctxconf_abi SRCS abi/process_layouts.cc abi/thread_layouts.cc)
ctxconf_library(ctxconf_maps SRCS sys/map_table.cc sys/proc_text.cc)
ctxconf_library(ctxconf_memory SRCS sys/memory_reader.cc)
ctxconf_library(ctxconf_record_reader
  SRCS reader_ref/thread_context.cc DEPS ctxconf_abi ctxconf_memory)
ctxconf_library(ctxconf_payload_walk SRCS conformance/payload/payload_walk.cc)
