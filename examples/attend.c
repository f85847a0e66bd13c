/* Causal attention by the C interface, in C99. With a service on this machine (annulus serve):
 *
 *   bazel run //examples:attend_c -- 127.0.0.1:8001
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/c/annulus.h"

enum { TOKENS = 500, HEADS = 4, DIM = 64, NUMBERS = TOKENS * HEADS * DIM };

static float q[NUMBERS], k[NUMBERS], v[NUMBERS], out[NUMBERS], lse[TOKENS * HEADS];

static void fill(float* values, unsigned seed) {
  int i;
  for (i = 0; i < NUMBERS; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

int main(int argc, char** argv) {
  static const char request[] =
      "{\"spec\": {\"dtype\": \"DATA_TYPE_FP32\", \"qHeads\": 4, \"kvHeads\": 4, \"headDim\": 64,"
      " \"sequences\": [{\"qLen\": \"500\", \"kvLen\": \"500\"}], \"masks\": [{\"causal\": true}]},"
      " \"timeout\": \"60s\"}";
  const annulus_tensor tensors[] = {
      {ANNULUS_Q, 0, q, sizeof q, NULL},
      {ANNULUS_K, 0, k, sizeof k, NULL},
      {ANNULUS_V, 0, v, sizeof v, NULL},
      {ANNULUS_OUT, ANNULUS_OUTPUT, out, sizeof out, NULL},
      {ANNULUS_LSE, ANNULUS_OUTPUT, lse, sizeof lse, NULL},
  };
  char options[256];
  char* error = NULL;
  annulus_client* client;
  annulus_call* call;
  int right;
  if (argc != 2) {
    fprintf(stderr, "usage: attend_c HOST:PORT\n");
    return 2;
  }
  fill(q, 1);
  fill(k, 2);
  fill(v, 3);
  snprintf(options, sizeof options, "{\"address\": \"%.200s\"}", argv[1]);
  client = annulus_client_new(options, &error);
  if (client == NULL) {
    fprintf(stderr, "%s\n", error);
    annulus_string_free(error);
    return 1;
  }
  call = annulus_attend(client, request, tensors, sizeof tensors / sizeof tensors[0]);
  annulus_call_wait(call, -1);
  /* Under a causal mask the first token sees itself alone, so its output is its value. */
  right = out[0] == v[0] && out[DIM - 1] == v[DIM - 1];
  if (!right) fprintf(stderr, "%s\n", annulus_call_result(call, NULL));
  printf("annulus %s, first row equals v: %s\n", annulus_version(), right ? "true" : "false");
  annulus_call_free(call);
  annulus_client_free(client);
  return right ? 0 : 1;
}
