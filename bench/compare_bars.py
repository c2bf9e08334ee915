"""The speed that bench/compare.py asks of Tutti's layers."""

MB, NORMS = 1e6, ("layernorm", "rmsnorm")
MATMULS = tuple(f"matmul_{a}{b}" for a in "nt" for b in "nt")
ANY = 1 << 62


def _is_odd(cols):
    return cols % 8 != 0


# (layers, pass, least and most columns, least bytes of x, least share of the copy's speed); the
# first that fits counts.  Shapes of few rows are judged by time, odd columns by _odd_share.
_CUDA = (
    (NORMS, "forward", 512, 262144, 64 * MB, 0.97),
    (NORMS, "forward", 512, 262144, 8 * MB, 0.92),
    (NORMS, "backward", 64, 512, 32 * MB, 0.80),
    (NORMS, "backward", 1024, 8192, 64 * MB, 0.92),
    (NORMS, "backward", 16384, 16384, 128 * MB, 0.92),
    (NORMS, "backward", 16384, 16384, 64 * MB, 0.88),
    (NORMS, "backward", 32768, 262144, 256 * MB, 0.85),
    (("softmax",), "forward", 512, 262144, 64 * MB, 0.97),
    (("softmax",), "backward", 512, 32768, 64 * MB, 0.99),
    (("softmax",), "backward", 32769, 262144, 64 * MB, 0.95),
    (("softmax",), "forward", 256, 256, 0, 0.90),
    (("softmax",), "backward", 256, 256, 0, 0.90),
    (("cross_entropy",), "forward", 4096, 131072, 0, 0.95),
    (("dropout_gelu", "dropout_squared_relu"), "forward", 4096, 4096, 128 * MB, 0.93),
    (("dropout_gelu", "dropout_squared_relu"), "backward", 4096, 4096, 128 * MB, 0.93),
    (("embedding",), "backward", 1024, 4096, 0, 0.75),
    (MATMULS, "forward", 1, ANY, 0, 0.97),
    (MATMULS, "backward", 1, ANY, 0, 0.97),
)
_CUDA_F64 = (
    ((*NORMS, "softmax"), "forward", 1, 65536, 64 * MB, 0.80),
    ((*NORMS, "softmax"), "backward", 1, 65536, 64 * MB, 0.75),
)
_HOST = (
    (NORMS, "forward", 1, ANY, 64 * MB, 0.80),
    (NORMS, "backward", 1, ANY, 64 * MB, 0.80),
    (("softmax",), "forward", 1, ANY, 64 * MB, 0.50),
    (("softmax",), "backward", 1, ANY, 64 * MB, 0.50),
)
# the same for products, by the least `in` of the first one: (layers, pass, in, least share)
_PRODUCTS = (
    (("linear_none",), "backward", 4096, 0.97),
    (("linear_none",), "backward", 1024, 0.92),
    (("linear_",), "backward", 4096, 0.92),
    (("linear_",), "backward", 1024, 0.77),
    (("mlp_",), "backward", 4096, 0.95),
    (("mlp_",), "backward", 1024, 0.88),
    (("linear_", "mlp_"), "forward", 4096, 0.97),
    (("linear_", "mlp_"), "forward", 1024, 0.90),
)
# least ratio of a peer's time to Tutti's: (layers, pass, peer, least columns, ratio)
_PEERS = (
    (NORMS, "backward", "quack", 16384, 1.40),
    (NORMS, "backward", "quack", 8192, 1.15),
    (NORMS, "backward", "quack", 4096, 1.06),
    (("dropout_gelu", "dropout_squared_relu"), "forward", "compile", 4096, 2.0),
    (("dropout_gelu", "dropout_squared_relu"), "backward", "compile", 4096, 1.4),
)
_FEW_ROWS, _FEW_ROWS_MS = {(133, 4096), (1055, 4096), (1057, 4096), (7, 16384)}, 0.004


def _odd_share(row):
    narrow = (row["rows"], row["cols"]) == (4097, 4099)
    judged = (*NORMS, "softmax", "cross_entropy")
    if row["layer"] not in judged or (row["bytes"] < 64 * MB and not narrow):
        return None
    if row["layer"] in NORMS and row["pass"] == "backward":
        return 0.65 if narrow else 0.75
    return 0.80 if narrow and row["layer"] in NORMS else 0.85


def _product_share(row):
    inner = int(row["shape"].split("x")[1])
    for layers, passes, least, share in _PRODUCTS:
        if row["layer"].startswith(layers) and passes == row["pass"] and inner >= least:
            return share
    return None


def _least_share(row):
    usual = row["backend"] == "cuda" and row["dtype"] != "f64"
    if usual and row["layer"].startswith(("linear_", "mlp_")):
        return _product_share(row)
    if usual and _is_odd(row["cols"]) and row["layer"] not in MATMULS:
        return _odd_share(row)
    if (row["layer"] in NORMS and row["pass"] == "backward" and row["dtype"] == "f16"
            and (row["rows"], row["cols"]) in ((4096, 1024), (4096, 4096))):
        return 0.75
    if row["backend"] == "host" and row["dtype"] != "f32":
        return None
    bars = _HOST if row["backend"] == "host" else _CUDA_F64 if row["dtype"] == "f64" else _CUDA
    for layers, passes, least, most, size, share in bars:
        if (row["layer"] in layers and passes == row["pass"] and least <= row["cols"] <= most
                and row["bytes"] >= size):
            return share
    return None


def _missed_peers(row):
    found, ms = [], row["ms"]
    cuda, judged = row["backend"] == "cuda", (*NORMS, "softmax")
    peers = {name: value for name, value in ms.items() if name not in ("tutti", "roof")}
    slack = 1.03 if cuda else 1.0
    large = row["bytes"] >= 64 * MB and row["layer"] in judged
    if peers and row["dtype"] != "f64" and (cuda or large):
        best = min(peers, key=peers.get)
        if ms["tutti"] > slack * peers[best]:
            found.append(f"slower than {best}")
    asked = set()
    for layers, passes, peer, least, ratio in _PEERS if row["backend"] == "cuda" else ():
        if row["layer"] in layers and passes == row["pass"] and row["cols"] >= least:
            if peer in peers and peer not in asked and peers[peer] < ratio * ms["tutti"]:
                found.append(f"want {ratio} times {peer}")
            asked.add(peer)
    return found


def missed(row, least_share=None):
    """What the row misses, in words; least_share, in per cent, takes the place of all bars."""
    if least_share is not None:
        low = row["share"] is None or row["share"] * 100 < least_share
        return [f"want {least_share:g} % of the roof"] if low else []
    ms, norm = row["ms"], row["layer"] in NORMS
    few = (row["rows"], row["cols"]) in _FEW_ROWS and row["dtype"] != "f64"
    if norm and row["backend"] == "cuda" and few:
        late = ms["tutti"] > ms["roof"] + _FEW_ROWS_MS
        return (["want the copy's time + 4 us"] if late else []) + _missed_peers(row)
    share = _least_share(row)
    low = share is not None and (row["share"] is None or row["share"] < share)
    return ([f"want {share:.0%} of the roof"] if low else []) + _missed_peers(row)
