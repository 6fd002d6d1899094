/* The program adapter_c: the testee protocol in C over the headers of the reference writer, with
 * nothing else than libc. Each thread has one record for ever, which its valid byte shows or hides.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "writer_ref/otel_ctx.h"
#include "writer_ref/otel_thread_ctx.h"

enum { LONGEST_LINE = 1 << 20, DEEPEST = 64, MOST_THREADS = 64, MOST_NESTED = 16 };

/* Bytes that grow. */
struct bytes {
  char* data;
  size_t size, room;
};

static void add(struct bytes* to, const void* data, size_t size) {
  if (size > to->room - to->size) {
    to->room = 2 * (to->size + size);
    to->data = realloc(to->data, to->room);
    if (to->data == NULL) abort();
  }
  if (size != 0) memcpy(to->data + to->size, data, size);
  to->size += size;
}

static void add_byte(struct bytes* to, int byte) {
  const char one = (char)byte;
  add(to, &one, 1);
}

static void add_text(struct bytes* to, const char* text) { add(to, text, strlen(text)); }

static void release(struct bytes* of) {
  free(of->data);
  memset(of, 0, sizeof *of);
}

/* JSON: a tree over the line, whose strings are decoded in place */

enum kind { NOTHING, FALSE, TRUE, NUMBER, STRING, ARRAY, OBJECT };

struct node {
  enum kind kind;
  const struct node* key; /* of a member */
  const char* text;       /* STRING, decoded; NUMBER, up to what follows it */
  size_t length;
  struct node *first, *next; /* elements or members */
};

struct parser {
  char* at;
  struct node* nodes;
  size_t used;
};

static void skip_space(struct parser* p) { p->at += strspn(p->at, " \t\r\n"); }

static int hex_digits(const char* from, unsigned* code) {
  *code = 0;
  for (int i = 0; i < 4; ++i) {
    const char* const digits = "0123456789abcdef";
    const char* const found = from[i] ? strchr(digits, from[i] | 0x20) : NULL;
    if (found == NULL) return 0;
    *code = *code << 4 | (unsigned)(found - digits);
  }
  return 1;
}

static char* put_utf8(char* to, unsigned code) {
  const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
  *to++ = (char)(lead[more] | code >> (6 * more));
  for (int i = more - 1; i >= 0; --i) *to++ = (char)(0x80 | (code >> (6 * i) & 0x3f));
  return to;
}

/* Reads \uXXXX after the u, and the other half of a pair. */
static int parse_code(struct parser* p, unsigned* code) {
  unsigned low;
  if (!hex_digits(p->at, code)) return 0;
  p->at += 4;
  if (*code < 0xd800 || *code > 0xdfff) return 1;
  if (*code > 0xdbff || p->at[0] != '\\' || p->at[1] != 'u' || !hex_digits(p->at + 2, &low) ||
      low < 0xdc00 || low > 0xdfff) {
    return 0;
  }
  p->at += 6;
  *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
  return 1;
}

static int parse_string(struct parser* p, struct node* out) {
  char* to = ++p->at;
  out->kind = STRING;
  out->text = to;
  while (*p->at != '"') {
    const char* const escapes = "\"\\/bfnrt";
    const char* const means = "\"\\/\b\f\n\r\t";
    const char* escape;
    unsigned code;
    if ((unsigned char)*p->at < 0x20) return 0;
    if (*p->at != '\\') {
      *to++ = *p->at++;
      continue;
    }
    ++p->at;
    if (*p->at == 'u') {
      ++p->at;
      if (!parse_code(p, &code)) return 0;
      to = put_utf8(to, code);
      continue;
    }
    escape = *p->at ? strchr(escapes, *p->at) : NULL;
    if (escape == NULL) return 0;
    *to++ = means[escape - escapes];
    ++p->at;
  }
  ++p->at;
  out->length = (size_t)(to - out->text);
  return 1;
}

static int parse_number(struct parser* p, struct node* out) {
  out->kind = NUMBER;
  out->text = p->at;
  out->length = strspn(p->at, "+-.0123456789eE");
  p->at += out->length;
  return out->length > 0 && strchr("-0123456789", *out->text) != NULL;
}

