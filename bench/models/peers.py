#!/usr/bin/env python3
"""Kiln beside other runtimes on the same models, inputs and thread count, taking turns.

    peers.py [--models DIR] [--build DIR] [--only TEXT] [--threads N,N] [--rounds N] [--torch]

Makes build/bench-venv with the peers, runs model_bench beside them, prints a table of ratios and writes bench/results/peers.json and
models.json. With one thread, times are CPU time of the process, which on a shared machine is what a request cost; with more they
are wall time."""
import argparse
import gc
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, "build", "bench-venv")
PACKAGES = ["numpy", "onnx", "onnxruntime"]
OPTIONAL = ["openvino"]
TORCH_BYTES = 12 << 30   # what its wheel and its libraries may need on the disk; half of it stays
ROUND_SECONDS = 0.03
TIMES_MAX = 64


def enter_venv():
    """Continues in the benchmark's own virtual environment."""
    if os.path.realpath(sys.prefix) == os.path.realpath(VENV):
        return
    python = os.path.join(VENV, "bin", "python")
    if not os.path.exists(os.path.join(VENV, "ready")):
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        if subprocess.run([python, "-m", "pip", "install", "-q", *OPTIONAL], timeout=300, check=False).returncode != 0:
            print("openvino did not install; it is left out", file=sys.stderr)
        open(os.path.join(VENV, "ready"), "w").close()
    if "--torch" in sys.argv:
        add_torch(python)
    os.execv(python, [python, *sys.argv])


def add_torch(python):
    """Gigabytes, hence only when asked for; for one processor it comes with everything for others."""
    if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return
    if shutil.disk_usage(VENV).free < TORCH_BYTES:
        sys.exit(f"torch needs {TORCH_BYTES >> 30} GB of free disk; leave --torch out")
    subprocess.run([python, "-m", "pip", "install", "-q", "torch"], check=True)


class Samples:
    """CPU and wall nanoseconds per request, over all rounds."""

    def __init__(self, requests):
        self.cpu = [[] for _ in range(requests)]
        self.wall = [[] for _ in range(requests)]

    def add(self, cpu, wall):
        for i, (c, w) in enumerate(zip(cpu, wall)):
            self.cpu[i % len(self.cpu)].append(c)
            self.wall[i % len(self.wall)].append(w)


def quantile(values, q):
    values = sorted(values)
    return values[round(q * (len(values) - 1))] / 1000


class Peer:
    """A runtime in this process. `open` makes a session; `call(i)` runs request i."""

    def round(self, times):
        cpu, wall = [], []
        for _ in range(times):
            for i in range(self.requests):
                w, c = time.perf_counter_ns(), time.process_time_ns()
                self.call(i)
                cpu.append(time.process_time_ns() - c)
                wall.append(time.perf_counter_ns() - w)
        return cpu, wall

    def first(self):
        self.open()
        return self.round(1)


class OnnxRuntime(Peer):
    name = "onnxruntime"

    def __init__(self, model, sets, threads):
        import onnxruntime
        self.runtime, self.version, self.model, self.threads = onnxruntime, onnxruntime.__version__, model, threads
        self.open()
        names = [i.name for i in self.session.get_inputs()]
        ranks = {i.name: len(i.shape) for i in self.session.get_inputs()}
        self.feeds = [bind(names, ranks, s) for s in sets]
        self.requests = len(sets)

    def open(self):
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.log_severity_level = 4
        self.session = self.runtime.InferenceSession(self.model, options, providers=["CPUExecutionProvider"])

    def call(self, i):
        self.session.run(None, self.feeds[i])


