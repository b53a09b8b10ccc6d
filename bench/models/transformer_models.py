"""Transformers of known sizes with random weights: an encoder like BERT-base and a decoder step like GPT-2 small, as ONNX files and as torch
functions over the same weights."""
import os

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

LAYERS, WIDTH, HEADS, HEAD, INNER, VOCABULARY, POSITIONS = 12, 768, 12, 64, 3072, 50257, 1024


def weights(rng, decoder):
    """Initialisers by name, of the sizes that keep activations near 1."""
    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns), np.float32) / np.sqrt(rows)).astype(np.float32)
    result = {}
    for i in range(LAYERS):
        for name, rows, columns in (("q", WIDTH, WIDTH), ("k", WIDTH, WIDTH), ("v", WIDTH, WIDTH), ("o", WIDTH, WIDTH), ("up", WIDTH, INNER), ("down", INNER, WIDTH)):
            result[f"{i}.{name}.w"] = matrix(rows, columns)
            result[f"{i}.{name}.b"] = 0.02 * rng.standard_normal(columns, np.float32)
        for name in ("n1", "n2"):
            result[f"{i}.{name}.w"] = np.ones(WIDTH, np.float32)
            result[f"{i}.{name}.b"] = np.zeros(WIDTH, np.float32)
    if decoder:
        result["tokens"] = 0.02 * rng.standard_normal((VOCABULARY, WIDTH), np.float32)
        result["positions"] = 0.02 * rng.standard_normal((POSITIONS, WIDTH), np.float32)
        result["nf.w"], result["nf.b"] = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    return result


class Graph:
    """Collects nodes; every method returns the name of its result."""

    def __init__(self, constants):
        self.nodes, self.constants, self.count = [], dict(constants), 0

    def op(self, kind, *inputs, output=None, **attributes):
        self.count += 1
        name = output or f"t{self.count}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def linear(self, x, name):
        return self.op("Add", self.op("MatMul", x, name + ".w"), name + ".b")

    def norm(self, x, name):
        return self.op("LayerNormalization", x, name + ".w", name + ".b", axis=-1, epsilon=1e-5)

    def heads(self, x):
        return self.op("Transpose", self.op("Reshape", x, "split"), perm=[0, 2, 1, 3])

    def gelu(self, x):
        y = self.op("Erf", self.op("Div", x, "sqrt2"))
        return self.op("Mul", self.op("Mul", x, self.op("Add", y, "one")), "half")

    def attention(self, q, k, v, mask):
        scores = self.op("Mul", self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2])), "scale")
        p = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
        return self.op("Reshape", self.op("Transpose", self.op("MatMul", p, v), perm=[0, 2, 1, 3]), "merge")

    def save(self, path, inputs, outputs):
        shared = {"split": np.array([0, 0, HEADS, HEAD]), "merge": np.array([0, 0, WIDTH]), "scale": np.float32(HEAD**-0.5),
                  "sqrt2": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
        tensors = [numpy_helper.from_array(v, k) for k, v in {**shared, **self.constants}.items()]
        graph = helper.make_graph(self.nodes, "transformer", inputs, outputs, tensors)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def floats(name, *dims):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def encoder(path, rng):
    """x [batch, length, 768], mask [batch, 1, 1, length] (added to the scores)."""
    g = Graph(weights(rng, False))
    x = "x"
    for i in range(LAYERS):
        q, k, v = (g.heads(g.linear(x, f"{i}.{n}")) for n in "qkv")
        x = g.norm(g.op("Add", x, g.linear(g.attention(q, k, v, "mask"), f"{i}.o")), f"{i}.n1")
        y = g.linear(g.gelu(g.linear(x, f"{i}.up")), f"{i}.down")
        last = {"output": "y"} if i + 1 == LAYERS else {}
        x = g.op("LayerNormalization", g.op("Add", x, y), f"{i}.n2.w", f"{i}.n2.b", axis=-1, epsilon=1e-5, **last)
    g.save(path, [floats("x", "batch", "length", WIDTH), floats("mask", "batch", 1, 1, "length")], [floats("y", "batch", "length", WIDTH)])


def decoder(path, rng):
    """ids and places [batch, length], mask [batch, 1, length, past + length], past_k and past_v per layer [batch, 12, past, 64]; the
    caches with the new rows, and the logits of the last position."""
    g = Graph(weights(rng, True))
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "length"]) for n in ("ids", "places")]
    inputs.append(floats("mask", "batch", 1, "length", "all"))
    outputs = [floats("logits", "batch", VOCABULARY)]
    x = g.op("Add", g.op("Gather", "tokens", "ids"), g.op("Gather", "positions", "places"))
    for i in range(LAYERS):
        h = g.norm(x, f"{i}.n1")
        q, k, v = (g.heads(g.linear(h, f"{i}.{n}")) for n in "qkv")
        k = g.op("Concat", f"past_k{i}", k, axis=2, output=f"k{i}")
        v = g.op("Concat", f"past_v{i}", v, axis=2, output=f"v{i}")
        inputs += [floats(f"past_{n}{i}", "batch", HEADS, "past", HEAD) for n in "kv"]
        outputs += [floats(f"{n}{i}", "batch", HEADS, "all", HEAD) for n in "kv"]
        x = g.op("Add", x, g.linear(g.attention(q, k, v, "mask"), f"{i}.o"))
        x = g.op("Add", x, g.linear(g.gelu(g.linear(g.norm(x, f"{i}.n2"), f"{i}.up")), f"{i}.down"))
    last = g.op("Gather", x, g.constant(np.array(-1)), axis=1)
    g.op("MatMul", g.norm(last, "nf"), g.op("Transpose", "tokens", perm=[1, 0]), output="logits")
    g.save(path, inputs, outputs)