static struct node* parse(struct parser* p, int depth) {
  static const struct {
    const char* word;
    enum kind kind;
  } words[] = {{"null", NOTHING}, {"false", FALSE}, {"true", TRUE}};
  struct node* const out = &p->nodes[p->used++];
  struct node** end = &out->first;
  skip_space(p);
  if (depth > DEEPEST) return NULL;
  for (size_t i = 0; i < sizeof words / sizeof *words; ++i) {
    const size_t length = strlen(words[i].word);
    if (strncmp(p->at, words[i].word, length) != 0) continue;
    p->at += length;
    out->kind = words[i].kind;
    return out;
  }
  if (*p->at == '"') return parse_string(p, out) ? out : NULL;
  if (*p->at != '[' && *p->at != '{') return parse_number(p, out) ? out : NULL;
  out->kind = *p->at == '{' ? OBJECT : ARRAY;
  ++p->at;
  skip_space(p);
  if (*p->at == (out->kind == OBJECT ? '}' : ']')) {
    ++p->at;
    return out;
  }
  for (;;) {
    const struct node* key = NULL;
    if (out->kind == OBJECT) {
      key = parse(p, depth + 1);
      skip_space(p);
      if (key == NULL || key->kind != STRING || *p->at++ != ':') return NULL;
    }
    *end = parse(p, depth + 1);
    if (*end == NULL) return NULL;
    (*end)->key = key;
    end = &(*end)->next;
    skip_space(p);
    if (*p->at == (out->kind == OBJECT ? '}' : ']')) break;
    if (*p->at++ != ',') return NULL;
  }
  ++p->at;
  return out;
}

static int is(const struct node* node, const char* text) {
  return node != NULL && node->kind == STRING && node->length == strlen(text) &&
         memcmp(node->text, text, node->length) == 0;
}

/* NULL if there is none or `in` is not an object. */
static const struct node* member(const struct node* in, const char* name) {
  if (in == NULL || in->kind != OBJECT) return NULL;
  for (const struct node* one = in->first; one != NULL; one = one->next) {
    if (is(one->key, name)) return one;
  }
  return NULL;
}

static const char* string_or(const struct node* node, const char* other) {
  static _Thread_local char text[128];
  if (node == NULL || node->kind != STRING || node->length >= sizeof text) return other;
  memcpy(text, node->text, node->length);
  text[node->length] = '\0';
  return text;
}

/* A number, or its digits in a string. */
static int integer(const struct node* node, long long* out) {
  char digits[24];
  char* end;
  if (node == NULL || (node->kind != NUMBER && node->kind != STRING)) return 0;
  if (node->length == 0 || node->length >= sizeof digits) return 0;
  memcpy(digits, node->text, node->length);
  digits[node->length] = '\0';
  errno = 0;
  *out = strtoll(digits, &end, 10);
  return *end == '\0' && errno == 0;
}

static void add_json_string(struct bytes* to, const char* text) {
  add_byte(to, '"');
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') add_byte(to, '\\');
    add_byte(to, (unsigned char)*text < 0x20 ? ' ' : *text);
  }
  add_byte(to, '"');
}

/* protobuf. These return 0 where the JSON is not what it should be. */

static void add_varint(struct bytes* to, uint64_t number) {
  for (; number >= 0x80; number >>= 7) add_byte(to, (int)(number & 0x7f) | 0x80);
  add_byte(to, (int)number);
}

static void add_field(struct bytes* to, int number, const void* content, size_t size) {
  add_varint(to, (uint64_t)number << 3 | 2);
  add_varint(to, size);
  add(to, content, size);
}

static int add_any_value(struct bytes* to, const struct node* value);

/* {"key":..., "value":...} */
static int add_key_value(struct bytes* to, const struct node* attribute) {
  const struct node* const key = member(attribute, "key");
  const struct node* const value = member(attribute, "value");
  struct bytes inner = {0};
  int good = key != NULL && key->kind == STRING && value != NULL && add_any_value(&inner, value);
  if (good) {
    add_field(to, 1, key->text, key->length);
    add_field(to, 2, inner.data, inner.size);
  }
  release(&inner);
  return good;
}

