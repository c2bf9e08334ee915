#!/usr/bin/env python3
"""Times Tutti's layers beside NumPy, PyTorch, torch.compile, Triton's tutorials, Liger and QuACK.

usage: PYTHONPATH=build/python bench/compare.py [--backend host|cuda] [--layers A,B] [--dtype T]
       [--shapes RxC,…] [--peers A,B] [--repeats N] [--no-bars] [--least-share PCT] [--json FILE]
Same inputs, one run.  The table has each peer's time over Tutti's, and Tutti's speed beside a copy
of the same bytes.  bench/compare_peers.py has the peers, bench/compare_bars.py the bars.
Every element that the timed call of Tutti's writes is compared with PyTorch's in f64.
Exit codes: 0; 1 if a bar is missed or a result is wrong; 2 if Tutti could not run.
"""

import argparse
import json
import os
import re
import statistics
import sys
import time

# Two libraries' threads: those that wait for work would keep the others' from it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
try:
    import torch  # before tutti: docs/install.md, "Beside PyTorch"
    import torch.nn.functional as F
    import tutti
except ImportError as missing:
    print(f"compare.py: {missing}", file=sys.stderr)
    sys.exit(2)

from compare_bars import missed
from compare_peers import PEERS

TYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16,
         "i32": torch.int32, "u8": torch.uint8}
# Of a result's size: the type's own rounding, and that of sums in f32.
TOLERANCES = {"f32": 1e-4, "f16": 2e-3, "bf16": 1.6e-2}
EPS, P = 1e-5, 0.1
KEPT = 1 - round(P * 65536) / 65536  # p is taken as a multiple of 2^-16
LAYERS = ("layernorm", "rmsnorm", "softmax", "cross_entropy", "dropout_gelu",
          "dropout_squared_relu")
SHAPES = {
    "cuda": "32768x256,32768x1024,32768x4096,16384x8192,8192x16384,4096x32768,2048x131072,"
            "512x262144,4097x4099,50000x1536,512x200003,133x4096,1055x4096",
    "host": "64x1024,8192x2048"}
LOSS_SHAPES = "8192x4096,8192x32768,8192x50257,8192x50304,4096x128256"
ACTIVATIONS = {"gelu": lambda z: F.gelu(z, approximate="tanh"),
               "squared_relu": lambda z: F.relu(z).square()}


class Clock:
    """Measures functions in turn, each after 256 MiB are overwritten, so that caches are cold."""

    def __init__(self, backend, repeats):
        self.cuda, self.repeats = backend == "cuda", repeats
        self.device = "cuda" if self.cuda else "cpu"
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device=self.device)
        self.stream = None
        if self.cuda:  # one stream for all: autograd runs a backward on its forward's
            self.stream = torch.cuda.Stream()
            torch.cuda.set_stream(self.stream)

    def ready(self, function):
        """What to replay: on a GPU a graph, which leaves out the host's time."""
        for _ in range(3):
            function()
        if not self.cuda:
            return function
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            function()

        def replay(_kept=function):  # with the tensors that the graph reads and does not own
            graph.replay()

        return replay

    def medians(self, replays):
        """{name: milliseconds}."""
        times = {name: [] for name in replays}
        for _ in range(self.repeats):
            for name, replay in replays.items():
                self.flush.zero_()
                times[name].append(self._once(replay))
        if self.cuda:
            torch.cuda.synchronize()
            times = {name: [a.elapsed_time(b) for a, b in pairs] for name, pairs in times.items()}
        return {name: statistics.median(values) for name, values in times.items()}

    def _once(self, replay):
        if not self.cuda:
            begin = time.perf_counter()
            replay()
            return (time.perf_counter() - begin) * 1e3
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        replay()
        end.record()
        return begin, end