class OpenVino(Peer):
    name = "openvino"

    def __init__(self, model, sets, threads):
        import openvino
        self.runtime, self.version, self.model, self.threads = openvino, openvino.__version__.split("-")[0], model, threads
        self.open()
        inputs = self.request.model_inputs
        names = [i.get_any_name() for i in inputs]
        ranks = {i.get_any_name(): len(i.get_partial_shape()) for i in inputs}
        self.feeds = [bind(names, ranks, s) for s in sets]
        self.requests = len(sets)

    def open(self):
        core = self.runtime.Core()
        compiled = core.compile_model(self.model, "CPU", {"INFERENCE_NUM_THREADS": self.threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"})
        self.request = compiled.create_infer_request()

    def call(self, i):
        self.request.infer(self.feeds[i], share_inputs=True, share_outputs=True)


class TorchCompile(Peer):
    """torch.compile of the generated models; a fresh session compiles again."""
    name, dynamic = "torch.compile", None

    def __init__(self, model, sets, threads):
        import torch
        from transformer_models import torch_function
        from workloads import read_inputs
        self.torch, self.version = torch, torch.__version__.split("+")[0]
        torch.set_num_threads(threads)
        self.function = torch_function(model)
        self.feeds = [{name: torch.from_numpy(array) for name, array in read_inputs(s)} for s in sets]
        self.requests = len(sets)
        self.open()

    def open(self):
        self.torch._dynamo.reset()
        self.compiled = self.torch.compile(self.function, dynamic=self.dynamic)

    def call(self, i):
        with self.torch.inference_mode():
            return self.compiled(**self.feeds[i])


class TorchCompileDynamic(TorchCompile):
    name, dynamic = "torch.compile dynamic", True


def bind(names, ranks, path):
    """Feeds by name, else by position; [1] stands for a scalar."""
    from workloads import read_inputs
    given = read_inputs(path)
    if not all(name in names for name, _ in given):
        given = list(zip(names, (array for _, array in given)))
    return {name: array.reshape(()) if ranks[name] == 0 else array for name, array in given}


class Kiln:
    """model_bench in serve mode; one tier of it at a time."""

    def __init__(self, program, model, sets, tiers, threads):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([program, model, *sets, "--tiers", ",".join(tiers),
                                         "--threads", str(threads), "--serve"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.ready = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        raise RuntimeError(self.errors.read().strip() or f"model_bench ended with {self.process.returncode}")

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class KilnTier:
    name = "kiln"

    def __init__(self, kiln, tier):
        self.kiln, self.tier = kiln, tier

    def round(self, times):
        answer = self.kiln.ask(f"round {self.tier} {times}")
        return answer["cpu_ns"], answer["wall_ns"]

    def first(self):
        answer = self.kiln.ask(f"first {self.tier}")
        return answer["cpu_ns"], answer["wall_ns"]


def take_turns(runners, requests, rounds, threads):
    """Per runner: samples, and the first-seen times of every request but the first of a fresh session."""
    samples, firsts, times = {}, {}, {}
    for key, runner in runners.items():
        firsts[key] = runner.first()[0 if threads == 1 else 1][1:]
        cpu, _ = runner.round(1)
        times[key] = max(1, min(TIMES_MAX, int(ROUND_SECONDS * 1e9 / max(1, sum(cpu)))))
        samples[key] = Samples(requests)
    order = list(runners)
    for k in range(rounds):
        for key in order[k % len(order):] + order[:k % len(order)]:
            if key == "interpreter" and k > 0:
                continue
            samples[key].add(*runners[key].round(times[key]))
    return samples, firsts


def open_peers(model, sets, failures, threads=1, kinds=(OnnxRuntime, OpenVino)):
    peers = {}
    for kind in kinds:
        try:
            peer = kind(model, sets, threads)
            peer.round(1)
            peers[kind.name] = peer
        except ImportError:
            continue
        except Exception as error:  # a peer that cannot run the model is reported, whatever it raises
            failures[kind.name] = " ".join(str(error).split())[:300]
    return peers


def measure(arguments, work, threads):
    """Rows of peers.json, and one of models.json."""
    from workloads import shape_text
    model, workload, path, sets = work.model, work.workload, work.path, work.sets()
    tiers = ([] if work.is_large or threads > 1 else ["interpreter"]) + ["generic"] + ([] if work.is_stream else ["exact"])
    detail = {"model": model, "workload": workload, "threads": threads, "failures": {}}
    name = os.path.splitext(os.path.basename(model))[0]
    try:
        kiln = Kiln(os.path.join(arguments.build, "bench-bin", "model_bench"), path, sets, tiers, threads)
    except RuntimeError as error:
        detail["failures"]["kiln"] = str(error)
        return [], detail
    kinds = (OnnxRuntime, OpenVino) + ((TorchCompile, TorchCompileDynamic) if arguments.torch and work.is_large else ())
    peers = open_peers(path, sets, detail["failures"], threads, kinds)
    runners = {**peers, **{tier: KilnTier(kiln, tier) for tier in tiers}}
    samples, firsts = take_turns(runners, len(sets), arguments.rounds, threads)
    detail["tiers"] = kiln.ready["tiers"]
    for tier in tiers:
        detail["tiers"][tier]["shares"] = kiln.ask(f"shares {tier}")
        detail["tiers"][tier]["first_seen_p50_us"] = quantile(firsts[tier], 0.5) if firsts[tier] else None
    planned = [detail["tiers"][tier]["shares"] for tier in tiers if tier != "interpreter"]
    detail["reference_share"] = max(shares["reference"] for shares in planned)
    kiln.close()
    best = "exact" if "exact" in tiers else "generic"
    groups = {workload: list(range(len(sets)))} if workload else {}
    for i, path in enumerate([] if workload else sets):
        groups.setdefault(shape_text(path), []).append(i)
    rows = []
    for label, members in groups.items():
        figures = {key: [v for i in members for v in (s.cpu if threads == 1 else s.wall)[i]] for key, s in samples.items()}
        for peer in peers.values():
            rows.append({
                "model": name, "workload": label, "threads": threads, "batch": 1, "peer": peer.name, "peer_version": peer.version,
                "peer_p50_us": quantile(figures[peer.name], 0.5), "peer_p99_us": quantile(figures[peer.name], 0.99),
                "kiln_p50_us": quantile(figures[best], 0.5), "kiln_p99_us": quantile(figures[best], 0.99),
                "kiln_plan": best, "kiln_generic_p50_us": quantile(figures["generic"], 0.5),
                "kiln_interpreter_p50_us": quantile(figures["interpreter"], 0.5) if "interpreter" in figures else None,
                "peer_first_seen_p50_us": quantile(firsts[peer.name], 0.5) if work.is_stream else None,
                "kiln_first_seen_p50_us": quantile(firsts[best], 0.5) if work.is_stream else None,
            })
    set_batches(rows, sets, groups, work.batch)
    return rows, detail


def set_batches(rows, sets, groups, known):
    from workloads import read_inputs
    batch = {}
    for label, members in groups.items():
        sizes = {max((a for _, a in read_inputs(sets[i])), key=lambda a: a.size).shape[0] for i in members}
        batch[label] = known or (sizes.pop() if len(sizes) == 1 else 0)   # 0: it changes
    for row in rows:
        row["batch"] = batch[row["workload"]]


def table(rows):
    print(f"{'model':<30} {'workload':<20} {'t':>2} {'peer':<12} {'peer p50':>10} {'kiln p50':>10} {'generic':>10} {'interp':>10} {'kiln/peer':>9} {'p99':>6}")
    for row in rows:
        print(f"{row['model'][:30]:<30} {row['workload'][:20]:<20} {row['threads']:>2} {row['peer']:<12} {row['peer_p50_us']:>10.1f} {row['kiln_p50_us']:>10.1f} "
              f"{row['kiln_generic_p50_us']:>10.1f} {row['kiln_interpreter_p50_us'] or 0:>10.1f} {row['kiln_p50_us'] / row['peer_p50_us']:>9.2f} "
              f"{row['kiln_p99_us'] / row['peer_p99_us']:>6.2f}")


def reference_table(details):
    """What has no generated kernel, and how much of a request it takes."""
    print(f"{'model':<30} {'workload':<20} {'nodes':>6} {'reference':>9} {'share':>7}")
    for detail in details:
        tiers = [facts for tier, facts in detail.get("tiers", {}).items() if tier != "interpreter"]
        if "reference_share" in detail:
            nodes, reference = (max(facts[key] for facts in tiers) for key in ("generated_nodes", "reference_nodes"))
            print(f"{os.path.basename(detail['model'])[:30]:<30} {detail['workload'][:20]:<20} {nodes:>6} {reference:>9} "
                  f"{100 * detail['reference_share']:>6.2f}%")


def geometric_means(rows):
    import numpy as np
    for threads, peer in sorted({(row["threads"], row["peer"]) for row in rows}):
        for kind, chosen in (("fixed shapes", lambda r: r["kiln_first_seen_p50_us"] is None), ("streams", lambda r: r["kiln_first_seen_p50_us"] is not None)):
            per_model = {}
            for row in rows:
                if row["peer"] == peer and row["threads"] == threads and chosen(row):
                    per_model.setdefault(row["model"], []).append(np.log(row["peer_p50_us"] / row["kiln_p50_us"]))
            if per_model:
                mean = np.exp(np.mean([np.mean(v) for v in per_model.values()]))
                print(f"{peer}, {kind}, threads {threads}: {len(per_model)} models, geometric mean of peer/kiln {mean:.2f}")


def call_overhead(directory):
    """CPU time per call of each peer for a model that copies one number: what its Python binding adds."""
    from onnx import TensorProto, helper, save
    from workloads import write_stream
    import numpy as np
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
    path = os.path.join(directory, "copy.onnx")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "copy", info[:1], info[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    sets = write_stream(os.path.join(directory, "copy"), [{"x": np.zeros(1, np.float32)}])
    return {name: quantile(peer.round(200)[0], 0.5) for name, peer in open_peers(path, sets, {}).items()}


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "")
    known = [f for f in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile") if f" {f} " in flags]
    return {"cpu": model, "features": known, "cores": os.cpu_count(), "kernel": platform.release(), "load_at_start": os.getloadavg()[0],
            "clock": "process CPU time with one thread, wall time with more", "note": "a shared and noisy virtual machine: compare figures of one run only"}


class Work:
    """One workload: a model's file, and data sets that are written when it is its turn. Large ones, which are generated, have a torch twin,
    and the interpreter is no match for them. `batch` 0: as the shapes of the largest input have it."""

    def __init__(self, model, workload, path, sets, is_stream, is_large=False, batch=0):
        self.model, self.workload, self.path, self.sets, self.is_stream, self.is_large = model, workload, path, sets, is_stream, is_large
        self.batch = batch


def list_work(arguments, directory):
    import numpy as np
    from transformer_models import make
    from workloads import BATCHED, GENERATED, GENERATED_STREAMS, MODELS, STREAMS, batch_of, fixed_sets, write_stream

    def written(model, workload, requests):
        return lambda: write_stream(os.path.join(directory, os.path.basename(model), workload), requests(np.random.default_rng(1)))
    for model in MODELS:
        yield Work(model, "", os.path.join(arguments.models, model), lambda: fixed_sets(arguments.models, model), False)
    for model, axes in BATCHED:
        yield Work(model, "", os.path.join(arguments.models, model),
                   lambda: write_stream(os.path.join(directory, os.path.basename(model), "batch"), [batch_of(arguments.models, model, axes, 8)]), False,
                   batch=8)
    for model, workload, requests in STREAMS:
        yield Work(model, workload, os.path.join(arguments.models, model), written(model, workload, requests), True)
    for model, workload, requests in GENERATED + GENERATED_STREAMS:
        if arguments.only in f"{model} {workload}":
            path = make(os.path.join(os.path.dirname(VENV), "bench-models"), model)
            yield Work(model, workload, path, written(model, workload, requests), (model, workload, requests) in GENERATED_STREAMS, True)


def main():
    parser = argparse.ArgumentParser(description="Kiln beside other runtimes")
    parser.add_argument("--models", default=os.path.join(ROOT, "..", "shared", "models"))
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--results", default=os.path.join(ROOT, "bench", "results"))
    parser.add_argument("--only", default="", help="models or streams whose name holds this text")
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2], help="1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--torch", action="store_true", help="torch.compile too, on the generated models; installs gigabytes")
    arguments = parser.parse_args()
    enter_venv()
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    gc.disable()
    rows, details = [], []
    with tempfile.TemporaryDirectory() as directory:
        host = {**machine(), "peer_call_overhead_us": call_overhead(directory)}
        for work in list_work(arguments, directory):
            if arguments.only not in f"{work.model} {work.workload}" or not os.path.exists(work.path):
                continue
            for threads in arguments.threads:
                found, detail = measure(arguments, work, threads)
                rows += found
                details.append(detail)
                print(f"{work.model} {work.workload}, threads {threads}: {'measured' if found else 'not measured'} {detail['failures'] or ''}",
                      file=sys.stderr, flush=True)
    report(arguments, rows, details, host)


def report(arguments, rows, details, host):
    table(rows)
    geometric_means(rows)
    reference_table(details)
    for detail in details:
        for who, why in detail["failures"].items():
            print(f"{detail['model']} {detail['workload']}: {who} failed: {why}")
        for tier, facts in detail.get("tiers", {}).items():
            if facts["failure"] or facts["difference"]:
                print(f"{detail['model']} {detail['workload']}: {tier}: {facts['failure']} {facts['difference']}")
    if arguments.only:
        return   # a part of a run is shown, not kept
    for name, value in (("peers", rows), ("models", details), ("machine", host)):
        with open(os.path.join(arguments.results, name + ".json"), "w") as file:
            json.dump(value, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