/* Each element of a list as field `number`. */
static int add_list(struct bytes* to, int number, const struct node* list,
                    int (*add_one)(struct bytes*, const struct node*)) {
  if (list == NULL || list->kind != ARRAY) return 0;
  for (const struct node* one = list->first; one != NULL; one = one->next) {
    struct bytes inner = {0};
    const int good = add_one(&inner, one);
    if (good) add_field(to, number, inner.data, inner.size);
    release(&inner);
    if (!good) return 0;
  }
  return 1;
}

static int add_base64(struct bytes* to, const struct node* text) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < text->length && text->text[i] != '='; ++i) {
    const char* const digit = memchr(digits, text->text[i], sizeof digits - 1);
    if (digit == NULL) return 0;
    bits = bits << 6 | (uint32_t)(digit - digits);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    add_byte(to, (int)(bits >> count & 0xff));
  }
  return 1;
}

/* strtod knows NaN and Infinity, and stops at what follows the number. */
static int add_double(struct bytes* to, const struct node* number) {
  double value;
  uint64_t bits;
  if (number->kind != NUMBER && number->kind != STRING) return 0;
  value = strtod(number->kind == STRING ? string_or(number, "") : number->text, NULL);
  memcpy(&bits, &value, sizeof bits);
  add_varint(to, 4 << 3 | 1);
  for (int i = 0; i < 8; ++i) add_byte(to, (int)(bits >> (8 * i) & 0xff));
  return 1;
}

static int add_any_value(struct bytes* to, const struct node* value) {
  const struct node* const one = value->kind == OBJECT ? value->first : NULL;
  struct bytes inner = {0};
  long long number;
  int good = 0;
  if (value->kind != OBJECT) return 0;
  if (one == NULL) return 1;
  if (is(one->key, "stringValue")) {
    if (one->kind != STRING) return 0;
    add_field(to, 1, one->text, one->length);
    return 1;
  }
  if (is(one->key, "boolValue")) {
    if (one->kind != TRUE && one->kind != FALSE) return 0;
    add_varint(to, 2 << 3);
    add_varint(to, one->kind == TRUE);
    return 1;
  }
  if (is(one->key, "intValue")) {
    if (!integer(one, &number)) return 0;
    add_varint(to, 3 << 3);
    add_varint(to, (uint64_t)number);
    return 1;
  }
  if (is(one->key, "doubleValue")) return add_double(to, one);
  if (is(one->key, "arrayValue")) {
    good = add_list(&inner, 1, member(one, "values"), add_any_value);
    if (good) add_field(to, 5, inner.data, inner.size);
  } else if (is(one->key, "kvlistValue")) {
    good = add_list(&inner, 1, member(one, "values"), add_key_value);
    if (good) add_field(to, 6, inner.data, inner.size);
  } else if (is(one->key, "bytesValue") && one->kind == STRING) {
    good = add_base64(&inner, one);
    if (good) add_field(to, 7, inner.data, inner.size);
  }
  release(&inner);
  return good;
}

/* requests and threads */

struct thread {
  char name[65];
  pthread_t handle;
  pthread_mutex_t lock;
  pthread_cond_t changed; /* what follows */
  struct call* call;
  int ending;
  int released; /* the call is answered, this thread is busy none the less */
  /* The context that is shown, and those around it. */
  struct otel_thread_ctx_record record, outer[MOST_NESTED];
  int depth; /* 0: none */
};

struct call {
  const struct node* request;
  struct thread* thread;
  void (*work)(struct call*);
  long long id;
  struct bytes more; /* members of the reply: ,"name":value */
  const char* refusal;
  char message[160];
  int err;
  int answered;
  pid_t tid; /* 0: the reply does not say */
};

static FILE* input;
static int output = STDOUT_FILENO;
static struct thread* threads[MOST_THREADS];
static struct thread main_thread = {.name = "main"};

