/* Plug-ins: operators of your own for Kiln's workers, as a shared library.
 *
 * A library exports `kiln_plugin`, which describes its operators. A worker that is started with `--plugin LIBRARY` runs
 * them for the nodes of ONNX models whose domain and operator type they name. Plain C99; this header is all that a
 * plug-in needs.
 *
 *   cc -std=c99 -shared -fPIC -o my_ops.so my_ops.c
 *   kiln-worker --plugin ./my_ops.so --model m=model.onnx …
 *
 * An operator is a function of its inputs and attributes: it keeps no state, writes nothing but its outputs, and may be
 * called from several threads at once. Its nodes are answered by this code always; Kiln compiles what lies between
 * them. */
#ifndef KILN_PLUGIN_H_
#define KILN_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KILN_PLUGIN_ABI 1u
#define KILN_PLUGIN_RANK_MAX 8

/* Element types: ONNX's TensorProto.DataType numbers. */
enum {
  KILN_F32 = 1,
  KILN_U8 = 2,
  KILN_I8 = 3,
  KILN_U16 = 4,
  KILN_I16 = 5,
  KILN_I32 = 6,
  KILN_I64 = 7,
  KILN_BOOL = 9,
  KILN_F16 = 10,
  KILN_F64 = 11,
  KILN_U32 = 12,
  KILN_U64 = 13,
  KILN_BF16 = 16
};

/* Row-major without gaps, aligned to its element type at least. `data` of outputs is NULL during the shape function. */
typedef struct KilnTensor {
  void* data;
  int32_t dtype;
  int32_t rank;
  int64_t dims[KILN_PLUGIN_RANK_MAX];
} KilnTensor;

/* An attribute of the node. `kind`: 'i' int, 'f' float, 's' text, 'I' ints, 'F' floats. */
typedef struct KilnAttribute {
  const char* name;
  char kind;
  int64_t i;
  double f;
  const char* s;
  const int64_t* ints;
  const double* floats;
  size_t count; /* of ints or floats */
} KilnAttribute;

/* One call. The memory belongs to Kiln and ends with the call. */
typedef struct KilnPluginCall {
  const KilnTensor* inputs;
  size_t input_count;
  KilnTensor* outputs;
  size_t output_count;
  const KilnAttribute* attributes;
  size_t attribute_count;
  char* message; /* room for the text of an error, terminated by 0 */
  size_t message_size;
} KilnPluginCall;

/* 0, or another value after writing `message`: the request then fails with it. */
typedef int (*KilnPluginFunction)(KilnPluginCall* call);

/* What is said of an output in a declaration, beside a dtype or a rank. */
#define KILN_OF_INPUT(k) (-1 - (k))  /* that of input k */
#define KILN_RANK_FROM_SHAPE (-1000) /* only the shape function knows */

typedef struct KilnPluginOutput {
  int32_t dtype;
  int32_t rank;
} KilnPluginOutput;

typedef struct KilnPluginOp {
  const char* domain; /* not "" nor "ai.onnx" */
  const char* type;
  int32_t inputs_min, inputs_max; /* 1 or more */
  int32_t outputs_min;            /* 1 or more; at most output_count */
  const KilnPluginOutput* outputs;
  size_t output_count;
  /* Sets rank and dims of every output; dtype is set already. Inputs may be read. */
  KilnPluginFunction shape;
  /* Fills the outputs. */
  KilnPluginFunction compute;
} KilnPluginOp;

typedef struct KilnPlugin {
  uint32_t abi; /* KILN_PLUGIN_ABI */
  const char* name;
  const KilnPluginOp* ops;
  size_t op_count;
} KilnPlugin;

/* Exported by the library; what it points to stays as it is. */
const KilnPlugin* kiln_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
