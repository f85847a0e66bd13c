/* The C interface of the Annulus client: exact attention by a remote service.
 *
 * C99. The functions throw nothing and never abort the process; errors are JSON documents. A
 * document is proto3 JSON of a message in proto/annulus/client/v1/client.proto, in UTF-8.
 *
 * Thread-safe: every function may be called from any thread, but nothing may use an object while or
 * after it is freed. After fork(), the child must not use a client of its parent: calls end with
 * FAILED_PRECONDITION / FORKED.
 *
 * The interface only grows: functions are added, none changes.
 *
 *   annulus_client* client = annulus_client_new("{\"address\": \"127.0.0.1:8001\"}", NULL);
 *   annulus_tensor tensors[] = {
 *       {ANNULUS_Q, 0, q, q_bytes, NULL},
 *       {ANNULUS_K, 0, k, k_bytes, NULL},
 *       {ANNULUS_V, 0, v, v_bytes, NULL},
 *       {ANNULUS_OUT, ANNULUS_OUTPUT, out, out_bytes, NULL},
 *       {ANNULUS_LSE, ANNULUS_OUTPUT, lse, lse_bytes, NULL},
 *   };
 *   annulus_call* call = annulus_attend(client, request_json, tensors, 5);
 *   while (!annulus_call_wait(call, 0.05)) {
 *     if (interrupted) annulus_call_cancel(call);
 *   }
 *   puts(annulus_call_result(call, NULL));
 *   annulus_call_free(call);
 *   annulus_client_free(client);
 */
#ifndef ANNULUS_CLIENT_C_ANNULUS_H_
#define ANNULUS_CLIENT_C_ANNULUS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A client of one coordinator, and a call of a client. */
typedef struct annulus_client annulus_client;
typedef struct annulus_call annulus_call;

/* The tensors, with the numbers of annulus.v1.TensorId. */
enum {
  ANNULUS_Q = 1,
  ANNULUS_K = 2,
  ANNULUS_V = 3,
  ANNULUS_OUT = 4,
  ANNULUS_LSE = 5,
  ANNULUS_MAX_LOGIT = 6,
  ANNULUS_D_OUT = 7,
  ANNULUS_D_LSE = 8,
  ANNULUS_DQ = 9,
  ANNULUS_DK = 10,
  ANNULUS_DV = 11,
  ANNULUS_BIAS = 12,
  ANNULUS_D_BIAS = 13,
  ANNULUS_D_SINK = 14,
  ANNULUS_BIT_MASK = 15,
  ANNULUS_LSE_OFFSET = 16,
  ANNULUS_LSE_REST = 17
};

/* Flags of a tensor. */
enum { ANNULUS_OUTPUT = 1 };

/* The places of a tensor's elements, in bytes. Row r is token r % tokens of sequence r / tokens.
 * Its element d of head h lies at sequence * (r / tokens) + token * (r % tokens) + head * h +
 * element * d. So batch, tokens, heads and dimension may be in any order. No stride is negative. A
 * stride of 0 repeats elements, for inputs only. */
typedef struct {
  int64_t tokens; /* Rows of a sequence. 0: all rows are one sequence. */
  int64_t sequence, token, head, element;
} annulus_strides;

/* One tensor in the caller's memory, little-endian. An input stays unchanged until the call has
 * ended. An output is written until then; after an error it holds anything. */
typedef struct {
  int32_t id;    /* ANNULUS_Q, ... */
  int32_t flags; /* 0 for an input, ANNULUS_OUTPUT for an output. */
  void* data;    /* The first element. May be NULL if bytes is 0. */
  int64_t bytes; /* Packed rows: their size. Strides: to the end of the last element, or more. */
  /* NULL: packed rows [rows, heads, dim], row-major. Read before annulus_attend returns. Rows are
   * packed chunk by chunk as they are sent, never the whole tensor. */
  const annulus_strides* strides;
} annulus_tensor;

/* The progress of a job. state: annulus.v1.Job.State. Bytes are those of this process. */
typedef struct {
  int32_t state, attempt, segments_done, segments;
  int64_t bytes_sent, bytes_to_send, bytes_received, bytes_to_receive;
} annulus_progress;

/* The release of this library, for example "0.1.0". Static. */
const char* annulus_version(void);

/* Makes a client; opens no connection. `options_json`: a ClientOptions document; NULL: defaults.
 * NULL after an error, with a CallOutcome document in *error_json if error_json is not NULL; free
 * it with annulus_string_free. */
annulus_client* annulus_client_new(const char* options_json, char** error_json);

/* Cancels the client's calls, waits for their ends and frees the client. Its calls stay valid: they
 * have ended, and are freed by annulus_call_free. NULL: nothing. */
void annulus_client_free(annulus_client* client);

/* An eventfd, owned by the client: readable when a call of the client has ended or progressed since
 * it was read last. Reading its 8 bytes resets it. */
int annulus_client_event_fd(const annulus_client* client);

/* Starts a job and returns at once, also after an error, which the call then carries.
 * `request_json`: a CallRequest document. `tensors` is read before the function returns; the memory
 * that they point to is borrowed until the call has ended. NULL only without memory. Errors before
 * a byte moves: INVALID_ARGUMENT / BAD_REQUEST (the document, with the field), UNKNOWN_TENSOR or
 * TENSOR_BYTES_MISMATCH (a tensor twice, or of a wrong size), SHAPE_MISMATCH or DIM_OVERFLOW (its
 * strides), MISSING_TENSOR, and those of the
 * validator. */
annulus_call* annulus_attend(annulus_client* client, const char* request_json,
                             const annulus_tensor* tensors, size_t count);

/* Waits until the call has ended, at most this many seconds (0: does not wait; negative: no limit).
 * Returns 1 if it has ended, else 0. */
int annulus_call_wait(annulus_call* call, double seconds);

/* Asks for the end of the call, as CANCELLED unless it was faster. Does not wait. */
void annulus_call_cancel(annulus_call* call);

/* The end of the call, a CallOutcome document with `result` or `error`. NULL while the call runs.
 * Valid until annulus_call_free. `bytes`: its length without the final 0; may be NULL. */
const char* annulus_call_result(annulus_call* call, size_t* bytes);

/* Writes the latest progress. Returns 1, or 0 if there is none yet. */
int annulus_call_progress(annulus_call* call, annulus_progress* progress);

/* Frees a call. Cancels it first if it has not ended, and waits until no memory is borrowed. NULL:
 * nothing. */
void annulus_call_free(annulus_call* call);

/* A call without tensors that waits for its answer. `method` and `request_json` (NULL: empty):
 * GetServerInfo, PlanJob, GetJob, ListJobs, CancelJob, ReleaseState with the request of
 * annulus.v1 of that name. `seconds`: the time limit, 0 or less: 10 s. Returns {"result": ...} with
 * the response, or {"error": ...}; free it with annulus_string_free. NULL only without memory. */
char* annulus_unary(annulus_client* client, const char* method, const char* request_json,
                    double seconds);

/* Frees a string that this library returned as char*. NULL: nothing. */
void annulus_string_free(char* string);

#ifdef __cplusplus
}
#endif

#endif /* ANNULUS_CLIENT_C_ANNULUS_H_ */