static void refuse(struct call* call, const char* kind, int err, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
static void refuse(struct call* call, const char* kind, int err, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(call->message, sizeof call->message, format, arguments);
  va_end(arguments);
  call->refusal = kind;
  call->err = err;
}

static void refuse_for(struct call* call, const struct otel_ctx_error* error) {
  char text[160];
  otel_ctx_describe(error, text, sizeof text);
  refuse(call, "failed", error->sys_errno, "%s", text);
}

static void send_line(struct bytes* line) {
  add_byte(line, '\n');
  for (size_t at = 0; at < line->size;) {
    const ssize_t n = write(output, line->data + at, line->size - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) _exit(1);
    at += (size_t)n;
  }
  release(line);
}

/* The name of an error; NULL: not known here. */
static const char* error_name(int error) {
#ifdef __GLIBC__
  return strerrorname_np(error);
#else /* musl has no such function: those that the calls of the writer may give */
#define NAMED(name) \
  case name:        \
    return #name
  switch (error) {
    NAMED(EPERM);
    NAMED(EINTR);
    NAMED(EIO);
    NAMED(EBADF);
    NAMED(EAGAIN);
    NAMED(ENOMEM);
    NAMED(EACCES);
    NAMED(EFAULT);
    NAMED(EBUSY);
    NAMED(EEXIST);
    NAMED(ENODEV);
    NAMED(EINVAL);
    NAMED(ENFILE);
    NAMED(EMFILE);
    NAMED(EFBIG);
    NAMED(ENOSPC);
    NAMED(ENOSYS);
    NAMED(EOVERFLOW);
    default:
      return NULL;
  }
#undef NAMED
#endif
}

static void answer(struct call* call) {
  struct bytes line = {0};
  char head[64];
  snprintf(head, sizeof head, "{\"id\":%lld,\"ok\":%s", call->id,
           call->refusal == NULL ? "true" : "false");
  add_text(&line, head);
  if (call->refusal != NULL) {
    const char* const name = call->err == 0 ? NULL : error_name(call->err);
    add_text(&line, ",\"error\":{\"kind\":");
    add_json_string(&line, call->refusal);
    add_text(&line, ",\"message\":");
    add_json_string(&line, call->message);
    if (name != NULL) {
      add_text(&line, ",\"errno\":");
      add_json_string(&line, name);
    }
    add_byte(&line, '}');
  } else {
    add(&line, call->more.data, call->more.size);
    if (call->tid != 0) {
      snprintf(head, sizeof head, ",\"tid\":%d", (int)call->tid);
      add_text(&line, head);
    }
  }
  add_byte(&line, '}');
  send_line(&line);
  call->answered = 1;
}

/* The tree of the next line, or NULL for one that has none; `end` is -1 at the end of the input.
 * The tree and the line last until the next call. */
static const struct node* read_message(struct bytes* line, int* end) {
  static struct node* nodes;
  struct parser p = {0};
  const struct node* message;
  const ssize_t length = getline(&line->data, &line->room, input);
  *end = length < 0 ? -1 : 0;
  free(nodes);
  nodes = NULL;
  if (length < 0 || length > LONGEST_LINE) return NULL;
  nodes = calloc((size_t)length + 1, sizeof *nodes); /* each has a byte at least, or fails */
  if (nodes == NULL) abort();
  p.at = line->data;
  p.nodes = nodes;
  message = parse(&p, 0);
  skip_space(&p);
  return message != NULL && p.at == line->data + length ? message : NULL;
}

/* Just before the call into the SDK. */
static void gate(struct call* call) {
  struct bytes line = {0};
  char armed[96];
  const struct node* const wanted = member(call->request, "gate");
  if (wanted == NULL || wanted->kind != TRUE) return;
  snprintf(armed, sizeof armed, "{\"ev\":\"armed\",\"id\":%lld,\"tid\":%d}", call->id,
           (int)gettid());
  add_text(&line, armed);
  send_line(&line);
  /* The next line is go: nothing else may come. */
  if (getline(&line.data, &line.room, input) < 0) _exit(0);
  release(&line);
}

static void done(struct thread* self) {
  pthread_mutex_lock(&self->lock);
  self->call = NULL;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->lock);
}

