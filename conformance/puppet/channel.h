/* The messages between the scripted process and its controller: each command has one answer, and
 * each of them is one message on a SOCK_SEQPACKET socket. */
#ifndef CONFORMANCE_PUPPET_CHANNEL_H_
#define CONFORMANCE_PUPPET_CHANNEL_H_

#include <stdint.h>

enum {
  kPuppetChannel = 3,       /* the descriptor of the first thread, unless argv[1] names another */
  kPuppetAreas = 64,        /* stacks: threads and children that share memory, over the whole run */
  kPuppetBytes = 8192,      /* after a command or an answer */
  kPuppetDescriptors = 900, /* channels get this number or more, out of the way of the script */
};

/* Results of messages without a command: the first message of each thread and process, and that
 * of a signal handler that accepts commands; it interrupted an operation or an idle thread. */
#define PUPPET_HELLO INT64_C(0x7570706574000001)
#define PUPPET_HANDLER INT64_C(0x7570706574000002)
#define PUPPET_HANDLER_IDLE INT64_C(0x7570706574000003)
/* The message of a command that reports its start, before its answer. */
#define PUPPET_BEGINS INT64_C(0x7570706574000004)

enum PuppetCall {
  kPuppetSyscall,   /* number, args; bit i of `pointers`: args[i] is an offset into the bytes */
  kPuppetClock,     /* args: clock; result: nanoseconds */
  kPuppetStore,     /* args: at, width, StoreOrder; bytes: the value */
  kPuppetLoad,      /* args: at, width */
  kPuppetWrite,     /* args: at, CopyHow; the bytes */
  kPuppetFill,      /* args: at, CopyHow, size; bytes: what is repeated */
  kPuppetCopy,      /* args: to, CopyHow, size, from */
  kPuppetAlternate, /* args: to, CopyHow, size, first, second, times */
  /* args: times, stores, spins after each round; bytes: for each store four numbers: at, width,
   * value, what is added to the value in each round */
  kPuppetRepeat,
  kPuppetSplit,  /* args: at, size */
  kPuppetCrowd,  /* args: count, records, stride, tids, stacks */
  kPuppetRead,   /* args: at, size; the answer has the bytes */
  kPuppetFence,  /* args: FenceKind */
  kPuppetSpin,   /* args: times */
  kPuppetAwait,  /* args: at, width, value */
  kPuppetThread, /* args: area, with TLS; with a descriptor: the channel of the thread */
  kPuppetExitThread,
  kPuppetHandle, /* args: signal, SignalAction */
  kPuppetReturn,
  /* args: flags of clone() without the signal, area, pid or 0; and the child's channel */
  kPuppetFork,
  /* bytes: the path, then each of argv, all with their zero byte; args: how many; number: 1 if the
   * channel is one argument more */
  kPuppetExec,
  kPuppetSlot,        /* args: value, StoreOrder, library or 0 */
  kPuppetSlotAddress, /* args: library or 0 */
  /* args: LoadCopy; bytes: the file, then the copy's name or nothing, both with their zero byte;
   * result: the library */
  kPuppetLoadLibrary,
  kPuppetUnload, /* args: library */
  kPuppetThreadPointer,
};

struct PuppetCommand {
  uint32_t call;
  uint32_t number;
  uint64_t args[6];
  uint32_t pointers;
  uint32_t returned; /* kPuppetSyscall: this many of the bytes come back with the answer */
  uint32_t bytes;
  uint32_t tells; /* 1: report the start */
};

struct PuppetAnswer {
  int64_t result; /* -errno if refused */
  uint64_t bytes; /* bytes after it */
};

#endif /* CONFORMANCE_PUPPET_CHANNEL_H_ */