class Case:
    """The inputs of one layer and shape, Tutti's calls on them and PyTorch's function."""

    def __init__(self, ctx, clock, layer, rows, cols, dtype):
        self.kind, _, self.activation = layer.partition("_") if "dropout" in layer else (
            layer, "", "")
        self.ctx, self.rows, self.cols, self.dtype, self.eps = ctx, rows, cols, dtype, EPS
        self.device = clock.device
        make = torch.Generator(self.device).manual_seed(rows + cols)

        def random(*shape):
            return torch.randn(*shape, generator=make, device=self.device).to(TYPES[dtype])

        self.x, self.dy = random(rows, cols), random(rows, cols)
        self.params = {name: random(cols) for name in
                       {"layernorm": ("gamma", "beta"), "rmsnorm": ("gamma",),
                        "dropout": ("bias",)}.get(self.kind, ())}
        self.labels = torch.randint(0, cols, (rows,), generator=make, device=self.device)
        options = {"layernorm": {"eps": EPS}, "rmsnorm": {"eps": EPS},
                   "dropout": {"p": P, "activation": self.activation}}.get(self.kind, {})
        self.layer = tutti.Layer(self.kind, cols=cols, dtype=dtype, **options)
        self.step = tutti.Step(ctx)
        self.of_call = {"step": self.step} if self.kind in ("dropout", "cross_entropy") else {}
        if self.kind == "dropout":
            self.of_call["first_row"] = 0

    def empty(self, name, layer=None):
        shape, dtype = (layer or self.layer).shape(name, self.rows)
        return torch.empty(shape, dtype=TYPES[dtype], device=self.device)

    def calls(self):
        """{pass: (call, {name: result})}; forward must run before backward."""
        grads = {"d" + name: self.empty("d" + name) for name in self.params}
        self.layer.bind(**self.params, **grads)
        if self.kind == "cross_entropy":
            out = {name: self.empty(name) for name in ("loss_sum", "dlogits")}
            call = self.layer.prepare(self.ctx, logits=self.x, labels=self.labels.int(), **out,
                                      **self.of_call)
            return {"forward": (call, out)}
        y, dx, saved = self.empty("y"), self.empty("dx"), self.empty("saved")
        kept = {"saved": saved} if saved.numel() else {}
        forward = self.layer.prepare(self.ctx, x=self.x, y=y, **kept, **self.of_call)
        back = {"x": self.x} if self.kind != "softmax" else {"y": y}
        backward = self.layer.prepare(self.ctx, True, dy=self.dy, dx=dx, **back, **kept,
                                      **self.of_call)
        return {"forward": (forward, {"y": y}), "backward": (backward, {"dx": dx, **grads})}

    def mask(self):
        """What dropout keeps: ones through a layer without activation, whose mask is the same."""
        layer = tutti.Layer("dropout", cols=self.cols, dtype=self.dtype, p=P, no_bias=1)
        y = self.empty("y", layer)
        layer.forward(self.ctx, x=torch.ones_like(self.x), y=y, **self.of_call)
        self.ctx.synchronize()
        return y != 0

    def function(self, keep=None):
        """PyTorch's function of x and the parameters; dropout draws its own mask without keep."""
        shape, labels, act = [self.cols], self.labels, ACTIVATIONS.get(self.activation)
        if keep is not None:
            return lambda x, bias: torch.where(keep, act(x + bias), 0) / KEPT
        return {"layernorm": lambda x, gamma=None, beta=None: F.layer_norm(x, shape, gamma, beta,
                                                                           EPS),
                "rmsnorm": lambda x, gamma=None: F.rms_norm(x, shape, gamma, EPS),
                "softmax": lambda x: torch.softmax(x, 1),
                "cross_entropy": lambda x: F.cross_entropy(x, labels, reduction="sum"),
                "dropout": lambda x, bias=None: F.dropout(act(x + bias), P)}[self.kind]

    def expected(self):
        """{name: PyTorch's result in f64}."""
        keep = self.mask() if self.kind == "dropout" else None
        if keep is not None:
            share, count = keep.double().mean().item(), keep.numel()
            if not abs(share - KEPT) <= 6 * (P * KEPT / count) ** 0.5:
                raise ArithmeticError(f"dropout keeps {share}, want {KEPT}")
        of = [t.double().requires_grad_() for t in (self.x, *self.params.values())]
        y = self.function(keep)(*of)
        loss = self.kind == "cross_entropy"
        grads = torch.autograd.grad(y, of, None if loss else self.dy.double())
        names = ("dlogits",) if loss else ("dx", *("d" + name for name in self.params))
        return {"loss_sum" if loss else "y": y.detach(), **dict(zip(names, grads))}

    def wrong(self, results, expected):
        """The names of wrong results, each with its largest error."""
        found = []
        for name, got in results.items():
            want = expected[name].reshape(got.shape)
            allowed = want.abs() + want.square().mean().sqrt()
            least = 6e-8 if got.dtype == torch.float16 else 0  # the step of its smallest numbers
            allowed = TOLERANCES[self.dtype] * allowed + least + 1e-30
            ratio = (got.double() - want).abs() / allowed
            if not (ratio <= 1).all():
                found.append(f"{name} is wrong, {ratio.max().item():.3g} times what is allowed")
        return found


def copies(x, passes):
    """Two copies of as many bytes: the driver's and a plain kernel, since either may be slow."""
    count = x.numel() * (2 if passes == "forward" else 3) * x.element_size() // 2 // 4
    source = torch.zeros(count, dtype=torch.int32, device=x.device)
    to = torch.empty_like(source)
    return {"copy": lambda: to.copy_(source),
            "plain copy": lambda: torch.bitwise_or(source, 0, out=to)}


def check_peer(case, result, expected):
    """Raises ArithmeticError if the peer's main result is not there or wrong; dropout's is random."""
    if case.kind == "dropout":
        return
    found = [torch.as_tensor(t) for t in (result if isinstance(result, tuple) else (result,))
             if getattr(t, "shape", None) == case.x.shape]
    if not found or case.wrong({"result": found[0]}, {"result": expected}):
        raise ArithmeticError("its result is wrong")