static void* run_thread(void* argument) {
  struct thread* const self = argument;
  otel_thread_ctx_init_thread();
  for (;;) {
    pthread_mutex_lock(&self->lock);
    while (self->call == NULL && !self->ending) pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
    if (self->call == NULL) return NULL;
    self->released = 0;
    self->call->tid = gettid();
    self->call->work(self->call);
    if (!self->released) done(self);
  }
}

static void perform(struct call* call) {
  struct thread* const thread = call->thread;
  if (thread == &main_thread) {
    if (member(call->request, "thread") != NULL) call->tid = gettid();
    call->work(call);
    return;
  }
  pthread_mutex_lock(&thread->lock);
  /* It may be busy still, with what is answered already. */
  thread->call = call;
  pthread_cond_broadcast(&thread->changed);
  while (thread->call != NULL) pthread_cond_wait(&thread->changed, &thread->lock);
  pthread_mutex_unlock(&thread->lock);
}

static struct thread** find_thread(const char* name) {
  for (int i = 0; i < MOST_THREADS; ++i) {
    if (threads[i] != NULL && strcmp(threads[i]->name, name) == 0) return &threads[i];
  }
  return NULL;
}

/* process context */

/* What is published: the parts of the message, encoded. */
static struct bytes resource, attributes;
static int threads_used;
static size_t keys_said; /* and one; 0: the reference data is not published */

static int is_twice(const struct node* list) {
  for (const struct node* one = list->first; one != NULL; one = one->next) {
    for (const struct node* other = one->next; other != NULL; other = other->next) {
      const struct node* const key = member(other, "key");
      const struct node* const same = member(one, "key");
      if (key->length == same->length && memcmp(key->text, same->text, key->length) == 0) return 1;
    }
  }
  return 0;
}

static void add_reference_data(struct bytes* to) {
  struct bytes pair = {0}, value = {0}, names = {0}, name = {0};
  const char* const schema_key = "threadlocal.schema_version";
  const char* const map_key = "threadlocal.attribute_key_map";
  const char* const schema = "tlsdesc_v1_dev";
  const char* key;
  add_field(&value, 1, schema, strlen(schema));
  add_field(&pair, 1, schema_key, strlen(schema_key));
  add_field(&pair, 2, value.data, value.size);
  add_field(to, 2, pair.data, pair.size);
  pair.size = value.size = 0;
  for (size_t i = 0; (key = otel_thread_ctx_key(i)) != NULL; ++i) {
    name.size = 0;
    add_field(&name, 1, key, strlen(key));
    add_field(&names, 1, name.data, name.size);
  }
  add_field(&value, 5, names.data, names.size);
  add_field(&pair, 1, map_key, strlen(map_key));
  add_field(&pair, 2, value.data, value.size);
  add_field(to, 2, pair.data, pair.size);
  release(&pair);
  release(&value);
  release(&names);
  release(&name);
}

static int send_context(struct call* call, int publishes, const struct bytes* new_resource,
                        const struct bytes* new_attributes) {
  struct bytes message = {0};
  struct otel_ctx_error error;
  int status;
  add(&message, new_resource->data, new_resource->size);
  add(&message, new_attributes->data, new_attributes->size);
  if (threads_used) add_reference_data(&message);
  gate(call);
  status = publishes ? otel_ctx_publish(message.data, message.size, &error)
                     : otel_ctx_update(message.data, message.size, &error);
  release(&message);
  if (status != OTEL_CTX_OK) {
    refuse_for(call, &error);
    return 0;
  }
  keys_said = threads_used ? otel_thread_ctx_key_count() + 1 : 0;
  return 1;
}

static void replace(struct bytes* old, struct bytes* with) {
  release(old);
  *old = *with;
  memset(with, 0, sizeof *with);
}