MAKERS = {"bert_base": encoder, "gpt2_small": decoder}


def make(directory, name):
    """The model's path; written once."""
    path = os.path.join(directory, name + ".onnx")
    if not os.path.exists(path):
        os.makedirs(directory, exist_ok=True)
        MAKERS[name](path + ".part", np.random.default_rng(7))
        os.rename(path + ".part", path)
    return path


def encoder_request(rng, batch, length):
    return {"x": rng.standard_normal((batch, length, WIDTH), np.float32), "mask": np.zeros((batch, 1, 1, length), np.float32)}


def decoder_request(rng, batch, past, length):
    """`length` new tokens behind a cache of `past`; each sees what is before it."""
    mask = np.triu(np.full((length, past + length), -1e9, np.float32), past + 1)
    request = {"ids": rng.integers(0, VOCABULARY, (batch, length)), "places": np.tile(np.arange(past, past + length), (batch, 1)),
               "mask": np.broadcast_to(mask, (batch, 1, length, past + length))}
    for i in range(LAYERS):
        for n in "kv":
            request[f"past_{n}{i}"] = rng.standard_normal((batch, HEADS, past, HEAD), np.float32)
    return request


def torch_function(path):
    """The model as a function of its inputs by name, over the file's weights; plain torch operations, as a user would write them."""
    import onnx
    import torch
    from torch.nn import functional as F
    model = onnx.load(path)
    w = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in model.graph.initializer}
    linear = {n[:-2]: (w[n].t().contiguous(), w[n[:-2] + ".b"]) for n in w if n.endswith(".w") and w[n].ndim == 2}
    is_decoder = "tokens" in w

    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), w[name + ".w"], w[name + ".b"])

    def block(x, i, mask, past):
        def heads(t):
            return t.view(t.shape[0], t.shape[1], HEADS, HEAD).transpose(1, 2)
        q, k, v = (heads(F.linear(x, *linear[f"{i}.{n}"])) for n in "qkv")
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return F.linear(y.transpose(1, 2).reshape(x.shape), *linear[f"{i}.o"]), k, v

    def inner(x, i):
        return F.linear(F.gelu(F.linear(x, *linear[f"{i}.up"])), *linear[f"{i}.down"])

    def encode(x, mask):
        for i in range(LAYERS):
            x = norm(x + block(x, i, mask, None)[0], f"{i}.n1")
            x = norm(x + inner(x, i), f"{i}.n2")
        return [x]

    def decode(ids, places, mask, **past):
        x = w["tokens"][ids] + w["positions"][places]
        caches = []
        for i in range(LAYERS):
            y, k, v = block(norm(x, f"{i}.n1"), i, mask, (past[f"past_k{i}"], past[f"past_v{i}"]))
            caches += [k, v]
            x = x + y
            x = x + inner(norm(x, f"{i}.n2"), i)
        return [norm(x[:, -1], "nf") @ w["tokens"].t(), *caches]

    return decode if is_decoder else encode
