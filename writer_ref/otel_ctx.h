/* Publishes this process's OpenTelemetry process context (OTEP 4719, revision
 * 2026-04-07), for C11 and C++11.
 *
 * The payload is an encoded ProcessContext message; the library copies it and
 * does not look into it. Every function may be called from any thread: calls
 * take turns, so there is one writer. None may be called from a signal handler.
 * `errno` keeps its value.
 *
 * A call that fails leaves nothing behind: no descriptor, no mapping, and after
 * a failed update the previous context as it was.
 *
 * Children.
 *  - fork: the child has no context, and neither the header nor the payload are
 *    in its memory. update() in it says OTEL_CTX_NOT_PUBLISHED, publish()
 *    starts afresh. Nobody's process number is looked at: the library's state
 *    is in a page that the kernel clears on fork, also for a clone() that goes
 *    past libc, also while another thread is inside the library.
 *  - On kernels that cannot do that (before 4.14) a pthread_atfork handler and
 *    the process number take its place. There, a child made by a bare clone()
 *    that has its parent's number in another pid namespace is not recognised.
 *  - vfork and CLONE_VM: the child shares its parent's memory, so it has its
 *    parent's context, and a call in it acts on that one. Do not call from
 *    there; on kernels before 4.14 such a call loses track of the context.
 *  - A fork in the few microseconds in which another thread publishes for the
 *    first time can give the child an empty mapping and a close-on-exec
 *    descriptor, which no reader takes for a context.
 *  - A signal handler that interrupts the library and forks must not return in
 *    the child.
 *
 * A process needs one copy of this library: two copies (one linked statically)
 * do not know of each other. The shared library is never unloaded. Who links
 * the static one into something that can be, calls drop before that happens.
 */
#ifndef OTEL_CTX_H
#define OTEL_CTX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define OTEL_CTX_API __attribute__((visibility("default")))
#else
#define OTEL_CTX_API
#endif

/* What the functions return. */
enum otel_ctx_status {
  OTEL_CTX_OK = 0,
  OTEL_CTX_BAD_PAYLOAD = 1,   /* no bytes, or more than the 32-bit size field can say */
  OTEL_CTX_NOT_PUBLISHED = 2, /* there is no context to update */
  OTEL_CTX_NO_NAME = 3,       /* neither a memfd nor a name: no reader could find it */
  OTEL_CTX_SYSTEM = 4         /* a step failed, see sys_errno */
};

struct otel_ctx_error {
  int status;       /* enum otel_ctx_status */
  int sys_errno;    /* of the step that failed, or 0 */
  const char* step; /* that step, "madvise of the header"; never NULL, lives for ever */
};

/* Makes `size` bytes at `payload` the context of this process: a new one, or
 * an update of the one that exists. `error` may be NULL here and below. */
OTEL_CTX_API int otel_ctx_publish(const void* payload, size_t size, struct otel_ctx_error* error);

/* Replaces the payload of the context, in place. */
OTEL_CTX_API int otel_ctx_update(const void* payload, size_t size, struct otel_ctx_error* error);

/* Withdraws the context. Without one there is nothing to do, which is no error.
 * After a failure readers find no context either; the next drop or publish
 * tries again to release its memory. */
OTEL_CTX_API int otel_ctx_drop(struct otel_ctx_error* error);

struct otel_ctx_info {
  int published;            /* 1 if there is a context; otherwise only last_timestamp counts */
  int memfd;                /* 1 if the header is in a memfd, 0 if it is anonymous memory */
  int naming_errno;         /* of the last naming call; 0: the kernel took the name */
  uint32_t payload_size;    /* as in the header */
  uint64_t payload;         /* as in the header */
  uint64_t header;          /* address of the mapping that readers look for */
  uint64_t header_mapping;  /* its length */
  uint64_t last_timestamp;  /* of the context, or of the last one that was withdrawn */
  uint64_t updates;         /* since it was published */
  const char* name_in_maps; /* how its line in /proc/PID/maps begins; NULL if not published */
};

/* What is published right now. A failure of this call cannot happen. */
OTEL_CTX_API void otel_ctx_get_info(struct otel_ctx_info* info);

/* "madvise of the header: Invalid argument", in the manner of snprintf: at most
 * `size` bytes with the terminator, returns the length of the whole text. */
OTEL_CTX_API size_t otel_ctx_describe(const struct otel_ctx_error* error, char* text, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* OTEL_CTX_H */