static void change(struct call* call, int publishes) {
  const struct node* const given = member(call->request, "resource");
  const struct node* const list = member(given, "attributes");
  const struct node* const pairs = member(call->request, "attributes");
  struct bytes inner = {0}, new_resource = {0}, new_attributes = {0};
  if ((given != NULL && !add_list(&inner, 1, list, add_key_value)) ||
      (pairs != NULL && !add_list(&new_attributes, 2, pairs, add_key_value))) {
    refuse(call, "bad-request", 0, "resource or attributes are not what they should be");
  } else if ((list != NULL && is_twice(list)) || (pairs != NULL && is_twice(pairs))) {
    refuse(call, "rejected", 0, "an attribute is given twice");
  } else {
    if (given != NULL) add_field(&new_resource, 1, inner.data, inner.size);
    if (!publishes && given == NULL) add(&new_resource, resource.data, resource.size);
    if (!publishes && pairs == NULL) add(&new_attributes, attributes.data, attributes.size);
    if (send_context(call, publishes, &new_resource, &new_attributes)) {
      replace(&resource, &new_resource);
      replace(&attributes, &new_attributes);
    }
  }
  release(&inner);
  release(&new_resource);
  release(&new_attributes);
}

static void publish(struct call* call) { change(call, 1); }
static void update(struct call* call) { change(call, 0); }

static void drop(struct call* call) {
  struct otel_ctx_error error;
  gate(call);
  keys_said = 0;
  if (otel_ctx_drop(&error) != OTEL_CTX_OK) refuse_for(call, &error);
}

/* thread context */

/* What a record can say of an AnyValue; NULL of what is not a scalar. */
static const char* text_of(const struct node* value, size_t* length) {
  const struct node* const one = value == NULL ? NULL : value->first;
  if (one == NULL ||
      (one->kind != STRING && one->kind != NUMBER && one->kind != TRUE && one->kind != FALSE)) {
    return NULL;
  }
  if (is(one->key, "bytesValue")) return NULL;
  if (one->kind == TRUE || one->kind == FALSE) {
    *length = one->kind == TRUE ? 4 : 5;
    return one->kind == TRUE ? "true" : "false";
  }
  *length = one->length;
  return one->text;
}

/* The process context says all of the keys before the first of them is used. */
static int register_keys(struct call* call, const struct node* list) {
  struct call quiet = {.id = call->id};
  for (const struct node* one = list->first; one != NULL; one = one->next) {
    const struct node* const key = member(one, "key");
    size_t length;
    if (key == NULL || key->kind != STRING) {
      refuse(call, "bad-request", 0, "an attribute without a key");
      return 0;
    }
    if (text_of(member(one, "value"), &length) != NULL) {
      otel_thread_ctx_register_key(key->text, key->length);
    }
  }
  threads_used = 1;
  if (keys_said == otel_thread_ctx_key_count() + 1) return 1;
  if (send_context(&quiet, 1, &resource, &attributes)) return 1;
  refuse(call, quiet.refusal, quiet.err, "%s", quiet.message);
  return 0;
}

static int unhex(const struct node* text, uint8_t* to, size_t size) {
  if (text == NULL || text->kind != STRING || text->length != 2 * size) return 0;
  for (size_t i = 0; i < size; ++i) {
    unsigned byte;
    if (sscanf(text->text + 2 * i, "%2x", &byte) != 1) return 0;
    to[i] = (uint8_t)byte;
  }
  return 1;
}

static void attach(struct call* call) {
  static const struct node none = {.kind = ARRAY};
  struct thread* const self = call->thread;
  struct otel_thread_ctx_record* const record = &self->record;
  const struct node* list = member(call->request, "attributes");
  const int traced = member(call->request, "trace_id") != NULL;
  uint8_t trace_id[16], span_id[8];
  long long flags = 0;
  if (list == NULL) list = &none;
  if (traced && (!unhex(member(call->request, "trace_id"), trace_id, sizeof trace_id) ||
                 !unhex(member(call->request, "span_id"), span_id, sizeof span_id) ||
                 !integer(member(call->request, "flags"), &flags))) {
    refuse(call, "bad-request", 0, "the ids or flags are not what they should be");
    return;
  }
  if (self->depth == MOST_NESTED) {
    refuse(call, "failed", 0, "%d contexts are nested", MOST_NESTED);
    return;
  }
  gate(call);
  if (!register_keys(call, list)) return;
  if (self->depth > 0) self->outer[self->depth - 1] = *record;
  otel_thread_ctx_begin_inline(record, traced ? trace_id : NULL, traced ? span_id : NULL,
                               (uint8_t)flags);
  for (const struct node* one = list->first; one != NULL; one = one->next) {
    const struct node* const key = member(one, "key");
    size_t length;
    const char* const text = text_of(member(one, "value"), &length);
    if (text == NULL) continue;
    otel_thread_ctx_append_inline(
        record, sizeof *record, otel_thread_ctx_register_key(key->text, key->length), text, length);
  }
  otel_thread_ctx_end_inline(record);
  if (otel_thread_ctx_v1 != record) otel_thread_ctx_attach_inline(record);
  ++self->depth;
}

