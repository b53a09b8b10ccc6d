"""What is measured: models with their fixed data sets, and streams of requests whose shapes change."""
import os

import numpy as np
import transformer_models as transformers
from onnx import load_tensor, numpy_helper

# Paths below the models directory. Every one is measured on each of its own data sets.
MODELS = [
    "ppocr/ch_PP-OCRv4_rec_infer.onnx",
    "ppocr/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "ppocr/ch_PP-OCRv4_det_infer.onnx",
    "silero-vad/silero_vad_16k_op15.onnx",
    "silero-vad/silero_vad_op18_ifless.onnx",
    "silero-vad/silero_vad.onnx",
    "silero-vad/silero_vad_legacy.onnx",
    "bert-qa-tf/bert_toy_optimized.onnx",
    "bert-qa-tf/TFBertForQuestionAnswering.onnx",
    "gpt2-past/gpt2_past.onnx",
    "mnist/opt-mnist.onnx",
    "mtcnn/pnet.onnx",
    "mtcnn/rnet.onnx",
    "mtcnn/onet.onnx",
    "super-resolution/pytorch_super_resolution.onnx",
    "gtcrn/gtcrn_simple.onnx",
    "gtcrn/gtcrn.onnx",
    "pythainlp/thai2rom_encoder.onnx",
    "pythainlp/thai2rom_decoder.onnx",
    "composed/ultraface_nms.onnx",
]

# Models that take batches, and the batch axis of each input (None: it has none). Measured on eight times their first data set.
BATCHED = [
    ("ppocr/ch_PP-OCRv4_rec_infer.onnx", [0]),
    ("ppocr/ch_ppocr_mobile_v2.0_cls_infer.onnx", [0]),
    ("ppocr/ch_PP-OCRv4_det_infer.onnx", [0]),
    ("silero-vad/silero_vad_16k_op15.onnx", [0, 1, None]),
    ("silero-vad/silero_vad_legacy.onnx", [0, None, 1, 1]),
    ("bert-qa-tf/bert_toy_optimized.onnx", [0, 0, 0]),
    ("bert-qa-tf/TFBertForQuestionAnswering.onnx", [0, 0, 0]),
    ("gpt2-past/gpt2_past.onnx", [0] + 12 * [1]),
    ("mtcnn/rnet.onnx", [0]),
    ("mtcnn/onet.onnx", [0]),
    ("super-resolution/pytorch_super_resolution.onnx", [0]),
]


