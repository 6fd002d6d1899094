/* Publishes this process's OpenTelemetry process context (OTEP 4719, revision
 * 2026-04-07), for C11 and C++11.
 *
 * The payload is an encoded ProcessContext message; the library copies it and
 * does not check it. You may call every function from any thread: a lock makes
 * the calls take turns. Do not call them from a signal handler. The functions do
 * not change `errno`.
 *
 * A call that fails leaves no descriptor and no mapping, and a failed update
 * leaves the previous context unchanged.
 *
 * Children.
 *  - fork: the child has no context, and neither the header nor the payload are
 *    in its memory. In the child, update() returns OTEL_CTX_NOT_PUBLISHED, and
 *    publish() makes a new context. The library does not compare process ids:
 *    its state is in a page that the kernel clears on fork, even for a clone()
 *    that bypasses libc, and even while another thread is inside the library.
 *  - On kernels that cannot do that (before 4.14) a pthread_atfork handler and
 *    the process id do the same. There, the library does not recognise a child
 *    of a bare clone() that has its parent's process id in another PID namespace.
 *  - vfork and CLONE_VM: the child shares its parent's memory, so it has its
 *    parent's context, and a call in it changes that context. Do not call from
 *    there; on kernels before 4.14 such a call loses track of the context.
 *  - A fork in the few microseconds in which another thread publishes for the
 *    first time can give the child an empty mapping and a close-on-exec
 *    descriptor; no reader accepts these as a context.
 *  - A signal handler that interrupts the library and forks must not return in
 *    the child.
 *
 * A process needs one copy of this library: two copies (one linked statically)
 * do not know about each other. The shared library is never unloaded. If you link
 * the static one into something that can be unloaded, call drop before that.
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
  OTEL_CTX_BAD_PAYLOAD = 1,   /* no bytes, or too many for the 32-bit size field */
  OTEL_CTX_NOT_PUBLISHED = 2, /* there is no context to update */
  OTEL_CTX_NO_NAME = 3,       /* no memfd and no name: no reader could find it */
  OTEL_CTX_SYSTEM = 4         /* a step failed, see sys_errno */
};

struct otel_ctx_error {
  int status;       /* enum otel_ctx_status */
  int sys_errno;    /* errno of the failed step, or 0 */
  const char* step; /* that step, "madvise of the header"; never NULL, static storage */
};

/* Makes `size` bytes at `payload` the context of this process: a new one, or
 * an update of the existing one. `error` may be NULL here and below. */
OTEL_CTX_API int otel_ctx_publish(const void* payload, size_t size, struct otel_ctx_error* error);

/* Replaces the payload of the context, in place. */
OTEL_CTX_API int otel_ctx_update(const void* payload, size_t size, struct otel_ctx_error* error);

/* Withdraws the context. It is not an error if there is none.
 * After a failure readers find no context either; the next drop or publish
 * tries again to release its memory. */
OTEL_CTX_API int otel_ctx_drop(struct otel_ctx_error* error);

struct otel_ctx_info {
  int published;            /* 1 if there is a context; otherwise only last_timestamp counts */
  int memfd;                /* 1 if the header is in a memfd, 0 if it is anonymous memory */
  int naming_errno;         /* of the last naming call; 0: the kernel accepted the name */
  uint32_t payload_size;    /* as in the header */
  uint64_t payload;         /* as in the header */
  uint64_t header;          /* address of the mapping that readers search for */
  uint64_t header_mapping;  /* its length */
  uint64_t last_timestamp;  /* of the context, or of the last one that was withdrawn */
  uint64_t updates;         /* since it was published */
  const char* name_in_maps; /* how its line in /proc/PID/maps begins; NULL if not published */
};

/* What is published at this moment. This call cannot fail. */
OTEL_CTX_API void otel_ctx_get_info(struct otel_ctx_info* info);

/* "madvise of the header: Invalid argument", like snprintf: writes at most
 * `size` bytes with the terminator, and returns the length of the whole text. */
OTEL_CTX_API size_t otel_ctx_describe(const struct otel_ctx_error* error, char* text, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* OTEL_CTX_H */