static void detach(struct call* call) {
  struct thread* const self = call->thread;
  const struct otel_thread_ctx_record* outer;
  if (self->depth == 0) {
    refuse(call, "failed", 0, "nothing is attached");
    return;
  }
  gate(call);
  if (--self->depth == 0) {
    otel_thread_ctx_begin_inline(&self->record, NULL, NULL, 0);
    return;
  }
  outer = &self->outer[self->depth - 1];
  otel_thread_ctx_begin_inline(&self->record, outer->trace_id, outer->span_id, outer->trace_flags);
  for (size_t at = 0; at < outer->attrs_data_size; at += 2u + outer->attrs_data[at + 1]) {
    otel_thread_ctx_append_inline(&self->record, sizeof self->record, outer->attrs_data[at],
                                  (const char*)&outer->attrs_data[at + 2],
                                  outer->attrs_data[at + 1]);
  }
  otel_thread_ctx_end_inline(&self->record);
}

static void tls_address(struct call* call) {
  char text[64];
  snprintf(text, sizeof text, ",\"address\":\"0x%llx\"",
           (unsigned long long)(uintptr_t)&otel_thread_ctx_v1);
  add_text(&call->more, text);
}

static void block(struct call* call) {
  struct thread* const self = call->thread;
  const int sleeps = is(member(call->request, "how"), "sleep");
  const int spins = is(member(call->request, "how"), "spin");
  struct timespec end, now;
  long long ms;
  if (!integer(member(call->request, "ms"), &ms) || ms < 0 || ms > 60000) {
    refuse(call, "bad-request", 0, "ms is not a time");
    return;
  }
  gate(call);
  answer(call);
  self->released = 1;
  if (self != &main_thread) done(self); /* the call is gone with this */
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_nsec += ms % 1000 * 1000000;
  end.tv_sec += ms / 1000 + end.tv_nsec / 1000000000;
  end.tv_nsec %= 1000000000;
  if (sleeps) {
    clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &end, NULL);
  } else if (spins) {
    do clock_gettime(CLOCK_REALTIME, &now);
    while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
  } else {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&lock);
    while (pthread_cond_timedwait(&never, &lock, &end) == 0) continue;
    pthread_mutex_unlock(&lock);
  }
}

static void nothing(struct call* call) { gate(call); }

static void spawn(struct call* call) {
  static const struct node no_gate = {.kind = OBJECT};
  struct call first = {.request = &no_gate, .work = nothing};
  const char* const name = string_or(member(call->request, "thread"), "");
  struct thread* thread;
  int free_place = 0;
  int err;
  while (free_place < MOST_THREADS && threads[free_place] != NULL) ++free_place;
  if (free_place == MOST_THREADS) {
    refuse(call, "failed", EAGAIN, "%d threads are running", MOST_THREADS);
    return;
  }
  if (*name == '\0' || strlen(name) >= sizeof thread->name || strcmp(name, "main") == 0 ||
      find_thread(name) != NULL) {
    refuse(call, "bad-request", 0, "no name for another thread");
    return;
  }
  thread = calloc(1, sizeof *thread);
  if (thread == NULL) abort();
  first.thread = thread;
  strcpy(thread->name, name);
  pthread_mutex_init(&thread->lock, NULL);
  pthread_cond_init(&thread->changed, NULL);
  gate(call);
  err = pthread_create(&thread->handle, NULL, run_thread, thread);
  if (err != 0) {
    free(thread);
    refuse(call, "failed", err, "pthread_create: %s", strerror(err));
    return;
  }
  threads[free_place] = thread;
  perform(&first);
  call->tid = first.tid;
  add_text(&call->more, ",\"thread\":");
  add_json_string(&call->more, thread->name);
}