def measure(clock, case, passes, call, peers, reasons, expected):
    """Medians in turns, of the copy, of Tutti and of the peers, and the replay of Tutti's call."""
    main = expected["dlogits" if case.kind == "cross_entropy" else
                    "y" if passes == "forward" else "dx"]
    replays = {name: clock.ready(run) for name, run in copies(case.x, passes).items()}
    if clock.cuda:
        call.plan()
    replays["tutti"] = clock.ready(call)
    for peer in peers:
        try:
            run = PEERS[peer](case, passes)
            check_peer(case, run(), main)
            replays[peer] = clock.ready(run)
        except Exception as refusal:  # whatever a peer raises is its refusal, named at the end
            why = (str(refusal).splitlines() or [""])[0][:90]
            reasons.setdefault(f"{peer}: {type(refusal).__name__}: {why}",
                               f"{case.kind} {case.rows}x{case.cols}")
    times = clock.medians(replays)
    times["copy"] = min(times["copy"], times.pop("plain copy"))
    return times, replays["tutti"]


def compare(clock, ctx, args, layer, shape, reasons):
    """A row for each pass."""
    rows, cols = map(int, shape.split("x"))
    case = Case(ctx, clock, layer, rows, cols, args.dtype)
    calls = case.calls()
    for call, _ in calls.values():
        call()
    ctx.check()
    expected, found = case.expected(), []
    for passes, (call, results) in calls.items():
        times, replay = measure(clock, case, passes, call, args.peers, reasons, expected)
        for result in results.values():
            result.fill_(float("nan"))
        replay()
        if args.inject_fault:
            for result in results.values():
                result.view(-1)[-1] += 1
        errors = case.wrong(results, expected)
        if args.inject_fault:
            replay()
        row = {"layer": layer, "pass": passes, "rows": rows, "cols": cols, "dtype": args.dtype,
               "backend": args.backend, "bytes": case.x.numel() * case.x.element_size(),
               "ms": times, "share": times["copy"] / times["tutti"], "failed": errors}
        if not args.no_bars:
            row["failed"] = row["failed"] + missed(row, args.least_share)
        ratios = [f"{times[peer] / times['tutti']:9.2f}" if peer in times else f"{'–':>9}"
                  for peer in args.peers]
        print(f"{layer:21}{passes:9}{shape:>13} {times['tutti'] * 1e3:11.1f}{row['share']:8.1%}",
              *ratios, "  " + "; ".join(row["failed"]), flush=True)
        found.append(row)
    return found


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("host", "cuda"),
                        default="cuda" if torch.cuda.is_available() else "host")
    parser.add_argument("--layers", default=",".join(LAYERS))
    parser.add_argument("--shapes", help="ROWSxCOLS,… for all layers")
    parser.add_argument("--dtype", choices=tuple(TOLERANCES))
    parser.add_argument("--peers")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--no-bars", action="store_true", help="only wrong results fail")
    parser.add_argument("--least-share", type=float, metavar="PCT",
                        help="of the copy's speed, in place of the bars")
    parser.add_argument("--inject-fault", action="store_true",
                        help="alter an element of each result: the run must exit with 1")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    cuda = args.backend == "cuda"
    args.dtype = args.dtype or ("bf16" if cuda else "f32")
    args.peers = (args.peers or ("torch,compile,triton,liger,quack" if cuda else
                                 "torch,numpy")).split(",")
    args.layers = args.layers.split(",")
    for name in (set(args.peers) - set(PEERS)) | (set(args.layers) - set(LAYERS)):
        parser.error(f"there is no {name!r}; layers: {', '.join(LAYERS)}; "
                     f"peers: {', '.join(PEERS)}")
    if not re.fullmatch(r"[1-9]\d*x[1-9]\d*(,[1-9]\d*x[1-9]\d*)*", args.shapes or "1x1"):
        parser.error(f"--shapes is {args.shapes!r}, want ROWSxCOLS,…")
    return args


def main():
    args, reasons, rows = arguments(), {}, []
    try:
        clock = Clock(args.backend, args.repeats)
        ctx = tutti.Context(args.backend, stream=clock.stream,
                            threads=0 if clock.cuda else torch.get_num_threads())
    except (tutti.Error, RuntimeError, AssertionError) as refusal:
        print(f"compare.py: {refusal}", file=sys.stderr)
        return 2
    print(f"{'layer':21}{'pass':9}{'shape':>13} {'us':>11}{'copy':>8}",
          *(f"{peer:>9}" for peer in args.peers))
    for layer in args.layers:
        loss = layer == "cross_entropy" and clock.cuda
        shapes = args.shapes or (LOSS_SHAPES if loss else SHAPES[args.backend])
        if "dropout" in layer and clock.cuda and not args.shapes:
            shapes = "16384x4096"
        for shape in shapes.split(","):
            try:
                rows += compare(clock, ctx, args, layer, shape, reasons)
            except (tutti.Error, RuntimeError, ArithmeticError) as refusal:
                print(f"compare.py: {layer} {shape}: {refusal}", file=sys.stderr)
                return 2
    for reason, first in reasons.items():
        print(f"– {reason} (first: {first})")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return int(any(row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
