/* A plug-in as a user writes one: C99 and the installed header. The test builds it again with SAMPLE_ABI for another version. */
#include <kiln_plugin.h>
#include <stdio.h>
#include <string.h>

#ifndef SAMPLE_ABI
#define SAMPLE_ABI KILN_PLUGIN_ABI
#endif

static int64_t elements(const KilnTensor* tensor) {
  int64_t count = 1;
  for (int i = 0; i < tensor->rank; ++i) count *= tensor->dims[i];
  return count;
}

/* NULL also for an attribute of another kind: a model may hold whatever its author wrote. */
static const KilnAttribute* find(const KilnPluginCall* call, const char* name, char kind) {
  for (size_t i = 0; i < call->attribute_count; ++i)
    if (strcmp(call->attributes[i].name, name) == 0 && call->attributes[i].kind == kind) return &call->attributes[i];
  return NULL;
}

/* Scale: y = x * factor + sum(offsets), of x's shape. */
static int same_shape(KilnPluginCall* call) {
  call->outputs[0].rank = call->inputs[0].rank;
  memcpy(call->outputs[0].dims, call->inputs[0].dims, sizeof call->inputs[0].dims);
  return 0;
}
static int scale(KilnPluginCall* call) {
  const KilnAttribute* factor = find(call, "factor", 'f');
  const KilnAttribute* offsets = find(call, "offsets", 'I');
  const KilnAttribute* mode = find(call, "mode", 's');
  if (factor == NULL || mode == NULL || strcmp(mode->s, "plain scale") != 0) {
    snprintf(call->message, call->message_size, "factor and mode are needed");
    return 7;
  }
  float add = 0;
  for (size_t i = 0; offsets != NULL && i < offsets->count; ++i) add += (float)offsets->ints[i];
  const float* x = call->inputs[0].data;
  float* y = call->outputs[0].data;
  for (int64_t i = 0; i < elements(&call->inputs[0]); ++i) y[i] = x[i] * (float)factor->f + add;
  return 0;
}

/* KeepPositive: the positive elements of x, and how many there are; the shape depends on the contents. */
static int positive_shape(KilnPluginCall* call) {
  const float* x = call->inputs[0].data;
  int64_t kept = 0;
  for (int64_t i = 0; i < elements(&call->inputs[0]); ++i) kept += x[i] > 0;
  call->outputs[0].rank = 1;
  call->outputs[0].dims[0] = kept;
  if (call->output_count > 1) call->outputs[1].rank = 0;
  return 0;
}
static int keep_positive(KilnPluginCall* call) {
  const float* x = call->inputs[0].data;
  float* y = call->outputs[0].data;
  int64_t kept = 0;
  for (int64_t i = 0; i < elements(&call->inputs[0]); ++i)
    if (x[i] > 0) y[kept++] = x[i];
  if (call->output_count > 1) *(int64_t*)call->outputs[1].data = kept;
  return 0;
}

/* WrongShape: declares two dims and gives three. */
static int three_dims(KilnPluginCall* call) {
  call->outputs[0].rank = 3;
  call->outputs[0].dims[0] = call->outputs[0].dims[1] = call->outputs[0].dims[2] = 1;
  return 0;
}
/* NegativeDim, HugeDim: sizes that cannot be. */
static int negative_dim(KilnPluginCall* call) {
  call->outputs[0].rank = 1;
  call->outputs[0].dims[0] = -5;
  return 0;
}
static int huge_dim(KilnPluginCall* call) {
  call->outputs[0].rank = 2;
  call->outputs[0].dims[0] = call->outputs[0].dims[1] = INT64_MAX / 2;
  return 0;
}
static int nothing(KilnPluginCall* call) {
  (void)call;
  return 0;
}

static const KilnPluginOutput like_x[] = {{KILN_OF_INPUT(0), KILN_OF_INPUT(0)}};
static const KilnPluginOutput list_and_count[] = {{KILN_F32, 1}, {KILN_I64, 0}};
static const KilnPluginOutput two_dims[] = {{KILN_F32, 2}};
static const KilnPluginOutput any_rank[] = {{KILN_F32, KILN_RANK_FROM_SHAPE}};

static const KilnPluginOp ops[] = {
    {"example", "Scale", 1, 1, 1, like_x, 1, same_shape, scale},
    {"example", "KeepPositive", 1, 1, 1, list_and_count, 2, positive_shape, keep_positive},
    {"example", "WrongShape", 1, 1, 1, two_dims, 1, three_dims, nothing},
    {"example", "NegativeDim", 1, 1, 1, any_rank, 1, negative_dim, nothing},
    {"example", "HugeDim", 1, 1, 1, any_rank, 1, huge_dim, nothing},
};

static const KilnPlugin plugin = {SAMPLE_ABI, "sample", ops, sizeof ops / sizeof ops[0]};

const KilnPlugin* kiln_plugin(void) { return &plugin; }