def floats(rng, *shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def text_lines(rng):
    """Pictures of text lines: width = 32 * aspect, aspect lognormal with median 10, for a recogniser of height 48."""
    widths = np.clip(np.round(48 * rng.lognormal(np.log(10), 0.5, 20)), 32, 960).astype(int)
    return [{"x": floats(rng, 1, 3, 48, w)} for w in widths]


def pictures(rng):
    return [{"x": floats(rng, 1, 3, 32 * h, 32 * w)} for h, w in zip(rng.integers(3, 12, 10), rng.integers(3, 15, 10))]


def sentences(rng):
    """Sentence pairs as a paraphrase corpus has them: about 53 tokens, 16 to 128."""
    lengths = np.clip(np.round(rng.lognormal(3.93, 0.28, 24)), 16, 128).astype(int)
    zeros = [np.zeros((1, n), np.int64) for n in lengths]
    return [{"input_ids": rng.integers(0, 20, z.shape), "token_type_ids": z, "input_mask": z + 1} for z in zeros]


def growing_cache(rng):
    """One token at a time on a cache that grows; the model has eight positions."""
    return [{"input_ids": np.ones((1, 1), np.int64), **{f"past_{i}": floats(rng, 2, 1, 2, n, 2) for i in range(12)}} for n in range(1, 8)]


def pyramid(rng):
    scales = [0.709**k for k in range(7)]
    return [{"input_1": floats(rng, 1, int(180 * s), int(240 * s), 3)} for s in scales]


def crops(name, size):
    return lambda rng: [{name: floats(rng, n, size, size, 3)} for n in rng.permutation(np.arange(1, 25))[:12]]


def words(rng):
    return [{"decoder_input": np.ones((1, 1), np.int32), "decoder_hidden_1": floats(rng, 1, 1, 256),
             "encoder_outputs": floats(rng, 1, n, 256), "mask": np.ones((1, n), np.float32)} for n in range(3, 19)]


def frames(rng):
    """32 ms frames at 16 kHz behind 64 samples of context."""
    return [{"input": floats(rng, 1, 576), "state": floats(rng, 2, 1, 128), "sr": np.array(16000)} for _ in range(12)]


def batches_of_lines(rng):
    """Batches of text lines, padded to the widest."""
    widths = np.clip(np.round(48 * rng.lognormal(np.log(10), 0.5, 6)), 32, 960).astype(int)
    return [{"x": floats(rng, 8, 3, 48, w)} for w in widths]


def sequences(rng):
    """As `sentences`, for an encoder without embeddings."""
    return [transformers.encoder_request(rng, 1, n) for n in np.clip(np.round(rng.lognormal(3.93, 0.28, 8)), 16, 128).astype(int)]


def dense_batches(rng):
    return [transformers.encoder_request(rng, 16, n) for n in rng.integers(1, 128, 3)]


def prefill_then_decode(rng):
    return [transformers.decoder_request(rng, 1, 0, 24)] + [transformers.decoder_request(rng, 1, n, 1) for n in range(24, 32)]


# Generated models, name of the fixed shape, its requests.
GENERATED = [
    ("bert_base", "1x128", lambda rng: [transformers.encoder_request(rng, 1, 128)]),
    ("bert_base", "8x128", lambda rng: [transformers.encoder_request(rng, 8, 128)]),
    ("gpt2_small", "1 behind 128", lambda rng: [transformers.decoder_request(rng, 1, 128, 1)]),
    ("gpt2_small", "8 behind 128", lambda rng: [transformers.decoder_request(rng, 8, 128, 1)]),
]
GENERATED_STREAMS = [
    ("bert_base", "W1 sentences", sequences),
    ("bert_base", "W2 batches of 16", dense_batches),
    ("gpt2_small", "W12 prefill, decode", prefill_then_decode),
]

# Model, name of the stream, its requests.
STREAMS = [
    ("ppocr/ch_PP-OCRv4_rec_infer.onnx", "W8 batches of 8", batches_of_lines),
    ("silero-vad/silero_vad_16k_op15.onnx", "W9 frames", frames),
    ("ppocr/ch_PP-OCRv4_rec_infer.onnx", "W8 text lines", text_lines),
    ("ppocr/ch_PP-OCRv4_det_infer.onnx", "pictures", pictures),
    ("bert-qa-tf/bert_toy_optimized.onnx", "W1 sentence pairs", sentences),
    ("gpt2-past/gpt2_past.onnx", "W12 growing cache", growing_cache),
    ("mtcnn/pnet.onnx", "image pyramid", pyramid),
    ("mtcnn/rnet.onnx", "crops 1..24", crops("input_2", 24)),
    ("mtcnn/onet.onnx", "crops 1..24", crops("input_3", 48)),
    ("pythainlp/thai2rom_decoder.onnx", "words", words),
]


def write_stream(directory, requests):
    """As data sets on disk, which is how both sides read them."""
    paths = []
    for k, request in enumerate(requests):
        path = os.path.join(directory, f"test_data_set_{k}")
        os.makedirs(path, exist_ok=True)
        for i, (name, value) in enumerate(request.items()):
            with open(os.path.join(path, f"input_{i}.pb"), "wb") as file:
                file.write(numpy_helper.from_array(np.ascontiguousarray(value), name).SerializeToString())
        paths.append(path)
    return paths


def read_inputs(path):
    """[(name, array)] of one data set."""
    files = sorted((f for f in os.listdir(path) if f.startswith("input_")), key=lambda f: int(f[6:-3]))
    tensors = [load_tensor(os.path.join(path, f)) for f in files]
    return [(t.name, np.array(numpy_helper.to_array(t))) for t in tensors]


def fixed_sets(models, model):
    folder, file = os.path.split(model)
    root = os.path.join(models, folder, "vectors", os.path.splitext(file)[0])
    return [os.path.join(root, d) for d in sorted(os.listdir(root), key=lambda d: int(d.rsplit("_", 1)[1]))]


def batch_of(models, model, axes, size):
    """The model's first data set, `size` times along the axes."""
    inputs = read_inputs(fixed_sets(models, model)[0])
    return {name or f"input_{i}": value if axis is None else np.repeat(value, size, axis)
            for i, ((name, value), axis) in enumerate(zip(inputs, axes, strict=True))}


def shape_text(path):
    """The shape of the largest input, for a table."""
    return "x".join(str(d) for d in max((a.shape for _, a in read_inputs(path)), key=lambda s: np.prod(s, dtype=np.int64)))