static void end_thread(struct call* call) {
  struct thread** const place = find_thread(string_or(member(call->request, "thread"), ""));
  struct thread* thread;
  if (place == NULL) {
    refuse(call, "bad-request", 0, "there is no such thread");
    return;
  }
  thread = *place;
  gate(call);
  pthread_mutex_lock(&thread->lock);
  thread->ending = 1;
  pthread_cond_broadcast(&thread->changed);
  pthread_mutex_unlock(&thread->lock);
  pthread_join(thread->handle, NULL);
  *place = NULL;
  free(thread);
}

/* the loop */

static void hello(struct call* call) {
  char pid[32];
  snprintf(pid, sizeof pid, ",\"pid\":%d", (int)getpid());
  add_text(&call->more, pid);
  add_text(&call->more,
           ",\"v\":1,\"adapter\":{\"name\":\"adapter_c\",\"version\":\"1\"},"
           "\"sdk\":{\"name\":\"otel_ctx_writer\",\"version\":\"0.1.0\",\"language\":\"c\"},"
           "\"caps\":{\"process.publish\":{},\"process.update\":{},\"process.drop\":{},"
           "\"process.attributes\":{},\"process.no_resource\":{},"
           "\"thread\":{\"style\":\"valid\",\"max_threads\":64},"
           "\"thread.attach\":{},\"thread.detach\":{},\"gate\":{},\"diag.tls_address\":{}},"
           "\"limits\":{\"record_bytes\":640,\"keys\":256,\"value_bytes\":255}");
}

static const struct {
  const char* op;
  void (*work)(struct call*);
  int in_thread; /* of the request */
} operations[] = {
    {"hello", hello, 0},
    {"bye", nothing, 0},
    {"process.publish", publish, 0},
    {"process.update", update, 0},
    {"process.drop", drop, 0},
    {"thread.spawn", spawn, 0},
    {"thread.exit", end_thread, 0},
    {"thread.block", block, 1},
    {"thread.attach", attach, 1},
    {"thread.detach", detach, 1},
    {"diag.tls_address", tls_address, 1},
};

static void serve(struct call* call) {
  const char* const op = string_or(member(call->request, "op"), "");
  for (size_t i = 0; i < sizeof operations / sizeof *operations; ++i) {
    if (strcmp(operations[i].op, op) != 0) continue;
    call->work = operations[i].work;
    call->thread = &main_thread;
    if (operations[i].in_thread) {
      const char* const name = string_or(member(call->request, "thread"), "main");
      struct thread** const found = find_thread(name);
      if (found != NULL) call->thread = *found;
      if (found == NULL && strcmp(name, "main") != 0) {
        refuse(call, "bad-request", 0, "there is no such thread");
        return;
      }
    }
    perform(call);
    return;
  }
  refuse(call, "unsupported", 0, "no operation '%.40s'", op);
}

int main(void) {
  const char* const channel = getenv("CTXCONF_CHANNEL");
  const int over_socket = channel != NULL && strcmp(channel, "fd3") == 0;
  struct bytes line = {0};
  input = over_socket ? fdopen(3, "r") : stdin;
  if (over_socket) output = 3;
  if (input == NULL) return 1;
  signal(SIGPIPE, SIG_IGN);
  otel_thread_ctx_init_thread();
  for (;;) {
    struct call call = {0};
    int end;
    int bye;
    call.request = read_message(&line, &end);
    if (end != 0) _exit(0); /* threads may be blocked */
    bye = is(member(call.request, "op"), "bye");
    if (member(call.request, "id") == NULL || member(call.request, "id")->kind != NUMBER ||
        !integer(member(call.request, "id"), &call.id)) {
      bye = 0;
      refuse(&call, "bad-request", 0, "expected an object with an id");
    } else {
      serve(&call);
    }
    if (!call.answered) answer(&call);
    release(&call.more);
    if (bye) _exit(0);
  }
}
