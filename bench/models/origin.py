#!/usr/bin/env python3
"""The three claims that the project started from, measured on this machine.

    origin.py [--build DIR] [--rounds N]

1. Shapes that change at random between [32, 64] and [64, 32]: one plan for any shape, and plans of each shape among which dispatch
   chooses, as a worker has them once both are frequent; beside two programs of fixed sizes (static), and the interpreter.
2. An LSTM cell in a loop, sequences of 10, 20 and 30: time per step, and heap allocations of a request.
3. The length mix of a language model under three schemes: A a plan per length, B one plan for all, C lengths padded to powers of two.
Prints tables and writes bench/results/origin.json. CPU time, in turns."""
import argparse
import gc
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peers  # noqa: E402

MIX = [(1, 32, 0.20), (33, 128, 0.35), (129, 512, 0.30), (513, 2048, 0.15)]
REQUESTS = 60
LSTM_INPUT, LSTM_HIDDEN = 300, 512


def save_model(path, nodes, inputs, outputs, constants):
    from onnx import helper, numpy_helper, save
    tensors = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "origin", inputs, outputs, tensors)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def changing_shapes(path, dims):
    """Gelu of softmax(x x^T) x + x, twice: products of every size of x, and chains."""
    from onnx import TensorProto, helper
    nodes, x = [], "x"
    for i in range(2):
        for kind, ins, out, attributes in (("Transpose", [x], "t", {"perm": [1, 0]}), ("MatMul", [x, "t"], "s", {}), ("Softmax", ["s"], "p", {"axis": -1}),
                                           ("MatMul", ["p", x], "m", {}), ("Add", ["m", x], "a", {}), ("Mul", ["a", "root"], "r", {}), ("Erf", ["r"], "e", {}),
                                           ("Add", ["e", "one"], "o", {}), ("Mul", ["o", "a"], "g", {}), ("Mul", ["g", "half"], "y", {})):
            local = "tspmareogy"
            nodes.append(helper.make_node(kind, [f"{n}{i}" if n in local else n for n in ins], [f"{out}{i}"], **attributes))
        x = f"y{i}"
    import numpy as np
    constants = {"root": np.float32(0.5**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n in ("x", x)]
    save_model(path, nodes, info[:1], info[1:], constants)


def lstm_cell(path, rng):
    """A Loop over time whose body is one step of an LSTM."""
    import numpy as np
    from onnx import TensorProto, helper

    def info(name, kind, *dims):
        return helper.make_tensor_value_info(name, kind, dims)

    def node(kind, ins, outs, **attributes):
        return helper.make_node(kind, ins, outs, **attributes)
    body = helper.make_graph([
        node("Gather", ["x", "i"], ["xt"], axis=0), node("MatMul", ["xt", "w"], ["xw"]), node("MatMul", ["h", "r"], ["hr"]), node("Add", ["xw", "hr"], ["g0"]),
        node("Add", ["g0", "b"], ["g"]), node("Split", ["g"], ["gi", "gf", "gc", "go"], axis=-1), node("Sigmoid", ["gi"], ["si"]), node("Sigmoid", ["gf"], ["sf"]),
        node("Tanh", ["gc"], ["tc"]), node("Sigmoid", ["go"], ["so"]), node("Mul", ["sf", "c"], ["fc"]), node("Mul", ["si", "tc"], ["ic"]), node("Add", ["fc", "ic"], ["c1"]),
        node("Tanh", ["c1"], ["t1"]), node("Mul", ["so", "t1"], ["h1"]), node("Identity", ["go_on"], ["go_on1"]), node("Identity", ["h1"], ["y"])],
        "step", [info("i", TensorProto.INT64), info("go_on", TensorProto.BOOL), info("h", TensorProto.FLOAT, 1, LSTM_HIDDEN), info("c", TensorProto.FLOAT, 1, LSTM_HIDDEN)],
        [info("go_on1", TensorProto.BOOL), info("h1", TensorProto.FLOAT, 1, LSTM_HIDDEN), info("c1", TensorProto.FLOAT, 1, LSTM_HIDDEN), info("y", TensorProto.FLOAT, 1, LSTM_HIDDEN)])
    nodes = [node("Shape", ["x"], ["dims"]), node("Gather", ["dims", "first"], ["steps"], axis=0),
             node("Loop", ["steps", "yes", "zero", "zero"], ["h_last", "c_last", "ys"], body=body)]
    constants = {"w": 0.05 * rng.standard_normal((LSTM_INPUT, 4 * LSTM_HIDDEN), np.float32), "r": 0.05 * rng.standard_normal((LSTM_HIDDEN, 4 * LSTM_HIDDEN), np.float32),
                 "b": np.zeros(4 * LSTM_HIDDEN, np.float32), "zero": np.zeros((1, LSTM_HIDDEN), np.float32), "first": np.array(0), "yes": np.array(True)}
    save_model(path, nodes, [info("x", TensorProto.FLOAT, "steps", 1, LSTM_INPUT)], [info("ys", TensorProto.FLOAT, "all", 1, LSTM_HIDDEN)], constants)
    return [{"x": rng.standard_normal((n, 1, LSTM_INPUT), np.float32)} for n in (10, 20, 30)]


def decoder_layer(path, rng):
    """One layer of an encoder of width 256 without a mask."""
    import numpy as np
    from onnx import TensorProto, helper
    width, heads = 256, 4
    constants = {"split": np.array([0, 0, heads, width // heads]), "merge": np.array([0, 0, width]), "scale": np.float32((width // heads) ** -0.5)}
    nodes = []

    def op(kind, *ins, output=None, **attributes):
        out = output or f"v{len(nodes)}"
        nodes.append(helper.make_node(kind, list(ins), [out], **attributes))
        return out

    def linear(x, rows, columns):
        name = f"w{len(constants)}"
        constants[name] = (rng.standard_normal((rows, columns), np.float32) / np.sqrt(rows)).astype(np.float32)
        return op("MatMul", x, name)

    def split(x, perm):
        return op("Transpose", op("Reshape", x, "split"), perm=perm)
    q, k, v = split(linear("x", width, width), [0, 2, 1, 3]), split(linear("x", width, width), [0, 2, 3, 1]), split(linear("x", width, width), [0, 2, 1, 3])
    p = op("Softmax", op("Mul", op("MatMul", q, k), "scale"), axis=-1)
    merged = op("Reshape", op("Transpose", op("MatMul", p, v), perm=[0, 2, 1, 3]), "merge")
    x = op("Add", "x", linear(merged, width, width))
    op("Add", x, linear(op("Tanh", linear(x, width, 4 * width)), 4 * width, width), output="y")
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, "length", width]) for n in "xy"]
    save_model(path, nodes, info[:1], info[1:], constants)
    bins = rng.choice(len(MIX), REQUESTS, p=[share for _, _, share in MIX])
    return [int(rng.integers(MIX[b][0], MIX[b][1] + 1)) for b in bins]


class Session:
    """model_bench over requests on disk; medians of CPU microseconds per request."""

    def __init__(self, arguments, directory, name, model, requests, tiers):
        from workloads import write_stream
        self.sets = write_stream(os.path.join(directory, name), requests)
        self.kiln = peers.Kiln(os.path.join(arguments.build, "bench-bin", "model_bench"), model, self.sets, tiers, 1)
        self.tiers = tiers
        self.allocations = {}
        for tier, facts in self.kiln.ready["tiers"].items():
            if facts["failure"] or facts["difference"]:
                print(f"{name}, {tier}: {facts['failure']} {facts['difference']}")

    def measure(self, rounds):
        """Per tier, per request: the median over the rounds, which take turns."""
        samples = {tier: peers.Samples(len(self.sets)) for tier in self.tiers}
        for tier in self.tiers:
            self.kiln.ask(f"round {tier} 2")
        for k in range(rounds):
            for tier in self.tiers[k % len(self.tiers):] + self.tiers[:k % len(self.tiers)]:
                answer = self.kiln.ask(f"round {tier} 1")
                samples[tier].add(answer["cpu_ns"], answer["wall_ns"])
                self.allocations[tier] = answer["allocations"]
        return {tier: [peers.quantile(v, 0.5) for v in s.cpu] for tier, s in samples.items()}


def random_shapes(arguments, directory, rng):
    import numpy as np
    shapes = ((32, 64), (64, 32))
    stream = [{"x": rng.standard_normal(shapes[i], np.float32)} for i in rng.integers(0, 2, 20)]
    model = os.path.join(directory, "shapes.onnx")
    changing_shapes(model, ["rows", "columns"])
    dynamic = Session(arguments, directory, "shapes", model, stream, ["interpreter", "generic", "exact"])
    fixed = []   # per shape: its session, and the requests of the stream that it answers
    for k, shape in enumerate(shapes):
        model = os.path.join(directory, f"fixed{k}.onnx")
        changing_shapes(model, list(shape))
        answers = [i for i, request in enumerate(stream) if request["x"].shape == shape]
        fixed.append((Session(arguments, directory, f"fixed{k}", model, [stream[i] for i in answers], ["exact"]), answers))
    samples = {tier: [[] for _ in stream] for tier in (*dynamic.tiers, "static")}
    for _ in range(arguments.rounds):   # in turns
        for tier, medians in dynamic.measure(5).items():
            for i, us in enumerate(medians):
                samples[tier][i].append(us)
        for session, answers in fixed:
            for i, us in zip(answers, session.measure(5)["exact"]):
                samples["static"][i].append(us)
    for session in (dynamic, *(session for session, _ in fixed)):
        session.kiln.close()
    us = {tier: float(np.mean([np.median(v) for v in rows])) for tier, rows in samples.items()}
    print("\nrandom [32, 64] / [64, 32]: mean of a request")
    for tier, value in us.items():
        print(f"  {tier:<12} {value:9.1f} us  {100 * value / us['interpreter']:5.1f} % of the interpreter  {100 * value / us['static']:6.1f} % of static")
    return {f"{tier}_us": value for tier, value in us.items()}


def lstm(arguments, directory, rng):
    model = os.path.join(directory, "lstm.onnx")
    session = Session(arguments, directory, "lstm", model, lstm_cell(model, rng), ["interpreter", "generic"])
    us = session.measure(arguments.rounds * 3)
    session.kiln.close()
    print("\nLSTM cell in a loop, 300 to 512: a request, a step, heap allocations of a request")
    rows = []
    for i, steps in enumerate((10, 20, 30)):
        row = {"steps": steps, **{f"{t}_us": us[t][i] for t in us}, **{f"{t}_allocations": session.allocations[t][i] for t in us}}
        rows.append(row)
        print(f"  {steps} steps: interpreter {row['interpreter_us']:9.1f} us, plans {row['generic_us']:9.1f} us, {row['generic_us'] / steps:7.1f} us a step, "
              f"allocations {row['interpreter_allocations']} and {row['generic_allocations']}")
    return rows


def length_mix(arguments, directory, rng):
    import numpy as np
    model = os.path.join(directory, "mix.onnx")
    lengths = decoder_layer(model, rng)
    requests = {n: rng.standard_normal((1, n, 256), np.float32) for n in {*lengths, *(1 << (n - 1).bit_length() for n in lengths)}}
    padded = [1 << max(5, (n - 1).bit_length()) for n in lengths]
    for n in padded:
        requests.setdefault(n, rng.standard_normal((1, n, 256), np.float32))
    print(f"\nlength mix, {len(lengths)} requests of {len(set(lengths))} lengths")
    rows = []
    for scheme, chosen, tier in (("A", lengths, "exact"), ("B", lengths, "generic"), ("C", padded, "exact")):
        session = Session(arguments, directory, f"mix {scheme}", model, [{"x": requests[n]} for n in chosen], [tier])
        us = session.measure(arguments.rounds)[tier]
        facts = session.kiln.ready["tiers"][tier]
        session.kiln.close()
        rows.append({"scheme": scheme, "plans": facts["plans"], "kernels_compiled": facts["kernels_compiled"], "obtain_ms": facts["obtain_ms"],
                     "mean_us": float(np.mean(us)), "p99_us": float(np.quantile(us, 0.99))})
        row = rows[-1]
        print(f"  {scheme}: {row['plans']:3d} plans, {row['kernels_compiled']:4d} kernels compiled in {row['obtain_ms'] / 1000:6.1f} s; "
              f"mean {row['mean_us']:9.1f} us, p99 {row['p99_us']:9.1f} us")
    return rows


def main():
    parser = argparse.ArgumentParser(description="the claims of origin")
    parser.add_argument("--build", default=os.path.join(peers.ROOT, "build", "release"))
    parser.add_argument("--results", default=os.path.join(peers.ROOT, "bench", "results"))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    peers.enter_venv()
    import numpy as np
    gc.disable()
    with tempfile.TemporaryDirectory() as directory:
        result = {name: measure(arguments, directory, np.random.default_rng(3))
                  for name, measure in (("random_shapes", random_shapes), ("lstm_cell", lstm), ("length_mix", length_mix))}
    with open(os.path.join(arguments.results, "origin.json"), "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
